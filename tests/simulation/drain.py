"""After healing everything must come to its end: no fault, no person, and time goes on."""

from __future__ import annotations

from rota.model.transitions import PAUSED, TERMINAL
from rota.storage import operations
from rota.storage.operations.audit import Actor as Who
from tests.simulation.clock import SECOND
from tests.simulation.history import Violation
from tests.simulation.timetable import NEVER
from tests.simulation.world import World

WORLD = Who(by="world", via="simulation")
STALLED = 60  # rounds in which no row changed: then it never will
ROUNDS = 20_000
STILL_FIRING = 20  # ticks before the schedules are paused

TOLD = ("seq", "job", "state", "due_at", "attempt", "wanted_key", "worker_id", "lease_until")


def drain(world: World) -> None:
    """Heal the world and see it through."""
    _heal(world)
    for _ in range(STILL_FIRING):
        world.tick()
    for row in list(world.recorder.schedules.values()):
        world.store.write(operations.pause_schedule, row.name, None, WORLD)
    world.draining = True
    _see_through(world)
    _check_end(world)
    _check_delays(world)


def _see_through(world: World) -> None:
    changed_in, version = 0, 0
    for number in range(ROUNDS):
        if _is_drained(world):
            return
        if world.recorder.version != version:
            changed_in, version = number, world.recorder.version
        if number - changed_in > STALLED:
            break
        _round(world)
    raise Violation(f"it does not drain: {_left(world)}")


def _heal(world: World) -> None:
    world.rates.heal()
    world.end_glitch()
    for actor in list(world.actors):
        actor.frozen_until = 0
        if actor.role == "person":  # leaves after what is under way
            while actor.strand is not None:
                world.go_on(actor)
            world.actors.remove(actor)
    for process in world.processes:
        process.jobs.update(world.processes[0].jobs)
        process.cut_off_until = 0
    _resume_all(world)


def _resume_all(world: World) -> None:
    store, recorder = world.store, world.recorder
    for queue in list(recorder.queues):
        store.write(operations.resume_queue, queue, WORLD)
    store.write(operations.set_dispatch, True, None, WORLD)
    for run in recorder.in_state(PAUSED):
        store.write(operations.resume_run, run.id, None, WORLD)


def _is_drained(world: World) -> bool:
    paused = world.recorder.in_state(PAUSED)  # by a request that was on its way
    for run in paused:
        world.store.write(operations.resume_run, run.id, None, WORLD)
    return not paused and all(run.state in TERMINAL for run in world.recorder.runs.values())


def _round(world: World) -> None:
    """Who has something to do takes a step; if nobody has, time passes to where one has."""
    if not any(actor.useful() and actor.ready(world.clock.elapsed) for actor in world.actors):
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
    return "".join(
        "\n  " + " ".join(f"{name}={getattr(run, name)}" for name in TOLD)
        for run in world.recorder.runs.values()
        if run.state not in TERMINAL
    )


def _check_end(world: World) -> None:
    recorder = world.recorder
    if recorder.slots:
        raise Violation(f"all runs are over and slots are owned: {recorder.slots}")
    ended = {run_id for run_id, _ in recorder.ends}
    if lost := recorder.acknowledged - ended - recorder.removed:
        raise Violation(f"runs were acknowledged and never came to an end: {sorted(lost)}")
    # The recorder's copy is what the tables say: no change escaped the log.
    rows = world.engine.connection.execute("SELECT seq, state, attempt FROM _rota_runs")
    copy = [(run.seq, run.state, run.attempt) for run in world.recorder.runs.values()]
    if sorted(rows.fetchall()) != sorted(copy):
        raise Violation("the recorder lost track of the runs")


def _check_delays(world: World) -> None:
    """A schedule that counts from the end of its run goes on, whatever became of the run."""
    for row in list(world.recorder.schedules.values()):
        world.store.write(operations.resume_schedule, row.name, None, WORLD)
    for row in world.recorder.schedules.values():
        if row.next_fire_at == NEVER and row.enabled:
            raise Violation(f"{row.name} waits for a run that is over")
