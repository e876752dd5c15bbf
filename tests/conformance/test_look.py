"""What surfaces show: counts, what changed, what is wrong, what ran and what comes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from rota.errors import Outdated
from rota.model.job import Job
from rota.model.retry import ONCE
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.engine import Row
from rota.storage.operations.claiming import LogLine
from rota.storage.operations.firing import Broken
from rota.storage.store import Store
from tests.conformance.support import (
    ME,
    Place,
    VirtualClock,
    claim,
    claim_one,
    enqueue,
    enqueue_many,
    put_schedule,
    settle,
    tick,
)

HOUR = timedelta(hours=1)


def test_runs_of_a_rare_state_are_found_newest_first(store: Store) -> None:
    ids = enqueue_many(store, 9)
    for kind in ("succeeded", "failed", "cancelled"):
        for run in claim(store, 3):
            settle(store, run, kind, retry=ONCE)
    for state in ("succeeded", "dead", "cancelled"):
        found = store.read(operations.list_runs, state=state, limit=2)
        rest = store.read(operations.list_runs, state=state, before=found[-1].seq, limit=2)
        assert len(found) == 2
        assert len(rest) == 1
        seqs = [run.seq for run in (*found, *rest)]
        assert seqs == sorted(seqs, reverse=True)
        assert {run.state for run in (*found, *rest)} == {state}
        assert store.read(operations.list_runs, state=state, queue="other", limit=2) == []
    assert {run.id for run in store.read(operations.list_runs, limit=20)} == set(ids)


@pytest.mark.parametrize("state", ["waiting", "held", "queued", "running", "paused"])
def test_runs_that_have_not_ended_are_found_by_their_state(store: Store, state: str) -> None:
    enqueue(store, delay=HOUR)
    enqueue_many(store, 2, concurrency_key="one")  # the second waits for the first
    store.write(operations.pause_run, enqueue(store), None, ME)
    enqueue(store, priority=9)
    claim_one(store)
    (run,) = store.read(operations.list_runs, state=state, limit=1)
    assert run.state == state
    assert len(store.read(operations.list_runs, state=state, limit=10)) == 1


def test_counts_stop_at_their_limit(store: Store, clock: VirtualClock) -> None:
    enqueue_many(store, 5)
    for run in claim(store, 2):
        settle(store, run, "failed", retry=ONCE)
    counts = store.read(operations.count_by_state, clock() - HOUR, limit=100)
    assert (counts["queued"], counts["dead"], counts["succeeded"]) == (3, 2, 0)
    assert store.read(operations.count_by_state, clock() - HOUR, limit=2)["queued"] == 2
    assert store.read(operations.count_by_state, clock() + HOUR, limit=100)["dead"] == 0


def test_what_changed_since_is_told(store: Store, clock: VirtualClock) -> None:
    enqueue(store)
    at = store.read(operations.follow_position)
    clock.advance("1s")
    first, second = enqueue_many(store, 2)
    settle(store, claim_one(store))
    claim_one(store)
    store.write(operations.pause_queue, "default", "tired", ME)
    found = store.read(
        operations.changes_since,
        seq=at["seq"], audit_id=at["audit_id"], since_at=at["now_at"], until_at=clock() + HOUR,
        limit=10,
    )  # fmt: skip
    assert [row["id"] for row in found["made"]] == [first, second]
    assert [row["state"] for row in found["ended"]] == ["succeeded"]
    assert [row["state"] for row in found["running"]] == ["running"]
    assert [(row["action"], row["reason"]) for row in found["actions"]] == [
        ("pause_queue", "tired")
    ]
    (running,) = found["running"]
    assert store.read(operations.brief_runs, [running["seq"]]) == [running]


def test_attempts_of_several_runs_are_told_above_a_number_each(
    store: Store, clock: VirtualClock
) -> None:
    enqueue_many(store, 3)
    for outcome in ("failed", "failed", "succeeded"):
        runs = claim(store)
        for run in runs:
            settle(store, run, outcome)
        clock.advance("1s")
        store.write(operations.promote, limit=10)
    first, second, third = sorted(run.seq for run in runs)
    found = store.read(operations.attempts_above, {second: 2, first: 0, 999: 0}, limit=10)
    assert [(one.run_seq, one.number, one.outcome) for one in found] == [
        (first, 1, "failed"), (first, 2, "failed"), (first, 3, "succeeded"),
        (second, 3, "succeeded"),
    ]  # fmt: skip
    assert len(store.read(operations.attempts_above, {third: 0}, limit=2)) == 2
    assert store.read(operations.attempts_above, {}, limit=10) == []


def test_ends_are_the_latest_ones_of_a_stretch(store: Store, clock: VirtualClock) -> None:
    enqueue_many(store, 4)
    for run in claim(store, 3):
        clock.advance("1m")
        settle(store, run, "succeeded" if run.seq % 2 else "failed", retry=ONCE)
    told = between(store, clock() - timedelta(minutes=1), clock() + HOUR)
    assert [row["state"] for row in told] != []
    times = [row["finished_at"] for row in told]
    assert times == sorted(times, reverse=True)
    assert len(told) == 2
    assert len(between(store, clock() - HOUR, clock() + HOUR, limit=2)) == 2


def between(store: Store, since: datetime, until: datetime, limit: int = 10) -> list[Row]:
    found, more = store.read(operations.runs_between, since, until, limit=limit, looked=100)
    assert not more
    return found


def test_what_ran_across_the_end_of_a_stretch_is_in_it(store: Store, clock: VirtualClock) -> None:
    begin = clock()
    ids = {}
    clock.advance("4h")
    for kind, hours in (("succeeded", 3), ("failed", 2), ("succeeded", 1), ("cancelled", 3)):
        ids[hours, kind] = enqueue(store)
        settle(store, claim_one(store), kind, retry=ONCE, ran_seconds=hours * 3600)
    store.write(operations.cancel_run, enqueue(store), None, ME)  # never began
    long = {ids[3, "succeeded"], ids[3, "cancelled"]}
    assert {row["id"] for row in between(store, begin + HOUR, begin + 2 * HOUR)} == long
    told = between(store, begin + 2 * HOUR, begin + 3 * HOUR)
    assert {row["id"] for row in told} == {*long, ids[2, "failed"]}
    assert len(between(store, begin + 3 * HOUR, begin + 5 * HOUR)) == 5
    some, more = store.read(
        operations.runs_between, begin + HOUR, begin + 2 * HOUR, limit=10, looked=2
    )
    assert more
    assert {row["id"] for row in some} <= long


def test_what_runs_take_is_learnt_from_those_that_succeeded(
    store: Store, clock: VirtualClock
) -> None:
    store.write(operations.put_jobs, [Job(name="other")])
    enqueue_many(store, 3)
    for seconds, kind in (("10s", "succeeded"), ("30s", "succeeded"), ("900s", "failed")):
        run = claim_one(store)
        clock.advance(seconds)
        settle(store, run, kind, retry=ONCE)
    assert store.read(operations.recent_durations, ["job", "other"], limit=20) == {
        "job": pytest.approx(20.0)
    }
    assert store.read(operations.recent_durations, [], limit=20) == {}


def test_the_last_outcomes_come_with_the_states_of_their_runs(
    store: Store, clock: VirtualClock
) -> None:
    one = put_schedule(store, "one", overlap="skip")
    two = put_schedule(store, "two", overlap="allow")
    for _ in range(3):
        clock.advance("10s")
        tick(store)
    told = store.read(operations.recent_outcomes, [one.id, two.id, 99], limit=2)
    assert set(told) == {one.id, two.id}
    assert [(row["outcome"], row["state"]) for row in told[one.id]] == [
        ("skipped", None), ("skipped", None),
    ]  # fmt: skip
    assert [(row["outcome"], row["state"]) for row in told[two.id]] == [
        ("fired", "queued"), ("fired", "queued"),
    ]  # fmt: skip
    newest, older = told[two.id]
    assert newest["occurrence"] > older["occurrence"]
    assert store.read(operations.recent_outcomes, [], limit=2) == {}


def test_what_is_wrong_is_found(store: Store, clock: VirtualClock, place: Place) -> None:
    put_schedule(store, "broken")
    put_schedule(store, "paused")
    put_schedule(store, "late")
    store.write(operations.pause_schedule, "paused", "for a while", ME)
    broken = store.read(operations.schedule_named, "broken")
    assert broken.next_fire_at is not None
    store.write(
        operations.disable_broken_schedules,
        [Broken(broken.id, broken.next_fire_at, 0, "it makes no sense")],
    )
    store.write(operations.put_jobs, [Job(name="bad", error="its file is broken")])
    enqueue_many(store, 2)
    claim_one(store)
    clock.advance("10m")
    now = clock()
    found = store.read(operations.look_for_problems, late_at=now, lost_at=now, limit=10)
    assert [row["name"] for row in found["broken_schedules"]] == ["broken"]
    assert [row["paused_reason"] for row in found["paused_schedules"]] == ["for a while"]
    assert [row["name"] for row in found["broken_jobs"]] == ["bad"]
    assert [row["name"] for row in found["late_schedules"]] == ["late"]
    assert found["stuck"]["runs"] == 1
    assert found["dispatch"] == "on"
    (line,) = store.read(operations.queued_jobs, limit=10)
    assert (line["job"], line["queue"], line["runs"]) == ("job", "default", 1)


def test_schedules_to_come_are_the_earliest(store: Store, clock: VirtualClock) -> None:
    put_schedule(store, "soon", expr="10s")
    put_schedule(store, "later", expr="1h")
    put_schedule(store, "never", expr="10s")
    store.write(operations.pause_schedule, "never", None, ME)
    due = store.read(operations.schedules_due, clock() + timedelta(minutes=1), limit=10)
    assert [schedule.name for schedule in due] == ["soon"]
    ids = {schedule.id for schedule in store.read(operations.list_schedules, limit=10)}
    assert set(store.read(operations.schedule_names, {*ids, 999}).values()) == {
        "soon",
        "later",
        "never",
    }


def test_the_dead_come_with_their_errors(store: Store) -> None:
    enqueue_many(store, 2)
    for run in claim(store, 2):
        settle(store, run, "failed", retry=ONCE, error="no bread")
    first, second = store.read(operations.list_dead_runs, before=2**62, limit=10)
    assert first["seq"] > second["seq"]
    assert store.read(operations.list_dead_runs, before=first["seq"], limit=10) == [second]
    assert first["error"] == "no bread"


def test_an_edit_of_what_somebody_else_changed_is_refused(store: Store) -> None:
    mine = put_schedule(store, "shared")
    theirs = put_schedule(store, "shared", expr="20s")
    assert mine.version != theirs.version
    with pytest.raises(Outdated, match="read it again"):
        store.write(operations.put_schedule, mine, ME, version=mine.version)
    assert store.read(operations.schedule_named, "shared").expr == "20s"
    store.write(operations.put_schedule, mine, ME, version=theirs.version)
    assert store.read(operations.schedule_named, "shared").version == mine.version
    # Neither a pause nor a fire is an edit.
    assert store.write(operations.pause_schedule, "shared", None, ME).version == mine.version


def test_an_edit_of_sql_that_somebody_else_changed_is_refused(store: Store) -> None:
    schedule = Schedule(name="own", job="own", kind="every", expr="1h")
    mine = Job(name="own", executor="sql", source="api", spec={"sql": "SELECT 1"})
    theirs = replace(mine, spec={"sql": "SELECT 2"})
    with pytest.raises(Outdated, match="the SQL job of schedule 'own' was changed"):
        store.write(operations.put_schedule, schedule, ME, mine, job_version=mine.version)
    store.write(operations.put_schedule, schedule, ME, mine)
    store.write(operations.put_schedule, schedule, ME, theirs, job_version=mine.version)
    slower = replace(mine, queue="slow")
    with pytest.raises(Outdated, match=f"has version {theirs.version}.*read it again"):
        store.write(
            operations.put_schedule,
            replace(schedule, expr="2h"),
            ME,
            slower,
            job_version=mine.version,
        )
    assert store.read(operations.jobs_named, ["own"])["own"].version == theirs.version
    assert store.read(operations.schedule_named, "own").expr == "1h"


def test_the_end_of_a_log_is_read_without_its_beginning(store: Store, clock: VirtualClock) -> None:
    lines = [
        LogLine(run_seq=1, attempt=1, at=clock(), level="info", text=f"line {number}")
        for number in range(5)
    ]
    store.write(operations.insert_logs, lines)
    tail = store.read(operations.tail_logs, 1, limit=2)
    assert [row["text"] for row in tail] == ["line 3", "line 4"]
    before = store.read(operations.tail_logs, 1, before=tail[0]["id"], limit=2)
    assert [row["text"] for row in before] == ["line 1", "line 2"]
