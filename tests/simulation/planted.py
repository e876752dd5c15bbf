"""Bugs put in on purpose, to see that the simulation finds them. For tests only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

import msgspec

from rota.flow.settle import Settler
from rota.flow.worker import Worker
from rota.model.job import Job
from rota.model.outcome import Outcome, Settlement, settle
from rota.model.plan import FirePlan, OccurrenceRange, plan_fire
from rota.model.run import ClaimedRun
from rota.model.schedule import WAITING_FOR_RUN, Schedule
from rota.storage import operations
from rota.storage.engine import Transaction
from rota.storage.operations import firing, slots
from rota.storage.operations.claiming import ClaimRequest
from rota.storage.operations.delays import Occurrence, restart_delay
from rota.storage.operations.firing import Fired, advances
from tests.simulation.scenario import Focus, Plant
from tests.simulation.store import WatchedStore
from tests.simulation.world import World

UNSURE = Focus(rough=3.0, sore="settle", crashes=False, alone=True, sleepy=True)
INTERFERED = Focus(operator=True)
HERD = Focus(operator=True, herd=True)


@dataclass(frozen=True)
class Bug:
    """How to put it in, and the worlds in which it shows soon enough for a test."""

    plant: Plant
    focus: Focus


PLANTED: dict[str, Bug] = {}

Patching = Callable[[World], Iterator[None]]


def plant(focus: Focus | None = None) -> Callable[[Patching], Patching]:
    def register(bug: Patching) -> Patching:
        name = bug.__name__.replace("_", " ")
        PLANTED[name] = Bug(contextmanager(bug), focus or Focus())
        return bug

    return register


def reword(world: World, statement: str, old: str, new: str) -> None:
    text = world.engine.statements[statement]
    assert old in text, f"{statement} does not say {old!r} any more"
    world.engine.statements[statement] = text.replace(old, new)


# Fire


@plant()
def fire_in_two_transactions(world: World) -> Iterator[None]:
    """Insert the runs, then advance the cursor."""

    def insert(tx: Transaction, plans: Sequence[FirePlan], jobs: Any) -> int:
        made, ledger = firing._admit(tx, plans, jobs)
        new = tx.changed("insert_occurrences", ledger)
        if new == len(ledger):
            tx.many("insert_fired_runs", made)
        return new

    def fire(
        store: WatchedStore, plans: Sequence[FirePlan], jobs: Mapping[str, Job], _: Any
    ) -> Fired:
        def in_two() -> Fired:
            made = store.engine.write("fire", lambda tx: insert(tx, plans, jobs))
            store.engine.write("fire", lambda tx: tx.many("advance_schedules", advances(plans)))
            return Fired(frozenset(plan.schedule.id for plan in plans), {"fired": made})

        fired: Fired = store.asking(operations.fire, in_two, plans, jobs)
        return fired

    with patch("rota.flow.fire.fire", fire):
        yield


@plant()
def cursor_moved_without_comparing(world: World) -> Iterator[None]:
    reword(world, "advance_schedules", "AND x.next_fire_at = :cursor_at", "")
    yield


@plant(HERD)
def herd_fired_whatever_its_schedules_say(world: World) -> Iterator[None]:
    reword(
        world,
        "free_in_group",
        "s.enabled = 1 AND s.paused = 0 AND s.next_fire_at = :cursor_at",
        "true",
    )
    reword(world, "free_in_group", "AND s.plan_key = :plan_key", "")
    yield


@plant(Focus(punctual=True, operator=True))
def fire_that_claims_what_it_made_whoever_is_in_line(world: World) -> Iterator[None]:
    def claim(tx: Transaction, asks: ClaimRequest) -> list[tuple[Any, ...]]:
        queued = "SELECT seq FROM _rota_runs WHERE state = 'queued' ORDER BY seq DESC LIMIT 1"
        seqs = [seq for (seq,) in world.engine.connection.execute(queued)]
        lease_seconds = asks.lease.total_seconds()
        tx.tuples("claim_runs", seqs=seqs, worker_id=asks.worker_id, lease_seconds=lease_seconds)
        return tx.tuples("claimed_runs", seqs=seqs)

    with patch("rota.storage.operations.firing.claim_rows", claim):
        yield


@plant()
def cursor_computed_from_the_local_clock(world: World) -> Iterator[None]:
    def plan(schedule: Schedule, now: datetime) -> FirePlan:
        process = world.current.process
        ahead = timedelta(seconds=7 * process.number if process is not None else 0)
        planned = plan_fire(schedule, now)
        if planned.next_fire_at is None or schedule.delays:
            return planned
        return msgspec.structs.replace(planned, next_fire_at=schedule.next_after(now + ahead))

    with patch("rota.flow.fire.plan_fire", plan):
        yield


@plant()
def catch_up_off_by_one(world: World) -> Iterator[None]:
    def shorten(stretch: OccurrenceRange) -> OccurrenceRange:
        return msgspec.structs.replace(stretch, count=(stretch.count or 2) - 1)

    def plan(schedule: Schedule, now: datetime) -> FirePlan:
        planned = plan_fire(schedule, now)
        return msgspec.structs.replace(planned, ranges=tuple(map(shorten, planned.ranges)))

    with patch("rota.flow.fire.plan_fire", plan):
        yield


@plant(INTERFERED)
def resume_that_replays(world: World) -> Iterator[None]:
    def plan(schedule: Schedule, now: datetime) -> tuple[datetime | None, OccurrenceRange | None]:
        return schedule.next_fire_at, None

    with patch("rota.storage.operations.schedules.plan_resume", plan):
        yield


@plant(INTERFERED)
def edit_that_unpauses(world: World) -> Iterator[None]:
    reword(world, "update_schedule", "SET job = :job", "SET paused = 0, job = :job")
    yield


@plant()
def prune_that_empties_the_ledger(world: World) -> Iterator[None]:
    """Without it a cursor that was led back fires again what has been pruned, too."""

    def fold_ledger(tx: Transaction, schedule_id: int, **options: object) -> int:
        tx.text("DELETE FROM _rota_occurrences WHERE schedule_id = :id", {"id": schedule_id})
        return 0

    with patch.object(operations, "fold_ledger", fold_ledger):
        yield


# Exactly at the instant


@plant()
def schedule_due_only_after_its_instant(world: World) -> Iterator[None]:
    reword(world, "due_schedules", "next_fire_at <= (SELECT :now", "next_fire_at < (SELECT :now")
    yield


@plant()
def run_due_only_after_its_instant(world: World) -> Iterator[None]:
    reword(world, "promote_runs", "due_at <= (SELECT :now)", "due_at < :now")
    yield


@plant()
def lease_over_only_after_its_instant(world: World) -> Iterator[None]:
    reword(world, "expired_runs", "lease_until <= (SELECT :now)", "lease_until < :now")
    yield


# Leases


@plant()
def settle_without_fence(world: World) -> Iterator[None]:
    reword(world, "settle_runs", "AND r.state = 'running' AND r.attempt = :attempt", "")
    reword(world, "succeed_runs", "AND attempt = 1 AND state = 'running'", "")
    yield


@plant()
def settle_fenced_by_the_worker_name(world: World) -> Iterator[None]:
    def name() -> str:
        process = world.current.process
        return process.name if process is not None else ""

    world.engine.connection.create_function("sim_worker", 0, name)
    reword(
        world, "settle_runs", "AND r.attempt = :attempt", "AND (:lost OR worker_id = sim_worker())"
    )
    yield


@plant()
def renew_without_fence(world: World) -> Iterator[None]:
    reword(world, "renew_runs", "AND r.state = 'running' AND r.attempt = :attempt", "")
    yield


@plant()
def rescue_that_does_not_count(world: World) -> Iterator[None]:
    def uncounted(run: ClaimedRun, outcome: Outcome, **options: Any) -> Settlement:
        decided = settle(run, outcome, **options)
        return (
            msgspec.structs.replace(decided, lost=run.lost) if outcome.kind == "lost" else decided
        )

    with patch("rota.flow.settle.settle", uncounted):
        yield


@plant()
def outcome_forgotten_while_it_is_not_written(world: World) -> Iterator[None]:
    """A claim without an answer lets go of a run whose handler has ended already."""

    def held(worker: Worker) -> list[int]:
        return [one.run.seq for one in worker.executions()]

    with patch.object(Worker, "held", held):
        yield


@plant(replace(UNSURE, alone=False))
def two_attempts_of_a_run_settled_as_one(world: World) -> Iterator[None]:
    """A group holds the late outcome of a lost attempt and the outcome of the next one."""
    with (
        patch("rota.flow.settle._latest", list),
        patch("rota.storage.operations.settling._latest", list),
    ):
        yield


@plant(UNSURE)
def group_written_in_part_and_told_again(world: World) -> Iterator[None]:
    """A group that failed in the middle is settled, and told, from its beginning again."""
    write = Settler._write

    def write_a_copy(settler: Settler, settlements: list[Settlement], **options: Any) -> list[int]:
        return write(settler, list(settlements), **options)

    with patch.object(Settler, "_write", write_a_copy):
        yield


@plant(Focus(delays=True, operator=True))
def delay_counted_from_another_run(world: World) -> Iterator[None]:
    """A run that is done again ends, and the schedule takes it for the one it waits for."""

    def restart(tx: Transaction, over: Collection[Occurrence]) -> set[Occurrence]:
        ids = [schedule_id for schedule_id, occurrence in over if occurrence is not None]
        for row in tx.all("delay_schedules", ids=ids, waiting_at=WAITING_FOR_RUN):
            restart_delay(tx, row["id"], row["expr"])
        return set()

    with (
        patch("rota.storage.operations.settling.restart_delays", restart),
        patch("rota.storage.operations.runs.restart_delays", restart),
    ):
        yield


@plant(Focus(delays=True, operator=True))
def delay_that_waits_for_a_cancelled_run(world: World) -> Iterator[None]:
    with patch("rota.storage.operations.runs.restart_delays", lambda tx, over: set()):
        yield


@plant(Focus(delays=True, operator=True))
def delay_that_waits_for_a_skipped_run(world: World) -> Iterator[None]:
    with patch("rota.storage.operations.firing.restart_delay", lambda tx, schedule_id, expr: None):
        yield


# Slots


@plant()
def slot_not_handed_on(world: World) -> Iterator[None]:
    """Neither settle, nor admit, nor the sweeper gives a free slot to who waits for it."""
    plain = slots.admit

    def admit(tx: Transaction, keys: Any) -> int:
        asked = world.current.asked
        idle = asked is not None and asked.verb in ("settle", "admit", "sweep")
        return 0 if idle else plain(tx, keys)

    with (
        patch("rota.storage.operations.settling.admit", admit),
        patch.object(operations, "admit", admit),
        patch.object(slots, "admit", admit),
    ):
        yield
