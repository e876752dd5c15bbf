"""Fire: each occurrence becomes exactly one run, whoever fires and whenever they die."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.errors import Invalid
from rota.flow.fire import REFUSED_PAUSE, Fire
from rota.model.plan import FirePlan, plan_fire
from rota.model.retry import Retry
from rota.model.run import occurrence_id
from rota.model.schedule import WAITING_FOR_RUN, Schedule
from rota.storage import operations
from rota.storage.operations.firing import Broken
from rota.storage.store import Store
from tests.conformance.support import (
    BEGINNING,
    ME,
    Place,
    VirtualClock,
    all_runs,
    claim_one,
    corrupt_job,
    enqueue,
    fire,
    ledger,
    new_run,
    outcomes,
    overwrite,
    plans,
    put_job,
    put_schedule,
    settle,
    slots,
    states,
    tick,
    together,
)

CASES = json.loads((Path(__file__).parents[1] / "data" / "cron_cases.json").read_text())["cases"]
CURSOR_CASES = [
    pytest.param(case, id=case["note"][:40]) for case in CASES if case["semantics"] == "cursor"
]
SECONDS = timedelta(seconds=1)


def repeat(store: Store, clock: VirtualClock, times: int) -> list[int]:
    """The runs made by each of `times` ticks, 10 seconds apart."""
    made = []
    for _ in range(times):
        clock.advance("10s")
        made.append(tick(store))
    return made


# One run per occurrence


def test_an_occurrence_becomes_one_run(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store)
    clock.advance("10s")
    assert tick(store) == 1
    (run,) = all_runs(store)
    assert run.id == occurrence_id(schedule.id, clock())
    assert (run.state, run.schedule_id, run.occurrence) == ("queued", schedule.id, clock())
    (row,) = ledger(store, schedule)
    assert (row["outcome"], row["run_id"], row["count"]) == ("fired", run.id, 1)
    assert store.read(operations.schedule_named, "schedule").next_fire_at == clock.after("10s")
    assert store.read(operations.schedule_named, "schedule").last_fired_at == clock()


def test_nothing_fires_before_its_time(store: Store, clock: VirtualClock) -> None:
    put_schedule(store)
    clock.advance("9.999999s")
    assert tick(store) == 0
    clock.advance("1us")
    assert tick(store) == 1


@pytest.mark.parametrize("overlap", ["skip", "allow"])
def test_a_plan_made_ahead_waits_when_the_clock_is_set_back(
    store: Store, clock: VirtualClock, overlap: str
) -> None:
    put_schedule(store, overlap=overlap)
    clock.advance("10s")
    made = plans(store)
    clock.moment -= timedelta(microseconds=1)
    assert fire(store, made) == 0
    assert all_runs(store) == []
    clock.advance("1us")
    assert fire(store, made) == 1


@pytest.mark.parametrize("overlap", ["skip", "allow"])
def test_an_edit_that_leaves_the_cursor_wins_over_a_plan_made_before(
    store: Store, clock: VirtualClock, overlap: str
) -> None:
    put_schedule(store, overlap=overlap)
    clock.advance("10s")
    old = plans(store)
    put_schedule(store, overlap=overlap, args={"edited": True})
    assert fire(store, old) == 0
    assert tick(store) == 1
    (run,) = all_runs(store)
    assert json.loads(run.args) == {"edited": True}
    assert store.read(operations.schedule_named, "schedule").next_fire_at == clock.after("10s")


def test_a_plan_fired_by_two_stores_makes_one_run(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    schedule = put_schedule(store)
    other = place.open()
    clock.advance("10s")
    mine, theirs = plans(store), plans(other)
    assert [fire(store, mine), fire(other, theirs)] == [1, 0]
    assert len(all_runs(store)) == len(ledger(store, schedule)) == 1


def test_a_plan_fired_by_many_at_once_makes_one_run(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    for number in range(10):
        put_schedule(store, f"schedule-{number}")
    clock.advance("10s")
    stores = [place.open() for _ in range(4)]
    made = together(*[lambda one=one: tick(one) for one in stores])
    assert sum(made) == 10
    assert len({run.schedule_id for run in all_runs(store)}) == len(all_runs(store)) == 10


def test_an_old_plan_changes_nothing(store: Store, clock: VirtualClock) -> None:
    put_schedule(store)
    clock.advance("10s")
    old = plans(store)
    fire(store, old)
    clock.advance("10s")
    tick(store)
    before = store.read(operations.schedule_named, "schedule")
    assert fire(store, old) == 0
    assert store.read(operations.schedule_named, "schedule") == before


def test_the_cursor_never_goes_back(store: Store, clock: VirtualClock) -> None:
    put_schedule(store)
    repeat(store, clock, 3)
    cursor = store.read(operations.schedule_named, "schedule").next_fire_at
    clock.moment = BEGINNING + 15 * SECONDS
    assert tick(store) == 0
    assert store.read(operations.schedule_named, "schedule").next_fire_at == cursor


@pytest.mark.parametrize("pruned", [False, True], ids=["the run exists", "the run was pruned"])
def test_the_ledger_stops_a_doubled_occurrence(
    store: Store, clock: VirtualClock, pruned: bool
) -> None:
    schedule = put_schedule(store)
    put_schedule(store, "neighbour")
    clock.advance("10s")
    tick(store)
    for run in store.write(
        operations.claim, "worker", queues=[], jobs=["job"], limit=9, lease=SECONDS
    ):
        settle(store, run)
    if pruned:
        clock.advance("1s")
        assert (
            store.write(operations.prune_runs, "succeeded", age_seconds=0, keep_last=0, limit=9)
            == 2
        )
    clock.moment = BEGINNING + 20 * SECONDS
    overwrite(store, schedule, next_fire_at=BEGINNING + 10 * SECONDS)
    assert tick(store) == 1  # the neighbour's
    assert outcomes(store, schedule) == ["fired"]
    assert store.read(operations.schedule_named, "schedule").next_fire_at == clock()
    assert tick(store) == 1  # the occurrence that was really due
    assert outcomes(store, schedule) == ["fired", "fired"]


def test_due_schedules_come_in_pages_oldest_first(store: Store, clock: VirtualClock) -> None:
    for number in (3, 1, 2):
        put_schedule(store, f"schedule-{number}", expr=f"{number}s")
    assert store.peek(operations.next_fire_at) == (clock(), clock.after("1s"))
    clock.advance("5s")
    page = store.peek(operations.due_schedules, 2)
    assert [schedule.name for schedule in page.schedules] == ["schedule-1", "schedule-2"]
    assert page.full
    assert page.now == clock()
    assert not store.peek(operations.due_schedules, 4).full
    newest = store.peek(operations.due_schedules, 2, newest=True)
    assert [schedule.name for schedule in newest.schedules] == ["schedule-3", "schedule-2"]


# Schedules that must not fire


def test_a_paused_schedule_is_not_due(store: Store, clock: VirtualClock) -> None:
    put_schedule(store)
    store.write(operations.pause_schedule, "schedule", None, ME)
    clock.advance("1h")
    assert tick(store) == 0
    assert store.peek(operations.next_fire_at) == (clock(), None)


def test_a_disabled_schedule_is_not_due(store: Store, clock: VirtualClock) -> None:
    put_schedule(store, enabled=False)
    clock.advance("1h")
    assert tick(store) == 0


@pytest.mark.parametrize("change", ["pause", "disable", "drop", "edit"])
def test_a_change_after_the_plan_wins(store: Store, clock: VirtualClock, change: str) -> None:
    schedule = put_schedule(store)
    clock.advance("10s")
    planned = plans(store)
    match change:
        case "pause":
            store.write(operations.pause_schedule, "schedule", None, ME)
        case "disable":
            put_schedule(store, enabled=False)
        case "drop":
            store.write(operations.drop_schedule, "schedule", None, ME)
        case "edit":
            put_schedule(store, expr="30s")
    assert fire(store, planned) == 0
    assert all_runs(store) == []
    abandoned = ["missed"] if change == "edit" else []
    assert [row["outcome"] for row in ledger(store, schedule)] == abandoned


def test_a_schedule_that_cannot_be_read_is_parked_and_others_fire(
    store: Store, clock: VirtualClock
) -> None:
    bad = put_schedule(store, "bad")
    put_schedule(store, "good")
    overwrite(store, bad, timezone="Nowhere/Land")
    clock.advance("10s")
    assert tick(store) == 1
    assert store.read(operations.overview)["schedules"]["broken"] == 1
    assert store.peek(operations.due_schedules, 10).broken == []


def test_a_parked_schedule_says_why(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store)
    clock.advance("10s")
    moved = Broken(schedule.id, clock.after("1s"), 0, "another cursor")
    assert store.write(operations.disable_broken_schedules, [moved]) == set()
    assert store.read(operations.schedule_named, "schedule").error is None
    edited = Broken(schedule.id, clock(), 1, "edited meanwhile")
    assert store.write(operations.disable_broken_schedules, [edited]) == set()
    assert store.read(operations.schedule_named, "schedule").error is None
    broken = Broken(schedule.id, clock(), 0, "no such zone")
    assert store.write(operations.disable_broken_schedules, [broken]) == {schedule.id}
    parked = store.read(operations.schedule_named, "schedule")
    assert (parked.next_fire_at, parked.error, parked.state) == (None, *["no such zone"] * 2)
    assert tick(store) == 0


@pytest.mark.parametrize("readable", [True, False])
def test_a_broken_schedule_that_somebody_holds_keeps_no_other_waiting(
    store: Store,
    clock: VirtualClock,
    place: Place,
    readable: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if place.engine != "postgres":
        pytest.skip("nobody holds one row there")
    bad = put_schedule(store, "bad", first_run=clock.after("9s"))
    put_schedule(store, "good")
    if readable:
        monkeypatch.setattr("rota.flow.fire.plan_fire", unless_bad)
    else:
        overwrite(store, bad, timezone="Nowhere/Land")
    holder = place.begin()
    holder.execute("SELECT rota.pause_schedule('bad')")
    clock.advance("10s")
    ticks = Fire(store, monotonic=lambda: clock().timestamp(), fired=lambda: None)
    assert ticks.step() == 0.0
    assert [run.created_by for run in all_runs(store)] == ["schedule good"]
    assert [ticks.step(), ticks.step()] == [REFUSED_PAUSE] * 2  # without haste
    holder.rollback()
    assert ticks.step() > REFUSED_PAUSE
    assert store.read(operations.overview)["schedules"]["broken"] == 1
    assert caplog.text.count("schedule bad cannot be planned") == readable  # told once


def unless_bad(schedule: Schedule, now: datetime, room: int) -> FirePlan:
    if schedule.name == "bad":
        raise OverflowError("too far")
    return plan_fire(schedule, now, room)


def test_a_once_schedule_stays_as_a_finished_row(store: Store, clock: VirtualClock) -> None:
    put_schedule(store, kind="once", expr=clock.after("10s").isoformat())
    assert repeat(store, clock, 3) == [1, 0, 0]
    finished = store.read(operations.schedule_named, "schedule")
    assert finished.next_fire_at is None
    last, *_ = store.read(operations.list_schedule_changes, finished.id, before=10**9, limit=1)
    assert (last["action"], last["by"], last["reason"]) == (
        "finish",
        "rota",
        "no occurrence is left",
    )


def test_a_schedule_fires_up_to_its_end(store: Store, clock: VirtualClock) -> None:
    put_schedule(store, ends_at=clock.after("20s"), overlap="allow")
    assert repeat(store, clock, 4) == [1, 1, 0, 0]
    assert store.read(operations.schedule_named, "schedule").next_fire_at is None


# What the run is


def test_a_run_takes_the_jobs_policies(store: Store, clock: VirtualClock) -> None:
    put_job(
        store,
        queue="heavy",
        priority=7,
        timeout=timedelta(minutes=5),
        retry=Retry(max_attempts=4),
        concurrency_key="tenant",
        concurrency_limit=2,
    )
    put_schedule(store, args={"n": 1})
    clock.advance("10s")
    tick(store)
    (run,) = all_runs(store)
    assert (run.queue, run.priority, run.timeout) == ("heavy", 7, timedelta(minutes=5))
    assert (run.max_attempts, run.backoff, run.args) == (4, None, '{"n":1}')
    assert (run.concurrency_key, run.concurrency_limit) == ("tenant", 2)
    assert run.created_by == "schedule schedule"


def test_the_schedule_overrides_the_jobs_policies(store: Store, clock: VirtualClock) -> None:
    put_job(store, priority=7, retry=Retry(max_attempts=4))
    retry = Retry(max_attempts=2, backoff="none")
    put_schedule(store, priority=0, retry=retry)
    clock.advance("10s")
    tick(store)
    (run,) = all_runs(store)
    assert (run.priority, run.max_attempts) == (0, 2)
    assert run.backoff is not None
    assert Retry.from_dict(json.loads(run.backoff)) == retry


def test_a_run_of_a_job_nobody_has_put_waits_in_the_default_queue(
    store: Store, clock: VirtualClock
) -> None:
    put_schedule(store, job="unheard-of")
    clock.advance("10s")
    assert tick(store) == 1
    assert [(run.queue, run.state) for run in all_runs(store)] == [("default", "queued")]


def test_jitter_and_spread_put_the_run_later_and_the_cursor_nowhere_else(
    store: Store, clock: VirtualClock
) -> None:
    put_schedule(store, jitter=timedelta(seconds=5), spread=timedelta(seconds=5))
    clock.advance("10s")
    tick(store)
    (run,) = all_runs(store)
    assert run.state == "waiting"
    assert clock() < run.due_at < clock.after("10s")
    assert run.occurrence == clock()
    assert store.read(operations.schedule_named, "schedule").next_fire_at == clock.after("10s")
    clock.moment = run.due_at
    assert store.write(operations.promote, 10) == 1
    assert states(store, [run.id]) == ["queued"]


def test_a_fired_run_of_a_limited_job_waits_for_admit(store: Store, clock: VirtualClock) -> None:
    put_job(store, concurrency_key="tenant")
    put_schedule(store, "a", overlap="allow")
    put_schedule(store, "b", overlap="allow")
    clock.advance("10s")
    assert tick(store) == 2
    assert [run.state for run in all_runs(store)] == ["held", "held"]
    assert store.write(operations.admit, store.read(operations.held_keys, "", 10)) == 1
    assert [run.state for run in all_runs(store)] == ["queued", "held"]


# Overlap


def test_overlap_queue_makes_every_run_and_holds_them_in_line(
    store: Store, clock: VirtualClock
) -> None:
    schedule = put_schedule(store, overlap="queue")
    assert repeat(store, clock, 3) == [1, 1, 1]
    assert [run.state for run in all_runs(store)] == ["queued", "held", "held"]
    assert outcomes(store, schedule) == ["fired"] * 3
    settle(store, claim_one(store))
    assert [run.state for run in all_runs(store)] == ["succeeded", "queued", "held"]


def test_overlap_queue_drops_past_queue_max(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store, overlap="queue", queue_max=1)
    assert repeat(store, clock, 4) == [1, 1, 0, 0]
    assert outcomes(store, schedule) == ["fired", "fired", "dropped", "dropped"]


def test_queue_max_zero_still_accepts_a_run_that_can_start(
    store: Store, clock: VirtualClock
) -> None:
    schedule = put_schedule(store, overlap="queue", queue_max=0)
    assert repeat(store, clock, 2) == [1, 0]
    settle(store, claim_one(store))
    assert repeat(store, clock, 1) == [1]
    assert outcomes(store, schedule) == ["fired", "dropped", "fired"]


def test_overlap_wait_holds_one_run_and_merges_the_rest_into_it(
    store: Store, clock: VirtualClock
) -> None:
    schedule = put_schedule(store, overlap="wait")
    assert repeat(store, clock, 4) == [1, 1, 0, 0]
    first, held = all_runs(store)
    assert (first.missed_count, held.missed_count) == (1, 3)
    assert outcomes(store, schedule) == ["fired", "fired", "coalesced", "coalesced"]
    assert [row["run_id"] for row in ledger(store, schedule)] == [first.id, *[held.id] * 3]
    settle(store, claim_one(store))
    assert states(store, [held.id]) == ["queued"]


def test_overlap_skip_records_what_it_skipped(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store, overlap="skip")
    assert repeat(store, clock, 2) == [1, 0]
    settle(store, claim_one(store))
    assert repeat(store, clock, 1) == [1]
    assert outcomes(store, schedule) == ["fired", "skipped", "fired"]
    assert ledger(store, schedule)[1]["run_id"] is None


def test_overlap_allow_takes_no_slot(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store, overlap="allow")
    assert repeat(store, clock, 3) == [1, 1, 1]
    assert {run.state for run in all_runs(store)} == {"queued"}
    assert slots(store, f"o/schedule {schedule.id}") == []


def test_schedules_with_the_same_overlap_key_exclude_each_other(
    store: Store, clock: VirtualClock
) -> None:
    put_schedule(store, "a", overlap="skip", overlap_key="job job")
    put_schedule(store, "b", overlap="skip", overlap_key="job job")
    clock.advance("10s")
    assert tick(store) == 1
    assert slots(store, "o/job job") == [1]


def test_a_manual_run_of_the_job_takes_the_same_slot(store: Store, clock: VirtualClock) -> None:
    put_schedule(store, overlap="skip", overlap_key="job job")
    enqueue(store, overlap_key="job job")
    assert repeat(store, clock, 1) == [0]


def test_a_fire_does_not_pass_runs_that_wait_already(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    put_schedule(store, overlap="queue", overlap_key="job job")
    caller = place.begin()
    earlier = store.enqueue_on(caller, [new_run(overlap_key="job job")])[0].id
    caller.commit()
    assert repeat(store, clock, 1) == [1]
    assert [run.state for run in all_runs(store)] == ["held", "held"]
    store.write(operations.admit, ["o/job job"])
    assert states(store, [earlier]) == ["queued"]


@pytest.mark.parametrize(
    ("overlap", "made", "wanted"),
    [
        ("queue", 3, ["queued", "held", "held"]),
        ("wait", 2, ["queued", "held"]),
        ("skip", 1, ["queued"]),
        ("allow", 3, ["queued"] * 3),
    ],
)
def test_occurrences_of_one_tick_overlap_like_those_of_many(
    store: Store, clock: VirtualClock, overlap: str, made: int, wanted: list[str]
) -> None:
    schedule = put_schedule(store, overlap=overlap, catch_up="all")
    clock.advance("30s")
    assert tick(store) == made
    assert [run.state for run in all_runs(store)] == wanted
    assert sum(run.missed_count for run in all_runs(store)) == (1 if overlap == "skip" else 3)
    assert len(ledger(store, schedule)) == 3


# Catching up


@pytest.mark.parametrize("case", CURSOR_CASES)
def test_the_cursor_does_as_the_verified_cases(
    store: Store, clock: VirtualClock, case: dict[str, Any]
) -> None:
    clock.moment = datetime.fromisoformat(case["after"]).astimezone(UTC)
    put_schedule(
        store,
        kind="cron",
        expr=case["expr"],
        timezone=case["tz"],
        overlap="allow",
        catch_up=case["policy"],
        catch_up_limit=case.get("limit", 100),
    )
    for now in case["now"]:
        clock.moment = datetime.fromisoformat(now).astimezone(UTC)
        tick(store)
    fired = [run.occurrence for run in all_runs(store)]
    assert fired == [datetime.fromisoformat(moment) for moment in case["expect"]]


def test_a_cron_without_another_occurrence_is_finished(store: Store, clock: VirtualClock) -> None:
    clock.moment = datetime(2096, 2, 28, tzinfo=UTC)
    put_schedule(store, kind="cron", expr="0 0 29 2 *", ends_at="2100-01-01T00:00:00Z")
    clock.advance("1d")
    assert tick(store) == 1
    finished = store.read(operations.schedule_named, "schedule")
    assert (finished.next_fire_at, finished.error) == (None, None)


def test_catch_up_one_counts_what_its_run_stands_for(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store, catch_up="one")
    clock.advance("65s")
    assert tick(store) == 1
    (run,) = all_runs(store)
    assert (run.occurrence, run.missed_count) == (BEGINNING + 10 * SECONDS, 6)
    fired, coalesced = ledger(store, schedule)
    assert (fired["outcome"], fired["run_id"]) == ("fired", run.id)
    assert (coalesced["outcome"], coalesced["run_id"], coalesced["count"]) == (
        "coalesced",
        run.id,
        5,
    )
    assert coalesced["last_occurrence"] == BEGINNING + 60 * SECONDS


@pytest.mark.parametrize(
    ("options", "outcome"),
    [({"overlap": "skip"}, "skipped"), ({"overlap": "queue", "queue_max": 0}, "dropped")],
)
def test_what_a_skipped_run_would_have_stood_for_is_skipped_too(
    store: Store, clock: VirtualClock, options: dict[str, Any], outcome: str
) -> None:
    schedule = put_schedule(store, overlap_key="job job", **options)
    enqueue(store, overlap_key="job job")
    clock.advance("30s")
    assert tick(store) == 0
    rows = ledger(store, schedule)
    assert [(row["outcome"], row["count"], row["run_id"]) for row in rows] == [
        (outcome, 1, None),
        (outcome, 2, None),
    ]


def test_what_is_merged_counts_all_it_stands_for(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store, overlap="wait")
    repeat(store, clock, 2)
    clock.advance("30s")
    assert tick(store) == 0
    held = all_runs(store)[-1]
    assert held.missed_count == 4
    assert [(row["outcome"], row["run_id"]) for row in ledger(store, schedule)[1:]] == [
        ("fired", held.id),
        ("coalesced", held.id),
        ("coalesced", held.id),
    ]


def test_catch_up_none_records_what_it_missed(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store, catch_up="none", misfire_grace=timedelta(seconds=5))
    clock.advance("67s")
    assert tick(store) == 0
    (missed,) = ledger(store, schedule)
    assert (missed["outcome"], missed["count"], missed["run_id"]) == ("missed", 6, None)
    assert (
        store.read(operations.schedule_named, "schedule").next_fire_at == BEGINNING + 70 * SECONDS
    )
    assert store.read(operations.schedule_named, "schedule").last_fired_at is None


def test_catch_up_all_goes_on_from_tick_to_tick(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store, catch_up="all", catch_up_limit=2, overlap="allow")
    clock.advance("50s")
    assert [tick(store) for _ in range(4)] == [2, 2, 1, 0]
    assert outcomes(store, schedule) == ["fired"] * 5


# Delay schedules


def delay_schedule(store: Store, clock: VirtualClock) -> Schedule:
    """Fired once already."""
    schedule = put_schedule(store, anchor="delay")
    clock.advance("10s")
    assert tick(store) == 1
    return schedule


def test_a_delay_schedule_waits_for_the_end_of_its_run(store: Store, clock: VirtualClock) -> None:
    delay_schedule(store, clock)
    assert store.read(operations.schedule_named, "schedule").next_fire_at == WAITING_FOR_RUN
    clock.advance("1h")
    assert tick(store) == 0
    settle(store, claim_one(store))
    assert store.read(operations.schedule_named, "schedule").next_fire_at == clock.after("10s")
    assert repeat(store, clock, 1) == [1]


def test_a_delay_schedule_does_not_go_back_with_the_clock(
    store: Store, clock: VirtualClock
) -> None:
    delay_schedule(store, clock)
    fired_at = clock.moment
    clock.moment -= timedelta(minutes=1)
    settle(store, claim_one(store))
    assert store.read(operations.schedule_named, "schedule").next_fire_at == fired_at + timedelta(
        seconds=10
    )


def test_a_delay_schedule_waits_for_the_last_attempt(store: Store, clock: VirtualClock) -> None:
    delay_schedule(store, clock)
    retry = Retry(max_attempts=2, backoff="none")
    settle(store, claim_one(store), "failed", retry=retry)
    assert store.read(operations.schedule_named, "schedule").next_fire_at == WAITING_FOR_RUN
    store.write(operations.promote, 10)
    settle(store, claim_one(store), "failed", retry=retry)
    assert store.read(operations.schedule_named, "schedule").next_fire_at == clock.after("10s")


def test_a_run_that_stands_for_no_occurrence_does_not_restart_a_delay(
    store: Store, clock: VirtualClock
) -> None:
    schedule = delay_schedule(store, clock)
    (fired,) = all_runs(store)
    extra = enqueue(store, schedule_id=schedule.id, priority=1)
    run = claim_one(store)
    assert run.id == extra != fired.id
    settle(store, run)
    assert store.read(operations.schedule_named, "schedule").next_fire_at == WAITING_FOR_RUN


def test_a_job_that_cannot_be_read_delays_nobody(store: Store, clock: VirtualClock) -> None:
    put_job(store, "other")
    put_schedule(store, "bad", overlap="allow")
    put_schedule(store, "good", job="other")
    corrupt_job(store)
    clock.advance("10s")
    assert tick(store) == 1
    assert [run.job for run in all_runs(store)] == ["other"]
    parked = store.read(operations.schedule_named, "bad")
    assert parked.status == "BROKEN"
    assert "job 'job': its row cannot be read" in str(parked.error)
    assert store.peek(operations.due_schedules, 10).broken == []
    put_job(store, queue="mended")
    put_schedule(store, "bad", overlap="allow")
    clock.advance("10s")
    assert tick(store) == 2
    assert [run.queue for run in all_runs(store, job="job")] == ["mended"]


def test_a_replay_for_a_job_that_cannot_be_read_is_refused(
    store: Store, clock: VirtualClock
) -> None:
    """Nobody knows its queue, its key, its timeout."""
    put_schedule(store, "bad", overlap="allow")
    store.write(operations.pause_schedule, "bad", None, ME)
    corrupt_job(store)
    clock.advance("20s")
    with pytest.raises(Invalid, match="job 'job': its row cannot be read"):
        store.write(operations.resume_schedule, "bad", None, ME, catch_up="all")
    assert store.read(operations.schedule_named, "bad").paused


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        ({"overlap": "skip"}, "skipped"),
        ({"overlap": "queue", "queue_max": 0}, "dropped"),
        ({"overlap": "wait"}, "coalesced"),
    ],
    ids=["skip", "drop", "merge"],
)
def test_a_delay_schedule_does_not_wait_for_a_run_that_is_not_made(
    store: Store, clock: VirtualClock, options: dict[str, Any], outcome: str
) -> None:
    schedule = put_schedule(store, anchor="delay", overlap_key="job job", **options)
    others = [enqueue(store, overlap_key="job job") for _ in range(2)]
    assert states(store, others) == ["queued", "held"]
    for count in (1, 2):
        clock.advance("15s")
        assert tick(store) == 0
        assert outcomes(store, schedule) == [outcome] * count
        assert store.read(operations.schedule_named, "schedule").next_fire_at == clock.after("10s")


def test_a_delay_schedule_without_a_run_ends_at_its_end(store: Store, clock: VirtualClock) -> None:
    put_schedule(
        store, anchor="delay", overlap="skip", overlap_key="job job", ends_at=clock.after("15s")
    )
    enqueue(store, overlap_key="job job")
    clock.advance("10s")
    assert tick(store) == 0
    assert store.read(operations.schedule_named, "schedule").next_fire_at is None


@pytest.mark.parametrize("end", ["cancel", "delete"])
@pytest.mark.parametrize("state", ["waiting", "held", "queued", "paused"])
def test_a_delay_schedule_goes_on_when_its_run_ends_before_it_begins(
    store: Store, clock: VirtualClock, state: str, end: str
) -> None:
    """Whatever the run waited for, and however long."""
    if state == "held":
        enqueue(store, overlap_key="job job")
    put_schedule(
        store,
        anchor="delay",
        overlap="queue",
        overlap_key="job job",
        jitter="1h" if state == "waiting" else "0s",
    )
    clock.advance("10s")
    tick(store)
    run = all_runs(store)[-1]
    if state == "paused":
        run = store.write(operations.pause_run, run.id, None, ME)
    assert run.state == state
    assert store.read(operations.schedule_named, "schedule").next_fire_at == WAITING_FOR_RUN
    clock.advance("7s")
    end_run(store, end, run.id)
    assert store.read(operations.schedule_named, "schedule").next_fire_at == clock.after("10s")


def test_a_delay_schedule_waits_while_a_cancel_is_only_asked_for(
    store: Store, clock: VirtualClock
) -> None:
    delay_schedule(store, clock)
    run = claim_one(store)
    store.write(operations.cancel_run, run.id, None, ME)
    assert store.read(operations.schedule_named, "schedule").next_fire_at == WAITING_FOR_RUN
    clock.advance("7s")
    (settled,) = settle(store, run, "failed")
    assert (settled.state, settled.restarted) == ("cancelled", True)
    assert store.read(operations.schedule_named, "schedule").next_fire_at == clock.after("10s")


def end_run(store: Store, end: str, run_id: str) -> None:
    if end == "cancel":
        store.write(operations.cancel_run, run_id, None, ME)
    else:
        store.write(operations.delete_run, run_id, None, ME)


@pytest.mark.parametrize("end", ["cancel", "delete"])
def test_the_end_of_another_run_does_not_restart_a_delay(
    store: Store, clock: VirtualClock, end: str
) -> None:
    schedule = delay_schedule(store, clock)
    first = claim_one(store)
    assert [one.restarted for one in settle(store, first)] == [True]
    clock.advance("10s")
    assert tick(store) == 1
    store.write(operations.redo_run, first.id, None, ME)
    extra = enqueue(store, schedule_id=schedule.id)
    for run_id in (first.id, extra):
        end_run(store, end, run_id)
    assert store.read(operations.schedule_named, "schedule").next_fire_at == WAITING_FOR_RUN


def test_a_delay_schedule_that_is_resumed_and_skipped_says_when_it_goes_on(
    store: Store, clock: VirtualClock
) -> None:
    put_schedule(store, anchor="delay", overlap="skip", overlap_key="job job")
    enqueue(store, overlap_key="job job")
    store.write(operations.pause_schedule, "schedule", None, ME)
    clock.advance("1m")
    resumed = store.write(operations.resume_schedule, "schedule", None, ME, catch_up="one")
    assert resumed.next_fire_at == clock.after("10s")
    assert store.read(operations.schedule_named, "schedule").next_fire_at == clock.after("10s")
