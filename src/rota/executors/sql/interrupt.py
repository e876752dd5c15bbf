"""Interrupts a running statement when its attempt is stopped or its step times out.

An interrupt between two statements has no effect, so it is repeated until the step has ended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rota.executors.context import Context
from rota.executors.sql.session import Interrupted, Session

log = logging.getLogger("rota.sql")

AGAIN_SECONDS = 0.1
STEP_TIMEOUT = "step_timeout"


class Interrupts:
    """Interrupts the steps of a run; `reason` is why the step should end, or None."""

    def __init__(self, context: Context, step_seconds: float | None) -> None:
        self.context, self.step_seconds = context, step_seconds
        self._changed = threading.Condition()
        self._running = False
        self._late = False
        context.on_stop(self._wake)

    @property
    def reason(self) -> str | None:
        return self.context.stop_reason or (STEP_TIMEOUT if self._late else None)

    def stopped(self) -> bool:
        return self.reason is not None

    def check(self) -> None:
        if self.reason is not None:
            raise Interrupted

    def _wake(self, reason: str) -> None:
        with self._changed:
            self._changed.notify_all()

    @contextmanager
    def during(self, session: Session) -> Iterator[None]:
        """Interrupt the session while the block runs; no interrupt follows after it."""
        self._running, self._late = True, False
        thread = threading.Thread(
            target=self._watch, args=(session,), name="rota-interrupt", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._running = False
                self._changed.notify_all()
            thread.join()
        self.check()

    def _watch(self, session: Session) -> None:
        with self._changed:
            self._changed.wait_for(self._is_over, self.step_seconds)
            self._late = self._running and self.context.stop_reason is None
        while self._running:
            try:
                session.interrupt()
            except Exception as fault:  # the connection may be closed; the step fails by itself
                log.debug("an interrupt failed: %s", fault)
            with self._changed:
                self._changed.wait_for(lambda: not self._running, AGAIN_SECONDS)

    def _is_over(self) -> bool:
        return not self._running or self.context.stop_reason is not None
