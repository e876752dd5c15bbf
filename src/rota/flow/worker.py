"""The worker: slots, the handlers in them, and the loops that feed and guard them.

Claimed runs wait in a local deque for one of the worker's threads; async handlers go straight to
the event loop and take a slot without a thread.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol, runtime_checkable

import msgspec

from rota.errors import RotaError
from rota.executors.protocol import Context, Executor
from rota.flow.claim import Claim
from rota.flow.events import Events, started_event
from rota.flow.loop import Loop
from rota.flow.notes import Notes
from rota.flow.renew import Renew
from rota.flow.run import STOP_SECONDS, Execution, execute
from rota.flow.settle import Settler
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.run import Claimed
from rota.storage.protocol import Storage
from rota.version import VERSION

log = logging.getLogger("rota.worker")

BEAT_SECONDS = 5.0
WATCH_SECONDS = 1.0
LOOP_STOP_SECONDS = 10.0
LOST_KEPT = 10_000


Body = Callable[[Context], Outcome]


@runtime_checkable
class StartsAsync(Protocol):
    """An executor that can run a handler without a thread of its own."""

    def start(self, context: Context, done: Callable[[Outcome], None]) -> bool:
        """True if it was taken; `done` is called with the outcome. False: call run()."""


class Executors(Protocol):
    """Executors by name."""

    def get(self, name: str) -> Executor: ...


class Worker:
    """One per process. `jobs` is live: what is registered later is claimed from then on."""

    def __init__(
        self,
        storage: Storage,
        *,
        worker_id: str,
        jobs: Mapping[str, Job],
        executors: Executors,
        settler: Settler,
        events: Events,
        target: str,
        slots: int = 10,
        queues: Sequence[str] = (),
        lease: timedelta = timedelta(seconds=30),
        origin: str | None = None,
        interval: float = 1.0,
        on_stuck: Callable[[], None] = lambda: None,
    ) -> None:
        self.storage, self.worker_id, self.jobs, self.executors = (
            storage,
            worker_id,
            jobs,
            executors,
        )
        self.settler, self.events, self.target = settler, events, target
        self.slots, self.queues, self.lease = slots, tuple(queues), lease
        self.on_stuck = on_stuck
        self.identity = {
            "id": worker_id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": VERSION,
            "tzdata": _tzdata_version(),
            "origin": origin,
        }
        self.notes = Notes(storage)
        self._executions: dict[tuple[int, int], Execution] = {}
        self._waiting: deque[tuple[Execution, Body]] = deque()
        self._lost: deque[int] = deque(maxlen=LOST_KEPT)  # begun here, and lost
        self._guard = threading.Condition()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._stopping = False
        self._told_stuck = False
        self.claim = Claim(
            storage,
            worker_id,
            queues=self.queues,
            jobs=self.known_jobs,
            free=self.free,
            held=self.held,
            take=self.take,
            lease=lease,
            interval=interval,
        )
        self.renew = Renew(
            storage, executions=self.executions, unwritten=settler.unwritten, lease=lease
        )
        self.loops = {
            "claim": Loop("claim", self.claim.step),
            "renew": Loop("renew", self.renew.step),
            "settle": Loop("settle", settler.step),
            "notes": Loop("notes", self.notes.step),
            "watch": Loop("watch", self.watch),
            "beat": Loop("beat", self.beat),
        }
        settler.on_put(self.loops["settle"].wake)

    # What the loops ask

    def known_jobs(self) -> list[str]:
        return list(self.jobs)

    def executions(self) -> list[Execution]:
        with self._guard:
            return list(self._executions.values())

    def held(self) -> list[int]:
        """Runs that are ours: in hand, or ended with an outcome that is not written yet. What
        began here and lost its lease is left to rescue, which counts the attempt."""
        running = [execution.run.seq for execution in self.executions()]
        return running + [seq for seq, _ in self.settler.unwritten()] + list(self._lost)

    def free(self) -> int:
        return 0 if self._stopping else self.slots - len(self._executions)

    @property
    def stuck(self) -> int:
        """Slots whose handler goes on past its timeout: nothing can end a thread."""
        return sum(one.is_stuck for one in self.executions())

    def take(self, claimed: list[Claimed]) -> None:
        """Begin each claimed run: on the event loop, or in a thread."""
        prepared = [execution for execution in map(self._prepare, claimed) if execution]
        with self._guard:  # all of them before the first begins: they are renewed from now on
            for execution in prepared:
                self._executions[execution.run.seq, execution.run.attempt] = execution
        for execution in prepared:
            try:
                self._begin(execution)
            except Exception as fault:
                log.exception("run %s could not begin", execution.run.id)
                execution.handler_returned(
                    Outcome(kind="failed", error=f"could not begin: {fault}")
                )

    def _prepare(self, run: Claimed) -> Execution | None:
        if run.cancel_requested_at is not None:
            self.settler.put(run, Outcome(kind="cancelled", reason="cancelled before it started"))
            return None
        job = self.jobs.get(run.job)
        if job is None:  # unregistered between the claim and now
            self.settler.put(run, Outcome(kind="released", reason="this worker forgot the job"))
            return None
        try:
            return Execution(
                run,
                job,
                storage=self.storage,
                notes=self.notes,
                lease=self.lease,
                target=self.target,
                worker_id=self.worker_id,
                done=self._done,
                freed=self._freed,
            )
        except Exception as fault:  # a row that somebody corrupted
            self.settler.put(run, Outcome(kind="failed", error=f"it cannot be read: {fault}"))
            return None

    def _begin(self, execution: Execution) -> None:
        try:
            executor = self.executors.get(execution.job.executor)
        except RotaError as fault:  # not installed, or its package is broken
            execution.handler_returned(Outcome(kind="failed", error=str(fault)))
            return
        self._announce(execution)
        if isinstance(executor, StartsAsync):
            execution.begin()
            if executor.start(execution.context, execution.handler_returned):
                self._watch_deadline(execution)
                return
        with self._guard:
            self._waiting.append((execution, executor.run))
            if len(self._waiting) > self._idle and len(self._threads) < self.slots:
                self._add_thread()
            self._guard.notify()

    def _watch_deadline(self, execution: Execution) -> None:
        if execution.timeout is not None:
            self.loops["watch"].wake()

    def _announce(self, execution: Execution) -> None:
        if self.events.listened:
            if execution.run.attempt == 1:
                self.events.emit("job.started", started_event(execution.run))
            self.events.emit("attempt.started", started_event(execution.run))

    # Threads

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._serve, name="rota-handler", daemon=True)
        thread.start()
        self._threads.add(thread)

    def _serve(self) -> None:
        """Take executions from the deque until the worker has stopped."""
        while True:
            with self._guard:
                self._idle += 1
                self._guard.wait_for(lambda: self._waiting or self._stopping)
                self._idle -= 1
                if not self._waiting:
                    self._threads.discard(threading.current_thread())
                    return
                execution, body = self._waiting.popleft()
            self._watch_deadline(execution)
            execute(execution, body)

    def _done(self, execution: Execution, outcome: Outcome) -> None:
        """The first outcome of an execution; a lost one is settled by whoever has the lease."""
        if outcome.kind != "lost":
            self.settler.put(execution.run, outcome, execution.ran_for)
        elif execution.started_at is not None:
            self._lost.append(execution.run.seq)
        self.notes.ended(execution.run)
        with self._guard:
            self._guard.notify_all()  # a stop waits for outcomes, not for threads

    def _freed(self, execution: Execution) -> None:
        with self._guard:
            self._executions.pop((execution.run.seq, execution.run.attempt), None)
            self._guard.notify_all()
        self.loops["claim"].wake()
        if execution.context.stop_reason == "timed_out":
            self.loops["beat"].wake()

    # Guarding

    def watch(self) -> float:
        """End handlers at their deadline; give up on those that a stop did not end."""
        now, soonest = time.monotonic(), WATCH_SECONDS
        overdue = self.renew.overdue()
        for one in self.executions():
            if one.finished:
                continue
            context, deadline = one.context, one.deadline
            if overdue:
                one.stop("lost")
            if deadline is not None and deadline <= now:
                one.stop("timed_out")
            if context.stop_reason is None:
                soonest = min(soonest, deadline - now if deadline is not None else soonest)
            elif not context.stoppable or now - context.stopped_at > STOP_SECONDS:
                self._give_up(one)
            else:
                soonest = min(soonest, 0.1)
        self._look_for_stuck()
        return soonest

    def _look_for_stuck(self) -> None:
        if self.stuck * 2 >= self.slots and not self._told_stuck and not self._stopping:
            self._told_stuck = True
            log.error("half of the slots are stuck in handlers that ignore their timeout")
            self.on_stuck()

    def _give_up(self, execution: Execution) -> None:
        """Nothing can end a thread: a timeout or a lost lease is settled without it, a cancel
        or a stop waits for the handler to look at `ctx.cancelled`."""
        if execution.context.stop_reason in ("timed_out", "lost"):
            execution.finish(execution.stopped_outcome())
            self.loops["beat"].wake()  # shows the slot as stuck

    def beat(self) -> float:
        self.storage.put_worker(
            {
                **self.identity,
                "jobs": msgspec.json.encode(sorted(self.jobs)).decode(),
                "queues": msgspec.json.encode(list(self.queues)).decode(),
                "slots": self.slots,
                "stuck": self.stuck,
            }
        )
        return BEAT_SECONDS

    # Life

    def start(self) -> None:
        for loop in self.loops.values():
            loop.start()

    def wake(self) -> None:
        self.loops["claim"].wake()

    def stop_claiming(self) -> None:
        with self._guard:
            self._stopping = True

    def stop(self, grace: float | None) -> None:
        """Stop claiming, give handlers `grace` seconds (None: for ever), then let go."""
        self.stop_claiming()
        with self._guard:
            never_begun = list(self._waiting)
            self._waiting.clear()
        for execution, _ in never_begun:
            execution.handler_returned(Outcome(kind="released", reason="the worker stopped"))
        self.loops["claim"].stop(LOOP_STOP_SECONDS)
        if not self._wait_for_handlers(grace):
            for execution in self.executions():
                execution.stop("stopping")
            self._wait_for_handlers(STOP_SECONDS if self._any_stoppable() else 0.5)
        for execution in self.executions():
            execution.finish(Outcome(kind="released", reason="the worker stopped"))
        with self._guard:
            self._guard.notify_all()
        self._wind_down()

    def _wait_for_handlers(self, seconds: float | None) -> bool:
        with self._guard:
            return self._guard.wait_for(
                lambda: all(one.finished for one in self._executions.values()), seconds
            )

    def _any_stoppable(self) -> bool:
        return any(one.context.stoppable for one in self.executions() if not one.finished)

    def _wind_down(self) -> None:
        self.settler.flush(timeout=LOOP_STOP_SECONDS)
        for name in ("watch", "notes", "settle", "renew", "beat"):
            self.loops[name].stop(LOOP_STOP_SECONDS)
        try:
            self.notes.step()
            self.storage.forget_worker(self.worker_id)
        except RotaError as fault:
            log.warning("the worker's row could not be removed: %s", fault)


def _tzdata_version() -> str:
    try:
        return version("tzdata")
    except PackageNotFoundError:
        return "system"
