"""One seed from beginning to end: draw a world, let it live, heal it, and see that it drains."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta

from rota.model.job import Job
from rota.model.retention import Retention
from rota.model.retry import Retry
from rota.model.schedule import Schedule
from rota.model.transitions import TERMINAL
from rota.storage import operations
from tests.simulation.actors import Process
from tests.simulation.chance import one_source_of_chance
from tests.simulation.clock import SECOND
from tests.simulation.drain import WORLD, drain
from tests.simulation.history import Failed, History, Violation
from tests.simulation.invariants import HEARD
from tests.simulation.people import Operator, Producer
from tests.simulation.world import Actor, Rates, World

Plant = Callable[[World], AbstractContextManager[None]]

ROUGH = (0.0, 0.5, 1.5, 3.0)  # a quarter of the seeds knows no faults
# Where a seed is especially unlucky: in about half of them nowhere.
SORE = ("", "", "", "", "", "settle", "settle", "claim", "fire", "enqueue", "renew", "read")


@dataclass(frozen=True, kw_only=True)
class Focus:
    """Draw a world where something rare is less rare; what is None is left to the seed."""

    rough: float | None = None
    sore: str | None = None
    crashes: bool = True
    alone: bool = False  # one process does it all
    sleepy: bool = False  # leases are short, and whoever is interrupted often sleeps past them
    jumpy: bool = False  # the clock is set again and again
    delays: bool = False  # schedules count from the end of their run
    operator: bool = False  # there is one, and it is busy
    herd: bool = False  # schedules have kin, and one is looked at
    punctual: bool = False  # time passes where it is waited for, and who fires has a worker


def simulate(seed: int, plant: Plant | None = None, focus: Focus | None = None) -> History:
    """The history of a seed; Failed if a promise was broken in it."""
    world = World(seed)
    planted = nullcontext() if plant is None else plant(world)
    with one_source_of_chance(seed, world.clock), planted:
        try:
            draw(world, focus or Focus())
            for _ in range(world.rng.choice((60, 150, 250))):
                world.tick()
            drain(world)
        except Violation as violation:
            raise Failed(seed, violation, world.history) from None
        finally:
            world.close()
    return world.history


# Drawing: seeds are short, so that many of them can differ


def draw(world: World, focus: Focus) -> None:
    rng = world.rng
    world.rates = draw_rates(rng, focus)
    world.lease = (4 if focus.sleepy else rng.choice((4, 6, 10, 20))) * SECOND
    world.max_lost = rng.choice((1, 2, 3))
    jobs = draw_jobs(rng)
    world.store.write(operations.put_jobs, list(jobs.values()))
    herd = focus.herd or world.seed % 4 == 1
    for number in range(rng.choice((0, 1, 2, 3)) or int(focus.punctual)):
        schedule = draw_schedule(world, f"s{number}", jobs, focus)
        for name in (schedule.name, f"{schedule.name}a", f"{schedule.name}b")[: 3 if herd else 1]:
            world.store.write(operations.put_schedule, replace(schedule, name=name), WORLD)
    draw_processes(world, jobs, focus)
    draw_people(world, jobs, focus)


def draw_rates(rng: random.Random, focus: Focus) -> Rates:
    rough = rng.choice(ROUGH) if focus.rough is None else focus.rough
    return Rates(
        switch=0.5 if focus.sleepy else rng.choice((0.0, 0.2, 0.5, 0.8)),
        freeze=0.2 if focus.sleepy else rng.choice((0.0, 0.05, 0.2)) * (not focus.punctual),
        crash=0.01 * rough * focus.crashes,
        away=0.02 * rough,
        unsure=0.02 * rough,
        sore=rng.choice(SORE) if focus.sore is None else focus.sore,
        advance=rng.choice((0.05, 0.15, 0.3)) * (not focus.punctual),
        leap=0.0 if focus.punctual else 0.25,
        freeze_process=0.006 * rough,
        cut_off=0.006 * rough,
        stop_process=0.004 * rough,
        step_clock=0.05 if focus.jumpy else rng.choice((0.0, 0.0, 0.01)) * rough,
    )


def draw_jobs(rng: random.Random) -> dict[str, Job]:
    retry = Retry(max_attempts=rng.choice((1, 2, 3)), delay=rng.choice((0, 1, 4)), jitter="1s")
    limit = rng.choice((1, 2))
    jobs = (
        Job(name="plain", retry=retry),
        Job(name="limited", retry=retry, concurrency_key="a", concurrency_limit=limit),
        Job(name=HEARD, retry=retry, executor="hearing", queue="side"),
        Job(name="timed", retry=retry, timeout=timedelta(seconds=3), source="api"),
    )
    return {job.name: job for job in jobs}


def draw_schedule(world: World, name: str, jobs: dict[str, Job], focus: Focus) -> Schedule:
    rng, now = world.rng, world.clock.now()
    job = jobs[rng.choice(list(jobs))]
    kinds = ("every", "cron") if focus.herd else ("cron", "every", "every", "once")
    kind = "every" if focus.delays else rng.choice(kinds)
    anchors = ("delay",) if focus.delays else ("rate",) if focus.herd else ("rate", "rate", "delay")
    match kind:
        case "cron":
            expr = rng.choice(("*/5 * * * * *", "7,31 * * * * *", "* * * * *"))
        case "every":
            expr = rng.choice(("5s", "7s", "12s"))
        case _:
            expr = (now + timedelta(seconds=rng.randrange(-5, 30))).isoformat()
    soon = now + timedelta(seconds=3)
    return Schedule(
        name=name,
        job=job.name,
        kind=kind,
        expr=expr,
        anchor=rng.choice(anchors) if kind == "every" else "rate",
        overlap=rng.choice(("queue", "wait", "skip", "allow")),
        overlap_key=None if focus.herd else rng.choice((None, job.overlap_key)),
        queue_max=rng.choice((None, 0, 2)),
        on_error=rng.choice(("next", "next", "retry", "pause")),
        pause_after=rng.choice((None, None, 2)),
        catch_up=rng.choice(("one", "none", "all")),
        catch_up_limit=rng.choice((1, 3)),
        misfire_grace=timedelta(seconds=rng.choice((0, 5, 20))),
        jitter=timedelta(seconds=0 if focus.herd else rng.choice((0, 0, 3))),
        first_run=soon if kind != "once" and rng.random() < 0.2 else None,
        ends_at=now + timedelta(seconds=60) if rng.random() < 0.1 else None,
        priority=rng.choice((None, None, 5)),
        retry=rng.choice((None, Retry(max_attempts=2, delay=timedelta(seconds=1)))),
    )


def draw_processes(world: World, jobs: dict[str, Job], focus: Focus) -> None:
    """One box, two of the same, or three with parts of their own."""
    rng = world.rng
    both, scheduler, worker = ("scheduler", "worker"), ("scheduler",), ("worker",)
    age = timedelta(seconds=rng.choice((1, 5, 60)))  # so short that runs vanish meanwhile
    retention = Retention(ages=dict.fromkeys(TERMINAL, age), keep_last=rng.choice((0, 0, 2)))
    shapes = ([both], [both, both], [both, scheduler, worker])
    shapes = shapes[:2] if focus.punctual else shapes
    for number, parts in enumerate(shapes[0] if focus.alone else rng.choice(shapes)):
        known = dict(jobs)
        if number and rng.random() < 0.3:
            del known[rng.choice(list(known))]
        process = Process(
            world,
            number,
            parts=parts,
            jobs=known,
            slots=rng.choice((1, 2, 4)) + 4 * focus.punctual,
            batch=1 if focus.herd else rng.choice((1, 2, 500)),
            retention=retention,
        )
        world.processes.append(process)


def draw_people(world: World, jobs: dict[str, Job], focus: Focus) -> None:
    rng = world.rng
    for number in range(rng.choice((1, 1, 2))):
        producer = Producer(world, jobs, pace=rng.choice((2, 10)) * SECOND)
        world.actors.append(Actor(f"producer {number}", producer.step, role="person"))
    if focus.operator or rng.random() < 0.7:
        operator = Operator(
            world,
            jobs,
            lambda name: draw_schedule(world, name, jobs, focus),
            pace=SECOND if focus.operator else rng.choice((2, 8)) * SECOND,
        )
        world.actors.append(Actor("operator", operator.step, role="person"))
