"""A herd is fired by one plan, and leaves exactly what firing one by one leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from rota.flow import fire as flow
from rota.flow.counters import Counters
from rota.flow.fire import Fire
from rota.model.plan import FirePlan
from rota.model.retry import Retry
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.operations.firing import Fired
from rota.storage.store import Store
from tests.conformance.support import (
    ME,
    Place,
    VirtualClock,
    all_runs,
    claim,
    enqueue,
    fire,
    ledger,
    overwrite,
    plans,
    put_job,
    put_schedule,
    settle,
    slots,
    together,
)
from tests.support.operations import replace_operation

FEW = 6
MANY = 60


def put_herd(store: Store, count: int = FEW, **options: Any) -> list[Schedule]:
    """Schedules of one kin: made at one instant of a clock that stands still."""
    return [put_schedule(store, f"kin-{n}", args={"n": n}, **options) for n in range(count)]


def planned(store: Store) -> FirePlan:
    """The plan of the first one that is due."""
    return min(plans(store), key=lambda plan: plan.schedule.id)


def fire_group(store: Store, plan: FirePlan, ids: Sequence[int]) -> Fired:
    return store.write(
        operations.fire_group, plan, ids, store.read(operations.jobs_named, ["job"]).get("job")
    )


def rows_without(place: Place, table: str, own: Sequence[str]) -> list[dict[str, Any]]:
    """All rows of a table, without the columns that are each row's own."""
    connection = place.autocommit()
    cursor = connection.execute(f"SELECT * FROM {place.table(table)}")
    names = [column[0] for column in cursor.description]
    return [
        {name: value for name, value in zip(names, row, strict=True) if name not in own}
        for row in cursor.fetchall()
    ]


JOBS: dict[str, dict[str, Any]] = {
    "plain": {},
    "with policies": {
        "queue": "heavy", "priority": 7, "timeout": timedelta(minutes=5),
        "retry": Retry(max_attempts=4),
    },
    "with a key": {"concurrency_key": "tenant", "concurrency_limit": 2},
}  # fmt: skip
SCHEDULES: dict[str, dict[str, Any]] = {
    "every": {"overlap": "queue"},
    "that may overlap": {"overlap": "allow"},
    "cron": {"kind": "cron", "expr": "* * * * *", "timezone": "Europe/Berlin", "overlap": "skip"},
    "with options": {"priority": 3, "retry": Retry(max_attempts=9), "catch_up": "none"},
}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("kind", SCHEDULES)
def test_one_plan_makes_what_each_ones_own_would(
    store: Store, clock: VirtualClock, place: Place, kind: str, job: str
) -> None:
    put_job(store, **JOBS[job])
    herd = put_herd(store, **SCHEDULES[kind])
    assert herd[0].next_fire_at is not None
    clock.moment = herd[0].next_fire_at
    own = [plan for plan in plans(store) if plan.schedule.id in {one.id for one in herd[::2]}]
    plan = planned(store)
    assert fire(store, own) == len(own)
    fired = fire_group(store, plan, [one.id for one in herd[1::2]])
    assert fired.moved == {one.id for one in herd[1::2]}
    assert fired.runs == len(fired.moved)
    for table, own_columns in {
        "schedules": ("id", "name", "args", "registered"),
        "runs": ("seq", "id", "args", "overlap_key", "schedule_id", "created_by"),
        "occurrences": ("schedule_id", "run_id"),
        "slots": ("key", "owner_run"),
    }.items():
        rows = rows_without(place, table, own_columns)
        assert all(row == rows[0] for row in rows), table
    runs = all_runs(store)
    assert len(runs) == FEW
    names = {one.id: one.name for one in herd}
    for run in runs:
        assert run.schedule_id is not None
        name = names[run.schedule_id]
        assert run.created_by == f"schedule {name}"
        assert run.args == f'{{"n":{name.removeprefix("kin-")}}}'
        slot = None if kind == "that may overlap" else f"schedule {run.schedule_id}"
        assert run.overlap_key == slot
        assert slots(store, f"o/schedule {run.schedule_id}") == ([] if slot is None else [1])
        schedule = store.read(operations.schedule_named, name)
        assert [row["run_id"] for row in ledger(store, schedule)] == [run.id]


def test_only_those_of_one_group_are_found(store: Store, clock: VirtualClock) -> None:
    put_job(store)
    put_job(store, name="other")
    herd = put_herd(store, 2, overlap="queue", expr="60s")
    later = clock.after("1h")
    for name, value in {
        "job": "other", "kind": "cron", "expr": "1m", "timezone": "Europe/Berlin", "dst": "literal",
        "first_run": clock.after("60s"), "starts_at": clock(), "ends_at": later,
        "overlap": "allow", "overlap_key": "mine", "catch_up": "all", "catch_up_limit": 7,
        "misfire_grace": timedelta(seconds=1), "jitter": timedelta(seconds=1),
        "spread": timedelta(seconds=1), "priority": 4, "retry": Retry(max_attempts=2),
        "queue_max": 7, "on_error": "pause", "pause_after": 3,
    }.items():  # fmt: skip
        options = {"overlap": "queue", "expr": "60s", name: value}
        if name == "kind":
            options["expr"] = "* * * * *"
        if name == "first_run":
            options["expr"] = "61s"
        put_schedule(store, f"other-{name}", **options)
    delays = put_schedule(store, "other-anchor", expr="60s", anchor="delay", overlap="queue")
    for name in ("paused", "disabled"):
        put_schedule(store, name, overlap="queue", expr="60s", enabled=name != "disabled")
    store.write(operations.pause_schedule, "paused", None, ME)
    edited = put_schedule(store, "edited", overlap="queue", expr="60s")
    store.write(operations.put_schedule, replace(edited, pause_after=3), ME)
    odd = put_schedule(store, "odd", overlap="queue", expr="60s")
    overwrite(store, odd, args="[]")
    clock.advance("60s")
    for one in herd:
        assert store.peek(
            operations.due_group, store.read(operations.schedule_named, one.name), 10
        ) == [two.id for two in herd]
    assert store.peek(operations.due_group, herd[0], 1) == [herd[0].id]
    assert store.peek(operations.due_group, delays, 10) == [delays.id]


@pytest.mark.parametrize(
    "options",
    [
        {"overlap_key": "shared"},
        {"jitter": timedelta(seconds=1)},
        {"spread": timedelta(seconds=1)},
        {"anchor": "delay"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_schedules_whose_plans_are_their_own_are_no_group(
    store: Store, clock: VirtualClock, options: dict[str, Any]
) -> None:
    put_job(store)
    alike = put_herd(store, 2, overlap="queue", **options)
    clock.advance("10s")
    for schedule in alike:
        assert store.peek(
            operations.due_group, store.read(operations.schedule_named, schedule.name), 10
        ) == [schedule.id]
    keys = [plan.group_key for plan in plans(store)]
    assert len(set(keys)) == 2


def test_an_edit_that_changes_no_plan_keeps_a_schedule_in_its_group(
    store: Store, clock: VirtualClock
) -> None:
    put_job(store)
    first, second = put_herd(store, 2)
    store.write(operations.put_schedule, replace(second, args={"n": 7}, owner="another"), ME)
    clock.advance("10s")
    assert fire_group(store, planned(store), [first.id, second.id]).runs == 2
    assert {run.args for run in all_runs(store)} == {'{"n":0}', '{"n":7}'}


def test_what_has_changed_since_it_was_read_is_left_alone(
    store: Store, clock: VirtualClock
) -> None:
    put_job(store)
    herd = put_herd(store, overlap="queue")
    clock.advance("10s")
    plan = planned(store)
    moved, edited, paused, dropped, busy, free = herd
    assert fire(store, [one for one in plans(store) if one.schedule.id == moved.id]) == 1
    store.write(operations.put_schedule, replace(edited, pause_after=3), ME)
    store.write(operations.pause_schedule, paused.name, None, ME)
    store.write(operations.drop_schedule, dropped.name, None, ME)
    enqueue(store, overlap_key=f"schedule {busy.id}")
    store.write(operations.admit, [f"o/schedule {busy.id}"])
    fired = fire_group(store, plan, [one.id for one in herd])
    assert fired.moved == {free.id}
    assert fired.outcomes == {"fired": 1}
    again = fire_group(store, plan, [one.id for one in herd])
    assert (again.moved, again.runs) == (frozenset(), 0)
    assert len(all_runs(store, schedule_id=free.id)) == 1


@pytest.mark.parametrize("state", ["held", "waiting"])
def test_who_stands_in_line_comes_first(
    store: Store, clock: VirtualClock, place: Place, state: str
) -> None:
    put_job(store)
    herd = put_herd(store, 2, overlap="queue")
    clock.advance("10s")
    plan = planned(store)
    (owner,) = fire_group(store, plan, [herd[0].id]).moved
    key = f"o/schedule {owner}"
    place.execute(f"DELETE FROM {place.table('slots')}")
    place.execute(
        f"UPDATE {place.table('runs')} SET state = '{state}', wanted_key = '{key}', "
        "queued_at = NULL, attempt = 0"
    )
    place.execute(f"DELETE FROM {place.table('occurrences')}")
    overwrite(store, herd[0], next_fire_at=plan.cursor)
    assert fire_group(store, plan, [one.id for one in herd]).moved == {herd[1].id}


def test_what_the_ledger_knows_is_not_fired_again(
    store: Store, clock: VirtualClock, place: Place
) -> None:
    put_job(store)
    herd = put_herd(store, overlap="allow")
    clock.advance("10s")
    plan = planned(store)
    fire_group(store, plan, [herd[0].id])
    overwrite(store, herd[0], next_fire_at=plan.cursor)
    fire_group(store, plan, [one.id for one in herd])
    assert len(all_runs(store, schedule_id=herd[0].id)) == 1
    ticks = Fire(store, monotonic=lambda: clock().timestamp(), fired=lambda: None)
    ticks.step()
    assert len(all_runs(store)) == FEW
    assert len(all_runs(store, schedule_id=herd[0].id)) == 1


def test_a_clock_that_was_set_back_fires_nothing(store: Store, clock: VirtualClock) -> None:
    put_job(store)
    herd = put_herd(store)
    clock.advance("10s")
    plan = planned(store)
    clock.moment -= timedelta(seconds=1)
    assert not fire_group(store, plan, [one.id for one in herd]).moved


def test_many_at_once_make_one_run_each(store: Store, clock: VirtualClock, place: Place) -> None:
    put_job(store)
    herd = put_herd(store, MANY, overlap="queue")
    clock.advance("10s")
    plan, ids = planned(store), [one.id for one in herd]
    stores = [place.open() for _ in range(4)]
    made = together(*[lambda one=one: fire_group(one, plan, ids).runs for one in stores])
    made.append(fire_group(store, plan, ids).runs)
    assert sum(made) == MANY
    assert len(all_runs(store)) == MANY


# The flow


class Watched:
    """How many were fired by which way."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.own: list[int] = []
        self.group_runs: list[int] = []
        self.read: list[int] = []

        def watched(plain: Callable[..., Fired], *asked: Any) -> Fired:
            fired = plain(*asked)
            self.own.append(fired.runs)
            return fired

        def watched_group(plain: Callable[..., Fired], *asked: Any) -> Fired:
            fired = plain(*asked)
            self.group_runs.append(fired.runs)
            return fired

        def watched_read(plain: Callable[..., list[int]], *asked: Any) -> list[int]:
            found = plain(*asked)
            self.read.append(len(found))
            return found

        replace_operation(monkeypatch, store, operations.due_group, watched_read)
        replace_operation(monkeypatch, store, operations.fire, watched)
        replace_operation(monkeypatch, store, operations.fire_group, watched_group)


@pytest.fixture
def watched(store: Store, monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setattr(flow, "LOOK", 10)
    monkeypatch.setattr(flow, "HERD_RUNS", 20)
    put_job(store)
    return Watched(store, monkeypatch)


def ticks(store: Store, clock: VirtualClock, **options: Any) -> Fire:
    settings = {"monotonic": lambda: clock().timestamp(), "fired": lambda: None, "least_group": 5}
    return Fire(store, **{**settings, **options})


def step_on(fire: Fire) -> int:
    """Until nothing is left that must be done at once; how many steps."""
    steps = 1
    while fire.step() == 0.0:
        steps += 1
        assert steps < 200, "comes to no end"
    return steps


def test_a_herd_is_fired_by_the_plans_of_one_look(
    store: Store, clock: VirtualClock, watched: Watched
) -> None:
    put_herd(store, MANY)
    put_schedule(store, "alone", priority=5)
    clock.advance("10s")
    counters, woken = Counters(), []
    step_on(ticks(store, clock, counters=counters, fired=lambda: woken.append(1)))
    assert sorted(watched.group_runs) == [10, 20, 20]
    assert (sum(watched.group_runs), sum(watched.own)) == (MANY - 10, 11)
    assert len(woken) == len([made for made in watched.own + watched.group_runs if made])
    assert dict(counters.counts().fires) == {"fired": MANY + 1}
    assert [
        len(all_runs(store, schedule_id=one.id))
        for one in store.read(operations.list_schedules, limit=99)
    ] == [1] * (MANY + 1)
    clock.advance("10s")
    for run in claim(store, 100):
        settle(store, run)
    step_on(ticks(store, clock))
    assert len(all_runs(store)) == 2 * (MANY + 1)


def test_groups_are_found_in_a_longer_look(
    store: Store, clock: VirtualClock, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "LOOK", 4)  # too few to see a group
    for number in range(MANY):
        put_schedule(store, f"same-{number}", priority=number % 3)
    clock.advance("10s")
    step_on(ticks(store, clock, batch=MANY // 2))
    assert len(all_runs(store)) == MANY
    assert sum(watched.group_runs) > 0


def test_due_schedules_of_one_plan_stand_together(store: Store, clock: VirtualClock) -> None:
    put_job(store)
    for number in range(12):
        put_schedule(store, f"same-{number}", priority=number % 3)
    clock.advance("10s")
    for newest in (False, True):
        due = store.peek(operations.due_schedules, 12, newest=newest).schedules
        priorities = [schedule.priority for schedule in due]
        assert sum(before != after for before, after in pairwise(priorities)) == 2


def test_a_herd_whose_slots_are_taken_is_decided_one_by_one(
    store: Store, clock: VirtualClock, watched: Watched
) -> None:
    herd = put_herd(store, MANY, overlap="skip")
    for _ in range(2):
        clock.advance("10s")
        step_on(ticks(store, clock))
    assert watched.group_runs[-3:] == [0, 0, 0]
    assert watched.group_runs.count(0) == 3  # tried once
    for one in herd:
        rows = ledger(store, store.read(operations.schedule_named, one.name))
        assert [row["outcome"] for row in rows] == ["fired", "skipped"]


def test_a_herd_that_another_process_fires_as_well_stays_a_herd(
    store: Store, clock: VirtualClock, watched: Watched, place: Place
) -> None:
    put_herd(store, MANY)
    clock.advance("10s")
    other = place.open()
    fire = ticks(store, clock)
    assert fire.step() == 0.0
    plan = fire.herds[0].plan
    assert fire.step() == 0.0
    fire_group(other, plan, other.peek(operations.due_group, plan.schedule, MANY))
    while fire.herds:
        fire.step()
    assert not fire.scattered
    assert len(all_runs(store)) == MANY


def test_what_comes_due_together_is_a_herd_at_its_instant(
    store: Store, clock: VirtualClock, watched: Watched
) -> None:
    put_herd(store, MANY)
    fire = ticks(store, clock, look_ahead=0.02, pace=3600.0)
    clock.advance("9.99s")
    assert 0 < fire.step() <= 0.011
    clock.advance("10ms")
    assert fire.step() == 0.0  # it is time
    fire.step()
    assert watched.own == [10]
    step_on(fire)
    assert sum(watched.group_runs) == MANY - 10


def test_a_plan_for_a_herd_grows_old(store: Store, clock: VirtualClock, watched: Watched) -> None:
    put_herd(store, MANY)
    clock.advance("10s")
    fire = ticks(store, clock)
    assert [fire.step(), fire.step()] == [0.0, 0.0]
    assert len(watched.group_runs) == 1
    clock.advance("1s")
    assert fire.step() == 0.0
    assert len(watched.group_runs) == 1
    step_on(fire)
    assert len(all_runs(store)) == MANY
    assert watched.read == [MANY - 10, 0]  # at the end about those that the look fired itself


def test_a_herd_keeps_nobody_waiting_that_is_on_time(
    store: Store, clock: VirtualClock, watched: Watched
) -> None:
    put_herd(store, MANY)
    soon = put_schedule(store, "soon", expr="10.1s", priority=5)
    clock.advance("10s")
    fire = ticks(store, clock)
    assert [fire.step(), fire.step()] == [0.0, 0.0]
    clock.advance("400ms")
    assert [fire.step(), fire.step()] == [0.0, 0.0]
    assert len(all_runs(store, schedule_id=soon.id)) == 1
    assert len(all_runs(store)) < MANY
    step_on(fire)
    assert len(all_runs(store)) == MANY + 1


def test_a_herd_that_took_too_long_in_vain_is_not_tried_again(
    store: Store, clock: VirtualClock, watched: Watched
) -> None:
    put_herd(store, MANY, overlap="skip")
    clock.advance("10s")
    step_on(ticks(store, clock))
    clock.advance("10s")
    fire = ticks(store, clock)
    assert [fire.step(), fire.step()] == [0.0, 0.0]
    clock.advance("400ms")
    fire.step()
    assert fire.scattered
    step_on(fire)
    assert watched.group_runs.count(0) == 1


def test_seqs_that_were_taken_back_are_not_trusted(
    store: Store, clock: VirtualClock, place: Place
) -> None:
    """As after a copy of the file that left SQLite's own table out."""
    if place.engine != "sqlite":
        pytest.skip("only SQLite counts in a table that anybody can write to")
    put_job(store)
    herd = put_herd(store)
    for _ in range(20):
        enqueue(store)
    place.execute("DELETE FROM _rota_runs WHERE seq < 15")
    place.execute("DELETE FROM sqlite_sequence WHERE name = '_rota_runs'")
    clock.advance("10s")
    assert fire_group(store, planned(store), [one.id for one in herd]).runs == FEW
    for one in herd:
        (run,) = all_runs(store, schedule_id=one.id)
        assert [row["run_id"] for row in ledger(store, one)] == [run.id]
        assert store.read(operations.schedule_named, one.name).next_fire_at == clock.after("10s")


def test_numbers_of_runs_that_are_gone_are_not_given_again(
    store: Store, clock: VirtualClock, place: Place
) -> None:
    put_job(store)
    herd = put_herd(store)
    for _ in range(20):
        enqueue(store)
    gone = max(run.seq for run in all_runs(store))
    place.execute(f"DELETE FROM {place.table('runs')}")
    clock.advance("10s")
    assert fire_group(store, planned(store), [one.id for one in herd]).runs == FEW
    for one in herd:
        (run,) = all_runs(store, schedule_id=one.id)
        assert run.seq > gone
        assert [row["run_id"] for row in ledger(store, one)] == [run.id]
        assert store.read(operations.schedule_named, one.name).next_fire_at == clock.after("10s")


def test_a_tick_with_a_limit_fires_no_herd(
    store: Store, clock: VirtualClock, watched: Watched
) -> None:
    put_herd(store, MANY)
    clock.advance("10s")
    fire = ticks(store, clock, max_fires_per_tick=10)
    assert fire.step() == 1.0
    assert len(all_runs(store)) == 10
    assert watched.group_runs == []
