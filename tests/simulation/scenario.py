"""One seed from beginning to end: draw a world, let it live, heal it, and see that it drains."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from unittest.mock import patch
from uuid import UUID

from rota.flow.prune import Retention
from rota.model.job import Job
from rota.model.retry import Retry
from rota.model.schedule import Schedule
from tests.simulation.actors import Process
from tests.simulation.clock import SECOND
from tests.simulation.drain import WORLD, drain
from tests.simulation.history import History, Violation
from tests.simulation.invariants import HEARD
from tests.simulation.people import Operator, Producer
from tests.simulation.world import Actor, Rates, World

Plant = Callable[[World], AbstractContextManager[None]]


class Failed(Exception):
    """A seed that broke a promise, with the end of its history."""

    def __init__(self, seed: int, violation: Violation, history: History) -> None:
        super().__init__(
            f"seed {seed}: {violation}\n\n{history.tail()}\n\n"
            f"seed {seed}: {violation}\nreplay it: python -m tests.simulation {seed}"
        )
        self.seed, self.violation = seed, violation


def simulate(seed: int, plant: Plant | None = None) -> History:
    """The history of a seed; Failed if a promise was broken in it."""
    world = World(seed)
    with _one_source_of_chance(world), plant(world) if plant is not None else nullcontext():
        try:
            live(world)
            drain(world)
        except Violation as violation:
            raise Failed(seed, violation, world.history) from None
        finally:
            world.close()
    return world.history


# Drawing


def live(world: World) -> None:
    rng = world.rng
    rough = rng.choice((0.0, 0.3, 1.0, 2.0))  # a quarter of the seeds knows no faults
    world.rates = Rates(
        switch=rng.choice((0.0, 0.2, 0.5, 0.8)),
        freeze=rng.choice((0.0, 0.05, 0.2)),
        crash=0.01 * rough,
        away=0.02 * rough,
        unsure=0.02 * rough,
        advance=rng.choice((0.05, 0.15, 0.3)),
        freeze_process=0.006 * rough,
        stop_process=0.004 * rough,
        step_clock=rng.choice((0.0, 0.0, 0.01)) * rough,
    )
    world.lease = rng.choice((4, 6, 10, 20)) * SECOND
    world.max_lost = rng.choice((1, 2, 3))
    jobs = draw_jobs(rng)
    world.store.put_jobs(list(jobs.values()))
    for number in range(rng.choice((0, 1, 2, 3))):
        world.store.put_schedule(draw_schedule(world, f"s{number}", jobs), WORLD)
    retention = Retention(
        ages=dict.fromkeys(
            ("succeeded", "dead", "cancelled"), timedelta(seconds=rng.choice((1, 5, 60)))
        ),
        keep_last=rng.choice((0, 0, 2)),
    )
    parts = rng.choice(
        (
            [("scheduler", "worker")],
            [("scheduler", "worker"), ("scheduler", "worker")],
            [("scheduler",), ("scheduler", "worker"), ("worker",)],
        )
    )
    for number, mine in enumerate(parts):
        known = dict(jobs)
        if number and rng.random() < 0.3:
            del known[rng.choice(list(known))]
        world.processes.append(
            Process(
                world,
                number,
                parts=mine,
                jobs=known,
                slots=rng.choice((1, 2, 4)),
                batch=rng.choice((1, 2, 500)),
                retention=retention,
            )
        )
    for number in range(rng.choice((1, 1, 2))):
        producer = Producer(world, jobs, pace=rng.choice((2, 10)) * SECOND)
        world.actors.append(Actor(f"producer {number}", producer.step, role="person"))
    if rng.random() < 0.7:
        draw = lambda name: draw_schedule(world, name, jobs)  # noqa: E731
        operator = Operator(world, jobs, draw, pace=rng.choice((2, 8)) * SECOND)
        world.actors.append(Actor("operator", operator.step, role="person"))
    for _ in range(rng.choice((50, 120, 200))):
        world.tick()


def draw_jobs(rng: random.Random) -> dict[str, Job]:
    retry = Retry(max_attempts=rng.choice((1, 2, 3)), delay=rng.choice((0, 1, 4)), jitter="1s")
    jobs = (
        Job(name="plain", retry=retry),
        Job(name="limited", retry=retry, concurrency_key="a", concurrency_limit=rng.choice((1, 2))),
        Job(name=HEARD, retry=retry, executor="hearing", queue="side"),
        Job(name="timed", retry=retry, timeout=timedelta(seconds=3), source="api"),
    )
    return {job.name: job for job in jobs}


def draw_schedule(world: World, name: str, jobs: dict[str, Job]) -> Schedule:
    rng, now = world.rng, world.clock.now()
    job = jobs[rng.choice(list(jobs))]
    kind, expr = rng.choice(
        (
            ("cron", rng.choice(("*/5 * * * * *", "7,31 * * * * *", "* * * * *"))),
            ("every", rng.choice(("5s", "7s", "12s"))),
            ("every", rng.choice(("5s", "7s", "12s"))),
            ("once", (now + timedelta(seconds=rng.randrange(-5, 30))).isoformat()),
        )
    )
    overlap = rng.choice(("queue", "wait", "skip", "allow"))
    return Schedule(
        name=name,
        job=job.name,
        kind=kind,
        expr=expr,
        anchor=rng.choice(("rate", "rate", "delay")) if kind == "every" else "rate",
        overlap=overlap,
        overlap_key=rng.choice((None, job.overlap_key)),
        queue_max=rng.choice((None, 0, 2)),
        catch_up=rng.choice(("one", "none", "all")),
        catch_up_limit=rng.choice((1, 3)),
        misfire_grace=timedelta(seconds=rng.choice((0, 5, 20))),
        jitter=timedelta(seconds=rng.choice((0, 0, 3))),
        first_run=now + timedelta(seconds=3) if rng.random() < 0.2 and kind != "once" else None,
        ends_at=now + timedelta(seconds=60) if rng.random() < 0.1 else None,
        priority=rng.choice((None, None, 5)),
        retry=rng.choice((None, Retry(max_attempts=2, delay=timedelta(seconds=1)))),
    )


# Chance


@contextmanager
def _one_source_of_chance(world: World) -> Iterator[None]:
    """The flow asks the seed for ids, luck and time; housekeeping is quick enough to be seen."""
    chance = random.Random(world.seed + 1)
    monotonic = type("Time", (), {"monotonic": staticmethod(world.clock.monotonic)})

    def new_run_id() -> str:
        return str(UUID(int=chance.getrandbits(128), version=4))

    with (
        patch("rota.flow.fire.random", chance),
        patch("rota.flow.enqueue.new_run_id", new_run_id),
        patch("rota.flow.run.time", monotonic),
        patch("rota.flow.worker.time", monotonic),
        patch("rota.executors.context.time", monotonic),
        patch("rota.flow.rescue.SWEEP_EVERY", 3),
        patch("rota.flow.prune.LEDGER_AGE", timedelta(seconds=20)),
    ):
        yield
