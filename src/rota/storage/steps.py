"""A step's own transaction on the store: its work and its mark are committed together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rota.errors import StorageError, Unavailable
from rota.model.steps import AT_LEAST_ONCE, StepDone
from rota.storage.engine import EngineStep, Transaction
from rota.storage.operations import steps

if TYPE_CHECKING:
    from rota.storage.store import Store


@contextmanager
def open_step(
    store: Store, key: steps.StepKey, lease: timedelta, stopped: Callable[[], bool]
) -> Iterator[StepInStore]:
    with store.engine.step("steps.step", stopped) as opened:
        yield StepInStore(store, opened, key, lease)


class StepInStore:
    """What an executor is handed: see `model.steps.StepTransaction`."""

    def __init__(
        self, store: Store, opened: EngineStep, key: steps.StepKey, lease: timedelta
    ) -> None:
        self._store, self._opened, self._key, self._lease = store, opened, key, lease
        self.connection: Any = opened.connection
        self.is_over = False

    def commit(self, done: StepDone) -> None:
        if self.is_over:
            raise StorageError("this step has ended; begin another one")
        self.is_over = True
        if self._opened.alone:
            self._commit(done)
            return
        # Several files do not commit at one instant: what was done must be there first. An attempt
        # that lost its lease long ago does nothing all the same; nothing can be locked here, so
        # what is read may be over a moment later.
        asked = self._store.read(steps.requests_of_attempt, self._key.seq, self._key.attempt)
        if asked is None:
            raise steps.lease_lost(self._key.seq)
        self._opened.commit_plain()
        self._store.write(steps.finish_step, self._key, done, AT_LEAST_ONCE)

    def _commit(self, done: StepDone) -> None:
        """Both or neither."""
        renew = self._lease if self._opened.holds_writes else None

        def is_ours(tx: Transaction) -> bool:
            return steps.holds_run(tx, self._key)

        def mark(tx: Transaction) -> None:
            steps.commit_step(tx, self._key, done, renew)

        try:
            if not self._opened.commit(is_ours, mark):
                raise steps.lease_lost(self._key.seq)
        except Unavailable as fault:
            if not fault.maybe_committed or not self._was_committed():
                raise

    def _was_committed(self) -> bool:
        try:
            return self._store.write(steps.has_mark, self._key)
        except Unavailable as away:
            away.maybe_committed = True  # it is still unknown
            raise
