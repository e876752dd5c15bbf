"""Lifecycle events, told to listeners in the process that settles.

`job.started` once per run, with the first attempt that begins; `job.completed`, `job.failed`,
`job.cancelled` once at its end, and again at the end of each redo; `attempt.*` for each try. A
listener that raises is logged and harms nobody.

What most events are made of is in the claimed run already. The rest (where the job's file is, what
its schedule says) is asked for when somebody is told, by the thread that tells.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from rota.errors import Invalid, RotaError
from rota.model.job import Job
from rota.model.outcome import KINDS, Settlement
from rota.model.run import Attempt, ClaimedRun, Run

log = logging.getLogger("rota.events")

QUEUED = 10_000
LINES_PER_SECOND = 100
WORDS_SECONDS = 10.0
WORDS_KEPT = 10_000

STARTS = ("job.started", "attempt.started")
NAMES = (
    "job.started", "job.completed", "job.failed", "job.cancelled", "attempt.started",
    *(f"attempt.{kind}" for kind in KINDS if kind not in ("snoozed", "paused")),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """What a listener is given. `schedule` is what the schedule says that made the run (a
    cron text, `every 5m`, `once …`), `duration_ms` the time its handler took in this attempt."""

    name: str
    run_id: str
    attempt: int
    scheduled_at: datetime
    duration_ms: float | None = None
    error: str | None = None
    file_path: str | None = None
    schedule: str | None = None
    schedule_name: str | None = None


Listener = Callable[[RunEvent], None]
Words = tuple[str, str]  # the name of a schedule, and what it says


class Sources:
    """Where events find what is not in a claimed run. What a schedule says is asked for again
    after WORDS_SECONDS: somebody may have edited it."""

    def __init__(self, jobs: Mapping[str, Job], words_of: Callable[[int], Words | None]) -> None:
        self._jobs, self._words_of = jobs, words_of
        self._words: dict[int, tuple[float, Words | None]] = {}

    def complete(self, event: RunEvent, schedule_id: int | None) -> RunEvent:
        job = self._jobs.get(event.name)
        name, expr = self._find(schedule_id) or (None, None)
        return replace(
            event,
            file_path=None if job is None else job.file_path,
            schedule=expr,
            schedule_name=name,
        )

    def _find(self, schedule_id: int | None) -> Words | None:
        if schedule_id is None:
            return None
        asked_at, words = self._words.get(schedule_id, (float("-inf"), None))
        if time.monotonic() - asked_at > WORDS_SECONDS:
            try:
                words = self._words_of(schedule_id)
            except Exception as fault:  # the event must be told all the same
                log.debug("what schedule %d says is not known now: %s", schedule_id, fault)
                return words
            if len(self._words) >= WORDS_KEPT:
                self._words.clear()
            self._words[schedule_id] = (time.monotonic(), words)
        return words


class Events:
    def __init__(self) -> None:
        self._listeners: defaultdict[str, list[Listener]] = defaultdict(list)
        self._lines: dict[str, Listener] = {}
        self.hears_starts = False  # whether anybody is told that something begins
        self._more: Callable[[int], None] = lambda count: None
        self._second, self._written, self._passed_over = 0.0, 0, 0
        self._queue: queue.Queue[tuple[str, RunEvent, int | None] | None] = queue.Queue(QUEUED)
        self.sources = Sources({}, lambda schedule_id: None)
        self._thread: threading.Thread | None = None

    def on(self, name: str, listener: Listener) -> None:
        if name not in NAMES:
            raise Invalid(f"event {name!r} is unknown; use one of {', '.join(NAMES)}")
        self._listeners[name].append(listener)
        self._look_for_starts()

    def write_lines(self, lines: Mapping[str, Listener], more: Callable[[int], None]) -> None:
        """Listeners for people, who read LINES_PER_SECOND; `more` is told how many runs ended
        unheard in a second. A worker that does thousands must not spend itself on writing them."""
        self._lines, self._more = dict(lines), more
        self._look_for_starts()

    def _look_for_starts(self) -> None:
        self.hears_starts = any(name in STARTS for name in (*self._listeners, *self._lines))

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

    def emit(self, name: str, event: RunEvent, schedule_id: int | None = None) -> None:
        """Tell listeners: at once, or by the thread of a running service, so that a slow
        listener delays no settle."""
        thread = self._thread  # read once: a stop may take it away meanwhile
        if thread is None:
            self._tell(name, event, schedule_id)
            return
        if not thread.is_alive():
            self.start()
        try:
            self._queue.put_nowait((name, event, schedule_id))
        except queue.Full:
            log.error("listeners are %d events behind; %s is not told", QUEUED, name)

    def start(self) -> None:
        """Tell from a thread of our own, from now on."""
        self._thread = threading.Thread(target=self._serve, name="rota-events", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Tell what is still to be told, then end the thread. Neither takes longer than `timeout`:
        a listener may never return."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                self._queue.put(None, timeout=timeout)
            except queue.Full:  # a listener hangs: what it has not heard by now, nobody hears
                with suppress(queue.Empty):
                    while True:
                        self._queue.get_nowait()
                self._queue.put(None)
            else:
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

    def _tell(self, name: str, event: RunEvent, schedule_id: int | None) -> None:
        listeners = [*self._listeners.get(name, ())]
        if name in self._lines and self._has_room():
            self._written += 1
            listeners.append(self._lines[name])
        event = self.sources.complete(event, schedule_id)
        for listener in listeners:
            try:
                listener(event)
            except BaseException:  # also sys.exit(): it must not end the thread that tells it
                log.exception("a listener to %s failed", name)


def run_event(settlement: Settlement) -> RunEvent:
    ran_seconds = settlement.ran_seconds
    return RunEvent(
        name=settlement.run.job,
        run_id=settlement.run.id,
        attempt=settlement.run.attempt,
        scheduled_at=settlement.run.occurrence or settlement.run.due_at,
        duration_ms=None if ran_seconds is None else ran_seconds * 1000,
        error=settlement.outcome.error,
    )


def started_event(run: ClaimedRun) -> RunEvent:
    return RunEvent(
        name=run.job,
        run_id=run.id,
        attempt=run.attempt,
        scheduled_at=run.occurrence or run.due_at,
    )


def announce(events: Events, run: ClaimedRun, attempts: Callable[[], Sequence[Attempt]]) -> None:
    """An attempt begins, and with the first one the run. `attempts` are those that have ended:
    asked for when the number does not tell whether one of them had begun."""
    if events.wants("job.started") and not _has_begun(run, attempts):
        events.emit("job.started", started_event(run), run.schedule_id)
    if events.wants("attempt.started"):
        events.emit("attempt.started", started_event(run), run.schedule_id)


def _has_begun(run: ClaimedRun, attempts: Callable[[], Sequence[Attempt]]) -> bool:
    if run.attempt == 1 or run.failures:
        return run.attempt > 1
    try:
        return any(one.started_at is not None for one in attempts())
    except RotaError as fault:  # better not told than told twice
        log.debug("run %s: whether it had begun is not known now: %s", run.id, fault)
        return True


def ended_event(run: Run) -> RunEvent:
    """The end of a run that no attempt brought about."""
    return RunEvent(
        name=run.job,
        run_id=run.id,
        attempt=run.attempt,
        scheduled_at=run.occurrence or run.due_at,
        error=run.error,
    )
