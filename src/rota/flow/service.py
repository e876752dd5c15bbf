"""All loops of one process: scheduler, worker, and the housekeeping that needs no leader."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from rota.errors import Invalid
from rota.executors.protocol import Targets
from rota.flow.answer import Answer, MakePlan
from rota.flow.counters import Counters
from rota.flow.events import Events
from rota.flow.fire import Fire
from rota.flow.learn import Learn
from rota.flow.loop import WORKER_FIRST_SECONDS, Loop, stop_loops
from rota.flow.promote import Promote
from rota.flow.prune import Prune
from rota.flow.rescue import Rescue
from rota.flow.settle import FindTerminationHook, Settler
from rota.flow.worker import Executors, Worker
from rota.model.job import Job
from rota.model.retention import Retention
from rota.storage.store import Store

PARTS = ("scheduler", "worker")
WEB = "web"  # a part of a process, and none of the service: it only looks, and asks
LOOP_STOP_SECONDS = 10.0
LOOK_AHEAD_SECONDS = 0.02
# After a start what is due comes first: what somebody asked for or left behind can wait a moment,
# and what is old longer.
PROMOTE_AFTER_SECONDS = 0.05
ANSWER_AFTER_SECONDS, RESCUE_AFTER_SECONDS, PRUNE_AFTER_SECONDS = 0.15, 0.2, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """What a process runs, and how. `target` has the databases of jobs."""

    parts: Sequence[str] = PARTS
    slots: int = 10
    queues: Sequence[str] = ()
    lease: timedelta = timedelta(seconds=30)
    max_lost: int = 3
    origin: str | None = None
    target: str | Targets = ""
    retention: Retention = field(default_factory=Retention)
    enabled: Callable[[], bool] = lambda: True  # whether schedules fire
    pace: timedelta = timedelta(seconds=60)
    max_fires_per_tick: int = 0
    start_delay: timedelta = timedelta(0)
    # False leaves runs of other jobs alone: nothing is promoted, rescued or pruned (`rota bench`).
    housekeeping: bool = True

    def __post_init__(self) -> None:
        for part in self.parts:
            if part not in PARTS:
                raise Invalid(f"part {part!r} is unknown; use {', '.join(PARTS)}")


class Service:
    """Started once, stopped once. `jobs` is live: what is registered later is served too. With
    `foreign`, SQL jobs that statements made are added to it, and their names there. `planner`
    brings what reads the statements of control rows; without it nobody here answers them."""

    def __init__(
        self,
        store: Store,
        options: ServiceOptions,
        *,
        jobs: MutableMapping[str, Job],
        executors: Executors,
        events: Events,
        termination_hook_of: FindTerminationHook,
        foreign: set[str] | None = None,
        on_stuck: Callable[[], None] = lambda: None,
        counters: Counters | None = None,
        planner: Callable[[], MakePlan] | None = None,
    ) -> None:
        self.store, self.events = store, events
        # With a wake channel a look a second is a safety net; without one it is the way.
        interval = 1.0 if store.has_wake_channel else 0.2
        settler = Settler(
            store,
            jobs=jobs,
            max_lost=options.max_lost,
            events=events,
            termination_hook_of=termination_hook_of,
            settled=self.wake_settled,
            restarted=self.wake_schedulers,
            counters=counters,
        )
        self.worker: Worker | None = None
        if "worker" in options.parts:
            self.worker = Worker(
                store,
                worker_id=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
                jobs=jobs,
                executors=executors,
                settler=settler,
                events=events,
                target=options.target,
                slots=options.slots,
                queues=options.queues,
                lease=options.lease,
                origin=options.origin,
                interval=interval,
                on_stuck=on_stuck,
                learn=self._learn(jobs, foreign, options.target),
            )
        promote = Promote(store, promoted=self.wake_workers, interval=interval)
        rescue = Rescue(
            store,
            settler,
            rescued=self._rescued,
            lease=options.lease,
            monotonic=time.monotonic,
        )
        prune = Prune(store, retention=options.retention)
        self.loops: dict[str, Loop] = {}
        if options.housekeeping:
            self.loops = {
                "promote": Loop("promote", promote.step, after_seconds=PROMOTE_AFTER_SECONDS),
                "rescue": Loop("rescue", rescue.step, after_seconds=RESCUE_AFTER_SECONDS),
                "prune": Loop(
                    "prune", prune.step, after_seconds=min(PRUNE_AFTER_SECONDS, prune.interval)
                ),
            }
        if planner is not None and options.housekeeping:
            answer = Answer(store, planner=planner, interval=interval)
            self.loops["answer"] = Loop("answer", answer.step, after_seconds=ANSWER_AFTER_SECONDS)
        if "scheduler" in options.parts:
            fire = Fire(
                store,
                monotonic=time.monotonic,
                fired=self.wake_worker if self.worker is not None else store.notify,
                tell=store.notify if self.worker is not None else lambda: None,
                claim=self.worker.claim if self.worker is not None else None,
                enabled=options.enabled,
                pace=options.pace.total_seconds() if store.has_wake_channel else 1.0,
                max_fires_per_tick=options.max_fires_per_tick,
                start_delay=options.start_delay.total_seconds(),
                look_ahead=LOOK_AHEAD_SECONDS,
                counters=counters,
            )
            self.loops["fire"] = Loop("fire", fire.step)
        self._unlisten: Callable[[], None] = lambda: None

    def _learn(
        self, jobs: MutableMapping[str, Job], foreign: set[str] | None, targets: str | Targets
    ) -> Learn | None:
        if foreign is None:
            return None
        known = None if isinstance(targets, str) else targets
        return Learn(self.store, jobs=jobs, foreign=foreign, targets=known)

    def start(self) -> None:
        self.events.start()
        # Before the first look: what others do from here on is heard.
        self._unlisten = self.store.listen(self._heard)
        if self.worker is not None:
            self.worker.start()
        for loop in self.loops.values():
            loop.start()

    def stop(self, grace: float | None) -> None:
        """Fire nothing more, then let the worker end its runs within `grace` seconds."""
        if self.worker is not None:
            self.worker.stop_claiming()  # first: a slow database may keep the loops for a while
        self._unlisten()
        stop_loops(self.loops.values(), LOOP_STOP_SECONDS)
        if self.worker is not None:
            self.worker.stop(grace)
        self.events.stop(LOOP_STOP_SECONDS)

    def wake_worker(self) -> None:
        """There is work: the worker here looks at once."""
        if self.worker is not None:
            self.worker.wake()

    def wake_workers(self) -> None:
        """The same, and those elsewhere by the wake channel."""
        self.wake_worker()
        self.store.notify()

    def wake_settled(self) -> None:
        """A settle may have handed on a slot, or set a run to be tried again."""
        self.wake_worker()
        if "promote" in self.loops:
            self.loops["promote"].wake()

    def wake_schedulers(self) -> None:
        """A schedule may be due earlier than they know, here and elsewhere."""
        if "fire" in self.loops:
            self.loops["fire"].wake()
        self.store.notify()

    def _rescued(self) -> None:
        """Runs, slots or schedules that somebody left behind go on."""
        self.wake_all()
        self.store.notify()

    def _heard(self) -> None:
        """Another process changed something, most often it made a run: the worker looks before the
        other loops get in its way."""
        if self.worker is not None:
            self.worker.look_around()
            time.sleep(WORKER_FIRST_SECONDS)
        self._wake_loops()

    def wake_all(self) -> None:
        """Something changed that this process did not do itself."""
        if self.worker is not None:
            self.worker.look_around()
        self._wake_loops()

    def _wake_loops(self) -> None:
        for name in ("fire", "promote", "answer"):
            if name in self.loops:
                self.loops[name].wake()

    def health(self) -> dict[str, str | None]:
        """The last error of each loop; None where it works."""
        loops = self.loops | (self.worker.loops if self.worker is not None else {})
        return {
            name: loop.last_error if loop.alive else "the loop has ended"
            for name, loop in loops.items()
        }
