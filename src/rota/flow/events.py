"""Lifecycle events, told to listeners in the process that settles.

`job.started` once per run; `job.completed`, `job.failed`, `job.cancelled` once at its end;
`attempt.*` for each try. A listener that raises is logged and harms nobody.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from rota.errors import Invalid
from rota.model.outcome import KINDS, Settlement
from rota.model.run import Claimed

log = logging.getLogger("rota.events")

QUEUED = 10_000
LINES_PER_SECOND = 100

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
        self._lines: dict[str, Listener] = {}
        self._more: Callable[[int], None] = lambda count: None
        self._second, self._written, self._passed_over = 0.0, 0, 0
        self._queue: queue.Queue[tuple[str, RunEvent] | None] = queue.Queue(QUEUED)
        self._thread: threading.Thread | None = None

    def on(self, name: str, listener: Listener) -> None:
        if name not in NAMES:
            raise Invalid(f"event {name!r} is unknown; use one of {', '.join(NAMES)}")
        self._listeners[name].append(listener)

    def write_lines(self, lines: Mapping[str, Listener], more: Callable[[int], None]) -> None:
        """Listeners for people, who read LINES_PER_SECOND; `more` is told how many runs ended
        unheard in a second. A worker that does thousands must not spend itself on writing them."""
        self._lines, self._more = dict(lines), more

    def wants(self, name: str) -> bool:
        """False on the hot path of most programs: then no event is built at all."""
        return name in self._listeners or (name in self._lines and self._has_room())

    def _has_room(self) -> bool:
        now = time.monotonic()
        if now - self._second >= 1.0:
            self._second, self._written = now, 0
            passed_over, self._passed_over = self._passed_over, 0
            if passed_over:
                self._more(passed_over)
        return self._written < LINES_PER_SECOND

    def ended_unheard(self, count: int) -> None:
        self._passed_over += count

    def emit(self, name: str, event: RunEvent) -> None:
        """Tell listeners: at once, or by the thread of a running service, so that a slow
        listener delays no settle."""
        if self._thread is None:
            self._tell(name, event)
            return
        if not self._thread.is_alive():
            self.start()
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
                continue

    def _tell(self, name: str, event: RunEvent) -> None:
        listeners = [*self._listeners.get(name, ())]
        if name in self._lines and self._has_room():
            self._written += 1
            listeners.append(self._lines[name])
        for listener in listeners:
            try:
                listener(event)
            except BaseException:  # also sys.exit(): it must not end the thread that tells it
                log.exception("a listener to %s failed", name)


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


def announce(events: Events, run: Claimed) -> None:
    """An attempt begins, and with the first one the run."""
    if run.attempt == 1 and events.wants("job.started"):
        events.emit("job.started", started_event(run))
    if events.wants("attempt.started"):
        events.emit("attempt.started", started_event(run))
