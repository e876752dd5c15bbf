"""Who acts: processes with the loops of the real flow, handlers, producers and an operator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from rota.executors.attempt import conclude
from rota.executors.context import Context, StopReason
from rota.executors.protocol import Statement
from rota.flow.events import Events, RunEvent
from rota.flow.fire import Fire
from rota.flow.promote import Promote
from rota.flow.prune import Prune
from rota.flow.rescue import Rescue
from rota.flow.settle import Settler
from rota.flow.worker import Worker
from rota.model.duration import micros
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.retention import Retention
from rota.model.run import Run
from rota.model.transitions import TERMINAL
from tests.simulation.clock import SECOND
from tests.simulation.history import Violation
from tests.simulation.invariants import HEARD, result, token
from tests.simulation.world import Actor

if TYPE_CHECKING:
    from tests.simulation.world import World

ENDS = {"job.completed": "succeeded", "job.failed": "dead", "job.cancelled": "cancelled"}
OUTCOMES = ("succeeded", "failed", "retry", "snoozed", "cancelled")
WEIGHTS = (60, 20, 7, 8, 5)
LOOKS_AHEAD = (0.0, 0.02, 3.0)  # seconds


class EndRecorder:
    """Adds a row to the last transaction of a run."""

    def on_terminated(self, run: Run) -> Sequence[Statement]:
        sql = "INSERT INTO sim_ends (run_id, redo, state) VALUES (:run, :redo, :state)"
        return [Statement(sql=sql, params={"run": run.id, "redo": run.redo, "state": run.state})]


END_RECORDER = EndRecorder()


def termination_hook_of(job: str) -> EndRecorder | None:
    return END_RECORDER if job == HEARD else None


class Waker:
    """Stands where a loop's thread would be."""

    woken = False

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        self.wake = wake


class Process:
    """One process: the parts it runs, wired as the service wires them."""

    def __init__(
        self,
        world: World,
        number: int,
        *,
        parts: Sequence[str],
        jobs: dict[str, Job],
        slots: int,
        batch: int,
        retention: Retention,
    ) -> None:
        self.world, self.number, self.parts, self.jobs = world, number, parts, jobs
        self.slots, self.batch, self.retention = slots, batch, retention
        self.incarnation = 0
        self.cut_off_until = 0
        self.alive = self.stopping = False
        self.loops: dict[str, Actor] = {}
        self.handlers: list[Handler] = []
        self.begin()

    # Life

    def begin(self) -> None:
        self.incarnation += 1
        self.name = f"p{self.number}.{self.incarnation}"
        self.alive, self.stopping, self.loops, self.handlers = True, False, {}, []
        world, store = self.world, self.world.store
        events = Events()
        for name, state in ENDS.items():
            events.on(name, self._listener(state))
        self.settler = Settler(
            store,
            jobs=self.jobs,
            max_lost=world.max_lost,
            events=events,
            termination_hook_of=termination_hook_of,
            settled=self._settled,
            restarted=self._waker("fire"),
            random_value=world.rng.random,
        )
        if "worker" in self.parts:
            self._begin_worker(events)
        if "scheduler" in self.parts:
            self._begin_scheduler()
        self._loop("promote", Promote(store, promoted=self._wake_worker).step)
        rescue = Rescue(
            store,
            self.settler,
            rescued=self._wake_worker,
            lease=timedelta(microseconds=world.lease),
            monotonic=world.clock.monotonic,
        )
        actor = self._loop("rescue", rescue.step)
        actor.looked = lambda: "expired_runs" in actor.did  # else it doubts the clock
        self._loop("prune", Prune(store, retention=self.retention, interval=5.0).step)

    def _begin_scheduler(self) -> None:
        ahead = LOOKS_AHEAD[(self.world.seed + self.number) % len(LOOKS_AHEAD)]
        fire = Fire(
            self.world.store,
            monotonic=self.world.clock.monotonic,
            fired=self._wake_worker,
            claim=self.worker.claim if "worker" in self.parts else None,
            pace=20.0,
            batch=self.batch,
            look_ahead=ahead,
            least_group=1,
        )
        actor = self._loop("fire", fire.step)
        actor.batch = self.batch
        actor.useful = lambda: self.world.recorder.has_due("fire", ahead=round(ahead * SECOND))
        # Else it doubts the clock, or writes what it planned ahead.
        actor.looked = lambda: fire.guard._doubted is None and "due_schedules" in actor.did

    def _begin_worker(self, events: Events) -> None:
        world = self.world
        self.worker = worker = Worker(
            world.store,
            worker_id=self.name,
            jobs=self.jobs,
            executors=self,
            settler=self.settler,
            events=events,
            target="",
            slots=self.slots,
            lease=timedelta(microseconds=world.lease),
        )
        ahead = world.rng.choice((0, 0, 1, 3))
        worker.pace.ahead = lambda now: ahead  # type: ignore[method-assign]
        worker._add_thread = self._refuse_thread  # type: ignore[method-assign]
        worker.claim.take_fired = worker.take  # what it leaves to a thread begins here at once
        worker.renew.monotonic = world.clock.monotonic
        worker.renew.renewed_at = world.clock.monotonic()
        self._loop("claim", worker.claim.step)
        self._loop("renew", worker.renew.step)
        self._loop("settle", self.settler.step)
        self._loop("watch", worker.watch)
        # Loops that are not simulated (beat, notes) have nobody to wake.
        worker.loops = defaultdict(Waker)
        worker.loops.update({name: Waker(self._waker(name)) for name in self.loops})
        self.settler.on_put(self._waker("settle"))

    def _refuse_thread(self) -> None:
        """It would act without the baton, and no handler here needs one."""
        raise Violation(f"{self.name} began a thread, though every handler runs without one")

    def _loop(self, role: str, step: Callable[[], float]) -> Actor:
        actor = Actor(f"{self.name}.{role}", step, role=role, process=self)
        actor.wake_at = self.world.clock.elapsed
        actor.useful = lambda: self._has_work(role)
        self.loops[role] = actor
        self.world.actors.append(actor)
        return actor

    def _has_work(self, role: str) -> bool:
        """Whether a step would do more than look."""
        world, recorder = self.world, self.world.recorder
        match role:
            case "claim":
                claim = self.worker.claim
                return claim.uncertain or (self.worker.free() > 0 and bool(recorder.queued()))
            case "settle":
                return bool(self.settler.unwritten())
            case "renew":
                since = world.clock.monotonic() - self.worker.renew.renewed_at
                return bool(self.worker._executions) and since * SECOND >= world.lease / 3 - SECOND
            case "watch":
                now = world.clock.monotonic()
                return any(
                    one.context.stop_reason is not None or (one.deadline or now + 1) <= now
                    for one in self.worker.executions()
                )
            case "promote":
                return recorder.has_due(role) or recorder.has_admissible()
            case "prune":
                ages, now = self.retention.ages, world.clock.now()
                return self.retention.keep_last == 0 and any(
                    run.finished_at < micros(now - ages[run.state])
                    for run in recorder.in_state(*TERMINAL)
                )
            case _:
                return recorder.has_due(role)

    def crash(self) -> None:
        """All threads end where they are; everything in memory is lost."""
        self._end()
        self.world.note(self.world.nobody, f"{self.name} is gone")
        delay = self.world.rng.randrange(2 * self.world.lease)
        self.world.at(self.world.clock.elapsed + delay, self.begin)

    def _end(self) -> None:
        self.alive = False
        for actor in (*self.loops.values(), *self.handlers):
            self.world.kill(actor)
        self.loops, self.handlers = {}, []

    def cut_off(self) -> None:
        """The network is gone for this process, and only for it."""
        world = self.world
        self.cut_off_until = until = world.clock.elapsed + world.rng.randrange(2 * world.lease)
        world.note(world.nobody, f"{self.name} is cut off until {until / SECOND:.6f}")

    def freeze(self) -> None:
        """As if stopped by a signal: nothing in it goes on, renewals included."""
        world = self.world
        until = world.clock.elapsed + world.rng.randrange(3 * world.lease)
        world.note(world.nobody, f"{self.name} is frozen until {until / SECOND:.6f}")
        for actor in (*self.loops.values(), *self.handlers):
            actor.frozen_until = until

    def stop(self) -> None:
        """A graceful stop without grace: claim nothing, release what runs, write it, end."""
        if self.stopping:
            return
        self.world.note(self.world.nobody, f"{self.name} stops")
        self.stopping = True
        if "worker" in self.parts:
            self.worker._stopping = True
            for execution in self.worker.executions():
                execution.finish(Outcome(kind="released", reason="the worker stopped"))
        for actor in list(self.loops.values()):
            self.stepped(actor)

    def stepped(self, actor: Actor) -> None:
        """While stopping: a loop ends with its step, the settle loop when all is written."""
        if not self.stopping or actor.role not in self.loops or actor.strand is not None:
            return
        if actor.role == "settle" and self.settler.unwritten():
            return
        self.world.kill(actor)
        del self.loops[actor.role]
        if not self.loops:
            self._end()
            self.world.note(self.world.nobody, f"{self.name} has stopped")
            self.world.at(self.world.clock.elapsed + SECOND, self.begin)

    def knows(self, seq: int, attempt: int) -> bool:
        """Whether it runs an attempt, or has an outcome of it to write."""
        unwritten = (*self.settler._pending, *self.settler._writing)
        return any(
            (one.run.seq, one.run.attempt) == (seq, attempt)
            for one in (*self.worker._executions, *unwritten)
        )

    # Waking

    def _waker(self, role: str) -> Callable[[], None]:
        def wake() -> None:
            if role in self.loops:
                self.loops[role].wake_at = self.world.clock.elapsed

        return wake

    def _wake_worker(self) -> None:
        self._waker("claim")()

    def _settled(self) -> None:
        self._waker("claim")()
        self._waker("promote")()

    def _listener(self, state: str) -> Callable[[RunEvent], None]:
        def hear(event: RunEvent) -> None:
            try:
                self.world.recorder.listener_told(event.run_id, event.attempt, state)
            except Violation as violation:  # whatever a listener raises is swallowed
                self.world.violation = violation

        return hear

    # An executor of every name, whose handlers need no thread

    def get(self, name: str) -> Process:
        return self

    def start(self, context: Context, done: Callable[[Outcome], None]) -> bool:
        self.world.recorder.handler_started(context.run_id, context.attempt)
        if len(self.handlers) >= self.slots:
            raise Violation(f"{self.name} has {self.slots} slots and runs more")
        handler = Handler(self, context, done)
        self.handlers.append(handler)
        self.world.actors.append(handler)
        return True

    def run(self, context: Context) -> Outcome:
        raise AssertionError("start takes them all")


class Handler(Actor):
    """User code: it ends at some later time, with some outcome, and may heed a stop."""

    plain = True

    def __init__(self, process: Process, context: Context, done: Callable[[Outcome], None]) -> None:
        world = process.world
        rng = world.rng
        name = f"{process.name}.handler"
        super().__init__(name, self._end, role="handler", process=process)
        self.context, self.done = context, done
        longest = rng.choice((SECOND, 3 * SECOND, world.lease, 3 * world.lease))
        longest = SECOND if world.draining else longest
        self.wake_at = world.clock.elapsed + rng.randrange(longest)
        self.outcome: Outcome | None = self._outcome(rng.choices(OUTCOMES, WEIGHTS)[0])
        if rng.random() < 0.7:
            context.on_stop(self._stop)

    def _outcome(self, kind: str) -> Outcome:
        assert self.process is not None
        world = self.process.world
        told = token(self.context.run_id, self.context.attempt)
        after = timedelta(seconds=world.rng.randrange(6))
        if world.draining:
            kind = "succeeded"
        match kind:
            case "succeeded":
                told_well = result(self.context.run_id, self.context.attempt)
                return Outcome(kind="succeeded", result=told_well)
            case "retry":
                return Outcome(kind="failed", error=told, after=after)
            case "failed":
                return Outcome(kind="failed", error=told)
            case "snoozed":
                return Outcome(kind="snoozed", after=after)
            case _:
                return Outcome(kind="cancelled", reason=told)

    def _stop(self, reason: StopReason) -> None:
        assert self.process is not None
        world = self.process.world
        self.outcome = None
        self.wake_at = min(self.wake_at, world.clock.elapsed + world.rng.randrange(SECOND))

    def _end(self) -> float:
        assert self.process is not None
        if self in self.process.handlers:
            self.process.handlers.remove(self)
        self.done(conclude(self.outcome, self.context))
        return 0.0
