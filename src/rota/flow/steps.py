"""The steps of one attempt, as its executor sees them: see `model.steps.Steps`.

A database that is away for a moment is waited for, until the attempt should end: nothing here
fails a run because of it, and every call can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from rota.errors import Unavailable
from rota.executors.protocol import Context
from rota.model.limits import ERROR_LENGTH, SNAPSHOT_ROWS, SNAPSHOT_RUNS
from rota.model.redact import redact_json, shorten
from rota.model.run import ClaimedRun
from rota.model.steps import StepDone, StepFile, StepTransaction
from rota.storage import operations
from rota.storage.operations.steps import StepKey
from rota.storage.store import Store

AGAIN_SECONDS = 0.5

T = TypeVar("T")


class AttemptSteps:
    """`restart`: this attempt does not go on where an earlier one ended."""

    def __init__(
        self,
        store: Store,
        run: ClaimedRun,
        context: Context,
        lease: timedelta,
        *,
        restart: bool,
    ) -> None:
        self.store, self.run, self.context, self.lease = store, run, context, lease
        self.restart = restart

    def kept_files(self) -> list[StepFile]:
        return self._patiently(lambda: self.store.read(operations.kept_files, self.run.seq))

    def keep_files(self, files: Sequence[StepFile]) -> None:
        self._patiently(
            lambda: self.store.write(operations.keep_files, self.run.seq, self.run.attempt, files)
        )

    def texts_of(self, hashes: Collection[str]) -> Mapping[str, str]:
        return self._patiently(lambda: self.store.read(operations.texts_of, hashes))

    def done(self) -> set[int]:
        attempt = self.run.attempt if self.restart else None
        return self._patiently(
            lambda: self.store.read(operations.done_steps, self.run.seq, attempt)
        )

    def begin(self, file: StepFile) -> None:
        self._patiently(lambda: self.store.write(operations.begin_step, self._key(file), file))

    def fail(self, file: StepFile, status: str, error: str) -> None:
        told = shorten(error, ERROR_LENGTH, self.context.secrets)
        self._patiently(
            lambda: self.store.write(operations.end_step, self._key(file), status, told)
        )

    def finish(self, file: StepFile, done: StepDone, note: str | None = None) -> None:
        done = self.shown(done)
        self._patiently(
            lambda: self.store.write(operations.finish_step, self._key(file), done, note)
        )

    @contextmanager
    def transaction(self, file: StepFile) -> Iterator[StepTransaction]:
        key = self._key(file)
        with ExitStack() as stack:
            opened = self._patiently(
                lambda: stack.enter_context(self.store.step(key, self.lease, self._stopped))
            )
            yield _Patient(self, key, opened)

    def shown(self, done: StepDone) -> StepDone:
        """What a step did, as it may be stored."""
        if done.result is None:
            return done
        return replace(done, result=redact_json(done.result, self.context.secrets))

    def view(self, name: str) -> list[dict[str, Any]]:
        return self._patiently(
            lambda: self.store.read(
                operations.view_rows, name, runs=SNAPSHOT_RUNS, limit=SNAPSHOT_ROWS
            )
        )

    def pause_requested(self) -> bool:
        return self._patiently(
            lambda: self.store.read(operations.pause_requested, self.run.seq, self.run.attempt)
        )

    def _key(self, file: StepFile) -> StepKey:
        return StepKey(seq=self.run.seq, attempt=self.run.attempt, number=file.number)

    def _stopped(self) -> bool:
        return self.context.stop_reason is not None

    def _patiently(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except Unavailable:
                if self.context.wait(AGAIN_SECONDS):
                    raise


class _Patient:
    """A step's transaction. A COMMIT without an answer is found out by reading, however long that
    takes: to run the step again could do it twice, to fail it could be a lie."""

    def __init__(self, steps: AttemptSteps, key: StepKey, opened: StepTransaction) -> None:
        self._steps, self._key, self._opened = steps, key, opened
        self.connection: Any = opened.connection

    def commit(self, done: StepDone) -> None:
        try:
            self._opened.commit(self._steps.shown(done))
        except Unavailable as fault:
            if not fault.maybe_committed:
                raise
            if not self._steps._patiently(
                lambda: self._steps.store.write(operations.has_mark, self._key)
            ):
                raise
