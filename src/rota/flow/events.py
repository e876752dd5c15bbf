"""Lifecycle events, told to listeners in the process that settles.

`job.started` once per run; `job.completed`, `job.failed`, `job.cancelled` once at its end;
`attempt.*` for each try. A listener that raises is logged and harms nobody.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from rota.errors import Invalid
from rota.model.outcome import KINDS, Settlement
from rota.model.run import Claimed

log = logging.getLogger("rota.events")

QUEUED = 10_000

NAMES = (
    "job.started", "job.completed", "job.failed", "job.cancelled", "attempt.started",
    *(f"attempt.{kind}" for kind in KINDS if kind not in ("snoozed", "paused")),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """What a listener is given."""

    name: str
    run_id: str
    attempt: int
    scheduled_at: datetime
    duration_ms: float | None = None
    error: str | None = None
    file_path: str | None = None
    schedule: str | None = None


Listener = Callable[[RunEvent], None]


class Events:
    def __init__(self) -> None:
        self._listeners: defaultdict[str, list[Listener]] = defaultdict(list)
        self._queue: queue.Queue[tuple[str, RunEvent] | None] = queue.Queue(QUEUED)
        self._thread: threading.Thread | None = None

    def on(self, name: str, listener: Listener) -> None:
        if name not in NAMES:
            raise Invalid(f"event {name!r} is unknown; use one of {', '.join(NAMES)}")
        self._listeners[name].append(listener)

    def emit(self, name: str, event: RunEvent) -> None:
        """Tell listeners: at once, or by the thread of a running service, so that a slow
        listener delays no settle."""
        if self._thread is None:
            self._tell(name, event)
            return
        try:
            self._queue.put_nowait((name, event))
        except queue.Full:
            log.error("listeners are %d events behind; %s is not told", QUEUED, name)

    def start(self) -> None:
        """Tell from a thread of our own, from now on."""
        self._thread = threading.Thread(target=self._serve, name="rota-events", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Tell what is still to be told, then end the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join(timeout)

    def _serve(self) -> None:
        while True:
            try:
                told = self._queue.get()
                if told is None:
                    return
                self._tell(*told)
            except BaseException:  # raised in this thread from outside: it goes on
                log.exception("the thread that tells listeners was interrupted")

    def _tell(self, name: str, event: RunEvent) -> None:
        for listener in self._listeners.get(name, ()):
            try:
                listener(event)
            except BaseException:  # also sys.exit(): it must not end the thread that tells it
                log.exception("a listener to %s failed", name)

    @property
    def listened(self) -> bool:
        """False on the hot path of most programs: then no event is built at all."""
        return bool(self._listeners)


def run_event(settlement: Settlement) -> RunEvent:
    ran_for = settlement.ran_for
    return RunEvent(
        name=settlement.run.job,
        run_id=settlement.run.id,
        attempt=settlement.run.attempt,
        scheduled_at=settlement.run.occurrence or settlement.run.due_at,
        duration_ms=None if ran_for is None else ran_for.total_seconds() * 1000,
        error=settlement.outcome.error,
    )


def started_event(run: Claimed) -> RunEvent:
    return RunEvent(
        name=run.job,
        run_id=run.id,
        attempt=run.attempt,
        scheduled_at=run.occurrence or run.due_at,
    )
