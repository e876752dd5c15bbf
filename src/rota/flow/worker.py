"""The worker: slots, the handlers in them, and the loops that feed and guard them.

Claimed runs wait in a local deque, a little ahead of the free slots, for one of the worker's
threads to take them. Async handlers take a slot without a thread: each that ends on the event
loop begins the next one there.
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
from typing import Protocol

import msgspec

from rota.errors import RotaError
from rota.executors.protocol import Executor, Targets
from rota.flow.claim import BATCH, Claim
from rota.flow.events import Events, announce
from rota.flow.learn import Learn
from rota.flow.loop import Loop, stop_loops
from rota.flow.notes import Notes
from rota.flow.renew import Renew
from rota.flow.run import STOP_SECONDS, Execution, Owner, execute
from rota.flow.settle import Settler
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.pace import Pace
from rota.model.run import ClaimedRun
from rota.storage import operations
from rota.storage.store import Store
from rota.version import VERSION

log = logging.getLogger("rota.worker")

BEAT_SECONDS = 5.0
BEGIN_SECONDS = 0.05  # after a start: the first claim and settle come before a word about us
WATCH_SECONDS = 1.0
LOOP_STOP_SECONDS = 10.0
LOST_KEPT = 10_000
STAND_BY_SECONDS = 0.002
GIVE_BACK_SECONDS = 1.0
CLAIMS_AHEAD = 2  # at most: while one is worked off the next one is on its way
ATTEMPTS_SEEN = 500


class Executors(Protocol):
    """Executors by name."""

    def get(self, name: str) -> Executor: ...


class Worker:
    """One per process. `jobs` is live: what is registered later is claimed from then on."""

    def __init__(
        self,
        store: Store,
        *,
        worker_id: str,
        jobs: Mapping[str, Job],
        executors: Executors,
        settler: Settler,
        events: Events,
        target: str | Targets,
        slots: int = 10,
        queues: Sequence[str] = (),
        lease: timedelta = timedelta(seconds=30),
        origin: str | None = None,
        interval: float = 1.0,
        on_stuck: Callable[[], None] = lambda: None,
        learn: Learn | None = None,
    ) -> None:
        self.store, self.worker_id, self.jobs, self.executors = (
            store,
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
            "tzdata": tzdata_version(),
            "origin": origin,
        }
        self.notes = Notes(store)
        self._executions: dict[Execution, None] = {}  # in the order they came
        self._waiting: deque[Execution] = deque()
        self._lost: deque[int] = deque(maxlen=LOST_KEPT)  # begun here, and lost
        self._lock = threading.RLock()
        self._guard = threading.Condition(self._lock)
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._busy = 0  # slots in use
        self._serving: threading.Thread | None = None  # who runs the quick handlers
        self._stands_by = False  # one of the idle threads looks after the one that serves
        self._called = False  # one of them was called, and has not woken yet
        self._stopping = False
        self._owner = Owner(
            store=store,
            notes=self.notes,
            lease=lease,
            target=target,
            done=self._done,
            freed=self._freed,
            begun=settler.counters.begun,
            turned=self._watch_deadline,
        )
        self._told_stuck = False
        self.claim = Claim(
            store,
            worker_id,
            queues=self.queues,
            jobs=self.known_jobs,
            free=self.free,
            held=self.held,
            take=self.take,
            take_fired=self.take_fired,
            lease=lease,
            interval=interval,
        )
        self.pace = Pace(CLAIMS_AHEAD * BATCH)
        self.renew = Renew(
            store, executions=self.executions, unwritten=settler.unwritten, lease=lease
        )
        self.loops = {
            "claim": Loop("claim", self.claim.step),
            "renew": Loop("renew", self.renew.step),
            "settle": Loop("settle", settler.step),
            "notes": Loop("notes", self.notes.step),
            "watch": Loop("watch", self.watch),
            "beat": Loop("beat", self.beat, after_seconds=BEGIN_SECONDS),
        }
        self.learn = learn
        if learn is not None:
            self.loops["learn"] = Loop("learn", learn.step, after_seconds=BEGIN_SECONDS)
            learn.wake, learn.learned = self.loops["learn"].wake, self._learned
        settler.on_put(self.loops["settle"].wake, self._claim_more)

    def _learned(self) -> None:
        """There are other jobs now: say so, and look for runs of them."""
        self.loops["beat"].wake()
        self.loops["claim"].wake()

    # What the loops ask

    def known_jobs(self) -> list[str]:
        return list(self.jobs)

    def executions(self) -> list[Execution]:
        with self._guard:
            return list(self._executions)

    def held(self) -> list[int]:
        """Runs that are ours: in hand, or ended with an outcome that is not written yet. What
        began here and lost its lease is left to rescue, which counts the attempt."""
        running = [execution.run.seq for execution in self.executions()]
        return running + [seq for seq, _ in self.settler.unwritten()] + list(self._lost)

    def free(self) -> int:
        """How many runs to claim now: for the free slots, and as many ahead as are done in no
        time. Not before half of those are used up, so that a busy worker claims many at once."""
        if self._stopping or self.settler.behind:
            return 0
        ahead = self.pace.ahead(time.monotonic())
        if len(self._waiting) > ahead // 2:
            return 0
        return self.slots + ahead - len(self._executions)

    @property
    def stuck(self) -> int:
        """Slots whose handler goes on past its timeout: nothing can end a thread."""
        return sum(one.is_stuck for one in self.executions())

    def take(self, claimed: list[ClaimedRun]) -> None:
        """Hold each claimed run until a slot is free for it."""
        self._hold(claimed)
        self._begin_waiting()

    def take_fired(self, claimed: list[ClaimedRun]) -> None:
        """The same from the thread that fires: an executor may take its time to begin one, and no
        schedule waits for that."""
        self._hold(claimed)
        with self._guard:
            self._wake_threads()

    def _hold(self, claimed: list[ClaimedRun]) -> None:
        if self._stopping:
            for run in claimed:
                self.settler.put(run, Outcome(kind="released", reason="the worker stopped"))
            return
        prepared = [execution for execution in map(self._prepare, claimed) if execution]
        with self._guard:  # all of them before the first begins: they are renewed from now on
            self._executions.update(dict.fromkeys(prepared))
            self._waiting.extend(prepared)

    def _prepare(self, run: ClaimedRun) -> Execution | None:
        if run.cancel_requested_at is not None:
            self.settler.put(run, Outcome(kind="cancelled", reason="cancelled before it started"))
            return None
        job = self.jobs.get(run.job)
        if job is None:  # unregistered between the claim and now
            self.settler.put(run, Outcome(kind="released", reason="this worker forgot the job"))
            return None
        try:
            return Execution(run, job, self._owner, self.claim.asked_at)
        except Exception as fault:  # a row that somebody corrupted
            self.settler.put(run, Outcome(kind="failed", error=f"it cannot be read: {fault}"))
            return None

    def _begin_waiting(self) -> None:
        """Begin what is next in line and needs no thread, and let threads do the rest."""
        while (execution := self._pop()) is not None:
            if self._begin(execution) is not None:
                with self._guard:
                    self._busy -= 1
                    execution.has_slot, execution.started_at = False, None
                    self._waiting.appendleft(execution)
                    self._wake_threads()
                return

    def _pop(self) -> Execution | None:
        """The next run in line and a slot for it, if there are both."""
        with self._lock:
            if not self._waiting or self._busy >= self.slots:
                return None
            return self._next()

    def _next(self) -> Execution:
        """Called with the guard held, where there are both."""
        self._busy += 1
        execution = self._waiting.popleft()
        execution.has_slot = True
        return execution

    def _begin(self, execution: Execution) -> Executor | None:
        """Begin a run that has a slot. Its executor, if a thread has to call that: one that can
        run a handler without a thread has `start(context, done)`, which is true if it does."""
        if self.renew.runs_out(execution.leased_at):
            # This process slept, or its database is away or was busy for long: the run may be
            # somebody else's by now. What runs may go on beside a busy store; this has not begun.
            execution.stop("lost")
        if execution.finished or execution.context.stop_reason is not None:
            # Cancelled, lost or let go while it waited for a slot.
            execution.handler_returned(execution.stopped_outcome())
            return None
        try:
            executor = self.executors.get(execution.job.executor)
            if self.events.hears_starts:
                self._announce(execution)
            if (start := getattr(executor, "start", None)) is not None:
                execution.begin()
                execution.threadless = True  # before it is: it may end at once
                if start(execution.context, execution.handler_returned):
                    self._owner.begun()
                    self._watch_deadline(execution)
                    return None
                execution.threadless = False
        except RotaError as fault:  # not installed, or its package is broken
            execution.threadless = False  # whoever called us goes on to the next one
            execution.handler_returned(Outcome(kind="failed", error=str(fault)))
            return None
        except Exception as fault:
            execution.threadless = False
            log.exception("run %s could not begin", execution.run.id)
            execution.handler_returned(Outcome(kind="failed", error=f"could not begin: {fault}"))
            return None
        return executor

    def _watch_deadline(self, execution: Execution) -> None:
        if execution.timeout is not None and execution.timeout.total_seconds() < WATCH_SECONDS:
            self.loops["watch"].wake()  # it looks no more than WATCH_SECONDS from now anyway

    def _announce(self, execution: Execution) -> None:
        if not execution.announced:
            execution.announced = True
            run = execution.run
            announce(
                self.events,
                run,
                lambda: self.store.read(operations.list_attempts, run.seq, limit=ATTEMPTS_SEEN),
            )

    # Threads

    def _wake_threads(self) -> None:
        """Called with the guard held. Quick handlers need one thread, and one that stands by."""
        wanted = min(len(self._waiting), self.slots - self._busy)
        if self.pace.quick:
            wanted = min(wanted, 2)
        self._guard.notify(wanted)
        if wanted > self._idle and len(self._threads) < self.slots:
            # One: it calls the next while there is more to do. Whoever adds a thread waits for it
            # to begin, and where handlers end in no time most of them would have nothing to do.
            self._add_thread()

    def _call_another(self) -> None:
        """Called with the guard held: one more thread, for the next run or to stand by."""
        if self._idle:
            self._guard.notify()
        elif len(self._threads) < self.slots:
            self._add_thread()
        else:
            return
        self._called = True

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._serve, name="rota-handler", daemon=True)
        self._threads.add(thread)
        thread.start()

    def _serve(self) -> None:
        """Run what waits until the worker has stopped."""
        me = threading.current_thread()
        with self._lock:  # after whoever called has said that he did: else nobody calls again
            self._called = False
        try:
            while (execution := self._wait_for_turn(me)) is not None:
                executor = self._begin(execution)
                if executor is not None:
                    self._watch_deadline(execution)
                    execute(execution, executor.run)
        finally:
            with self._guard:
                self._threads.discard(me)
                self._retire(me)

    def _wait_for_turn(self, me: threading.Thread) -> Execution | None:
        """What this thread should run next, with a slot; None when the worker has stopped.

        Handlers that end in no time run one after the other in one thread: more of them would only
        take the interpreter from each other, and from the loops. Another thread stands by, and
        steps in when nothing has ended for a moment."""
        with self._lock:
            while True:
                if not self._waiting and self._stopping:
                    return None
                if not self._waiting or self._busy >= self.slots:
                    self._retire(me)
                    self._rest(None)
                elif self._serving is me or self._serving is None or not self.pace.quick:
                    break
                elif self._stands_by:
                    self._rest(None)
                else:
                    self._stands_by, ended = True, self.pace.total
                    self._rest(STAND_BY_SECONDS)
                    self._stands_by = False
                    stuck = self.pace.total == ended
                    if stuck and self._waiting and self._busy < self.slots:
                        break
            self._serving = me
            # Not one more for each run that begins before the one that was called has woken.
            if not self._stands_by and not self._called and len(self._waiting) > 1:
                self._call_another()
            return self._next()

    def _retire(self, me: threading.Thread) -> None:
        """Called with the guard held: this thread serves no longer, if it did."""
        if self._serving is me:
            self._serving = None

    def _rest(self, seconds: float | None) -> None:
        self._idle += 1
        try:
            self._guard.wait(seconds)
        finally:
            self._idle -= 1
            self._called = False

    def _done(self, execution: Execution, outcome: Outcome) -> None:
        """The first outcome of an execution; a lost one is settled by whoever has the lease."""
        ran_seconds = None
        if execution.started_at is not None:
            ran_seconds = time.monotonic() - execution.started_at
            self.pace.ended(ran_seconds)
        if outcome.kind != "lost":
            self.settler.put(execution.run, outcome, ran_seconds)
        elif execution.started_at is not None:
            self._lost.append(execution.run.seq)
        self.notes.ended(execution.run)
        if self._stopping:
            with self._guard:
                self._guard.notify_all()  # a stop waits for outcomes, not for threads

    def _freed(self, execution: Execution) -> None:
        with self._lock:
            self._executions.pop(execution, None)
            self._busy -= execution.has_slot
            if self._stopping:
                self._guard.notify_all()
        # A thread goes on to the next run by itself, as does who found that one need not begin.
        if execution.threadless:
            self._begin_waiting()
        if len(self._waiting) <= self.pace.latest // 2:
            self._claim_more()
        if execution.context.stop_reason == "timed_out":
            self.loops["beat"].wake()

    def _claim_more(self) -> None:
        claiming = self.loops["claim"]
        if not claiming.woken and self.free() > 0:
            claiming.wake()

    # Guarding

    def watch(self) -> float:
        """End handlers at their deadline; give up on those that a stop did not end."""
        now, soonest = time.monotonic(), WATCH_SECONDS
        self.renew.awake()
        self._give_back_waiting(now)
        for one in self.executions():
            if one.finished:
                continue
            context, deadline = one.context, one.deadline
            if self.renew.overdue(one.leased_at):
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

    def _give_back_waiting(self, now: float) -> None:
        """What was claimed ahead and has not begun is somebody else's chance."""
        old = []
        with self._guard:
            while self._waiting and now - self._waiting[0].claimed_at > GIVE_BACK_SECONDS:
                old.append(self._waiting.popleft())
        for execution in old:
            execution.handler_returned(Outcome(kind="released", reason="no slot became free"))

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
        self.store.write(
            operations.put_worker,
            {
                **self.identity,
                "jobs": msgspec.json.encode(sorted(self.jobs)).decode(),
                "queues": msgspec.json.encode(list(self.queues)).decode(),
                "slots": 0 if self._stopping else self.slots,
                "stuck": self.stuck,
            },
        )
        return BEAT_SECONDS

    # Life

    def start(self) -> None:
        for loop in self.loops.values():
            loop.start()

    def wake(self) -> None:
        self.loops["claim"].wake()

    def look_around(self) -> None:
        """Something changed that may be more than a new run."""
        self.wake()
        if self.learn is not None:
            self.learn.ask()

    def stop_claiming(self) -> None:
        with self._guard:
            self._stopping = True
        self.loops["beat"].wake()  # tells it

    def stop(self, grace: float | None) -> None:
        """Stop claiming, give handlers `grace` seconds (None: for ever), then let go."""
        self.stop_claiming()
        with self._guard:
            never_begun = list(self._waiting)
            self._waiting.clear()
        for execution in never_begun:
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
                lambda: all(one.finished for one in self._executions), seconds
            )

    def _any_stoppable(self) -> bool:
        return any(one.context.stoppable for one in self.executions() if not one.finished)

    def _wind_down(self) -> None:
        self.settler.flush(timeout=LOOP_STOP_SECONDS)
        # Renewed until the last of them is written: a settle may still be under way.
        others = [loop for name, loop in self.loops.items() if name != "renew"]
        stop_loops(others, LOOP_STOP_SECONDS)
        self.loops["renew"].stop(LOOP_STOP_SECONDS)
        # In a thread: a database that neither answers nor fails must not keep us.
        last = threading.Thread(target=self._say_goodbye, name="rota-goodbye", daemon=True)
        last.start()
        last.join(LOOP_STOP_SECONDS)
        if last.is_alive():
            log.warning("the store does not answer: the last log lines and the worker's row stay")

    def _say_goodbye(self) -> None:
        try:
            self.notes.step()
            self.store.write(operations.forget_worker, self.worker_id)
        except Exception as fault:
            log.warning("the worker's row could not be removed: %s", fault)


def tzdata_version() -> str:
    try:
        return version("tzdata")
    except PackageNotFoundError:
        return "system"
