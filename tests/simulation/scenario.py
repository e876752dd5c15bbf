"""One seed from beginning to end: draw a world, let it live, heal it, and see that it drains."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from unittest.mock import patch
from uuid import UUID

from rota.model.job import Job
from rota.model.retry import Retry
from rota.model.schedule import Schedule
from rota.flow.prune import Retention
from rota.model.transitions import TERMINAL
from rota.storage.protocol import Actor as Who
from tests.simulation.actors import Process
from tests.simulation.clock import SECOND
from tests.simulation.history import History, Violation
from tests.simulation.invariants import HEARD
from tests.simulation.people import Operator, Producer
from tests.simulation.world import Actor, Rates, World

WORLD = Who(by="world", via="simulation")
ROUNDS = 400  # of all loops, until a healed world must have drained
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
        world.processes.append(
            Process(
                world, number, parts=mine, jobs=jobs, slots=rng.choice((1, 2, 4)),
                batch=rng.choice((1, 2, 500)), retention=retention,
            )  # fmt: skip
        )
    for number in range(rng.choice((1, 1, 2))):
        producer = Producer(world, jobs, pace=rng.choice((2, 10)) * SECOND)
        world.actors.append(Actor(f"producer {number}", producer.step, role="person"))
    if rng.random() < 0.7:
        draw = lambda name: draw_schedule(world, name, jobs)  # noqa: E731
        operator = Operator(world, jobs, draw, pace=rng.choice((2, 8)) * SECOND)
        world.actors.append(Actor("operator", operator.step, role="person"))
    for _ in range(rng.choice((60, 150, 250))):
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


# Healing


def drain(world: World) -> None:
    """Everything works again and nobody asks for more: then everything must come to its end."""
    world.rates.heal()
    world.end_glitch()
    world.actors = [actor for actor in world.actors if actor.role != "person" or _end_of(world, actor)]
    for actor in world.actors:
        actor.frozen_until = 0
    _resume_all(world)
    for _ in range(20):
        world.tick()  # schedules go on firing for a while
    for row in list(world.recorder.schedules.values()):
        world.store.pause_schedule(row.name, None, WORLD)
    world.draining = True
    for _ in range(ROUNDS):
        if _drained(world):
            break
        _round(world)
    else:
        raise Violation("it does not drain: " + _left(world))
    if world.recorder.slots:
        raise Violation(f"all runs are over and slots are owned: {world.recorder.slots}")
    _check_copy(world)


def _end_of(world: World, person: Actor) -> bool:
    """Let a person finish what is under way, then leave."""
    while person.strand is not None:
        world.go_on(person)
    return False


def _resume_all(world: World) -> None:
    store, recorder = world.store, world.recorder
    for queue in list(recorder.queues):
        store.resume_queue(queue, WORLD)
    store.set_dispatch(True, None, WORLD)
    for run in recorder.in_state("paused"):
        store.resume_run(run.id, None, WORLD)


def _drained(world: World) -> bool:
    paused = world.recorder.in_state("paused")  # by a request that was on its way
    for run in paused:
        world.store.resume_run(run.id, None, WORLD)
    return not paused and all(
        run.state in TERMINAL for run in world.recorder.runs.values()
    )


def _round(world: World) -> None:
    """Time passes to where something becomes due, and the loops with something to do take a step."""
    elapsed = world.clock.elapsed
    if not any(actor.useful() and actor.ready(elapsed) for actor in world.actors):
        world.clock.advance_to(_next_event(world))
    world.ring()
    for actor in list(world.actors):
        if actor not in world.actors or not actor.ready(world.clock.elapsed):
            continue
        if actor.plain:
            world.go_on(actor)
        elif actor.useful() or world.rng.random() < 0.2:
            world.finish_step(actor)


def _next_event(world: World) -> int:
    """When a loop has something to do again. To look before costs nothing but our time."""
    elapsed, offset = world.clock.elapsed, world.clock.offset
    found = [actor.wake_at for actor in world.actors if actor.plain or actor.useful()]
    found += [instant - offset for instant in world.recorder.instants()]
    found += [world.next_alarm() or 0]
    return min((at for at in found if at > elapsed), default=elapsed + SECOND)


def _left(world: World) -> str:
    told = ("seq", "job", "state", "due_at", "attempt", "wanted_key", "worker_id", "lease_until")
    return "".join(
        "\n  " + " ".join(f"{name}={getattr(run, name)}" for name in told)
        for run in world.recorder.runs.values()
        if run.state not in TERMINAL
    )


def _check_copy(world: World) -> None:
    """The recorder's copy is what the tables say: no change escaped the log."""
    rows = world.engine.connection.execute("SELECT seq, state, attempt FROM _rota_runs ORDER BY seq")
    copy = [(run.seq, run.state, run.attempt) for _, run in sorted(world.recorder.runs.items())]
    if rows.fetchall() != copy:
        raise Violation("the recorder lost track of the runs")


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
