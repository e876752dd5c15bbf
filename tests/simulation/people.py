"""Producers that enqueue and an operator who interferes, through the same doors as users."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rota.errors import Conflict, Invalid, Unknown
from rota.flow.control import Control
from rota.flow.enqueue import Enqueue, Options
from rota.model.job import Job
from rota.model.retention import Retention
from rota.model.schedule import Schedule
from rota.model.transitions import HELD, PAUSED, PENDING, RUNNING, STATES, TERMINAL
from rota.storage.operations.audit import Actor as Who
from tests.simulation.actors import termination_hook_of
from tests.simulation.clock import SECOND

if TYPE_CHECKING:
    from tests.simulation.world import World

DrawSchedule = Callable[[str], Schedule]


class Producer:
    """Enqueues, and asks again with the same key where it got no answer."""

    def __init__(self, world: World, jobs: dict[str, Job], pace: int) -> None:
        self.world, self.jobs, self.pace = world, jobs, pace
        self.enqueue = Enqueue(world.store, enqueued=lambda: None, created_by="producer")
        self.unanswered: tuple[Job, Options] | None = None

    def step(self) -> float:
        rng = self.world.rng
        job, options = self.unanswered or self._draw()
        self.unanswered = (job, options) if options.key is not None else None
        count = 1 if options.key is not None else rng.choice((1, 1, 2, 4))
        self.enqueue.many(job, [{}] * count, options)
        self.unanswered = None
        return rng.randrange(self.pace) / SECOND

    def _draw(self) -> tuple[Job, Options]:
        rng = self.world.rng
        job = self.jobs[rng.choice(list(self.jobs))]
        keyed, limited = rng.random() < 0.3, rng.random() < 0.4
        return job, Options(
            delay=rng.choice((None, None, None, 1, 4)),
            key=f"key {rng.randrange(4)}" if keyed else None,
            key_ttl=rng.choice((None, None, 5)) if keyed else None,
            priority=rng.choice((None, None, 0, 5)),
            concurrency_key=rng.choice(("a", "b")) if limited else None,
            concurrency_limit=rng.choice((1, 2, 3)) if limited else None,
            max_attempts=rng.choice((None, 1, 2)),
        )


class Operator:
    """Does anything at any time; what is not possible is refused, and that is fine."""

    def __init__(
        self, world: World, jobs: dict[str, Job], draw_schedule: DrawSchedule, pace: int
    ) -> None:
        self.world, self.jobs, self.draw_schedule, self.pace = world, jobs, draw_schedule, pace
        self.control = Control(
            world.store,
            actor=Who(by="operator", via="simulation"),
            termination_hook_of=termination_hook_of,
            retention=Retention(keep_last=0),
        )

    def step(self) -> float:
        rng = self.world.rng
        act = rng.choice(self._acts())
        with suppress(Conflict, Invalid, Unknown):
            act()
        return rng.randrange(self.pace) / SECOND

    def _acts(self) -> list[Callable[[], Any]]:
        control = self.control
        acts: list[Callable[[], Any]] = [
            lambda: control.cancel(self._run(*PENDING, PAUSED)),
            lambda: control.cancel(self._run(RUNNING)),
            lambda: control.cancel(self._run(HELD)),
            lambda: control.redo(self._run(*TERMINAL)),
            lambda: control.pause_run(self._run(*PENDING, RUNNING)),
            lambda: control.resume_run(self._run(PAUSED)),
            lambda: control.resume_run(self._run(PAUSED)),
            lambda: control.delete(self._run(*STATES)),
            lambda: control.pause_queue(self._queue()),
            lambda: control.resume_queue(self._queue()),
            lambda: control.resume_queue(self._queue()),
            lambda: control.pause_dispatch(),
            lambda: control.resume_dispatch(),
            lambda: control.resume_dispatch(),
            lambda: control.trigger(self.world.rng.choice(list(self.jobs))),
        ]
        if self.world.recorder.schedules:
            acts += [
                lambda: control.pause(self._schedule()),
                lambda: control.resume(self._schedule()),
                lambda: control.resume(
                    self._schedule(), catch_up=self.world.rng.choice((None, "one", "all"))
                ),
                lambda: control.trigger(self._schedule(), force=self.world.rng.random() < 0.3),
                self._edit,
                self._switch,
                lambda: control.drop(self._schedule()),
            ]
        if len(self.world.recorder.schedules) < 3:
            acts.append(self._create)
        return acts

    def _run(self, *states: str) -> str:
        found = self.world.recorder.in_state(*states)
        if not found:
            raise Unknown("no such run")
        run_id: str = self.world.rng.choice(found).id
        return run_id

    def _queue(self) -> str:
        return self.world.rng.choice(sorted({job.queue for job in self.jobs.values()}))

    def _schedule(self) -> str:
        name: str = self.world.rng.choice(list(self.world.recorder.schedules.values())).name
        return name

    def _edit(self) -> None:
        self.control.put_schedule(self.draw_schedule(self._schedule()))

    def _create(self) -> None:
        self.control.put_schedule(self.draw_schedule(f"s{self.world.rng.randrange(4)}"))

    def _switch(self) -> None:
        """`enabled` as a file would say it, and nothing else."""
        schedule = self.control.schedule(self._schedule())
        self.control.put_schedule(replace(schedule, enabled=not schedule.enabled))
