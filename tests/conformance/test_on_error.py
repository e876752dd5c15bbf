"""On error: what a schedule does when one of its runs dies, decided where the run ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.model.retry import ONCE, Retry
from rota.model.run import Run
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.store import Store
from tests.conformance.support import (
    ME,
    VirtualClock,
    all_runs,
    claim_one,
    enqueue,
    ledger,
    overwrite,
    put_schedule,
    rescue,
    settle,
    tick,
)


def hourly(store: Store, clock: VirtualClock, **options: Any) -> Schedule:
    """A schedule of an hour that has just fired."""
    schedule = put_schedule(store, expr="1h", **options)
    clock.advance("1h")
    assert tick(store) == 1
    return schedule


def end(store: Store, kind: str = "failed") -> Run:
    """End the next run for good."""
    store.write(operations.promote, 10)
    run = claim_one(store)
    settle(store, run, kind, retry=ONCE, error="no such table\nDid you mean the other?")
    return store.read(operations.get_run, run.id)


def test_next_does_nothing_but_say_so(store: Store, clock: VirtualClock) -> None:
    before = hourly(store, clock, on_error="next")
    end(store)
    after = store.read(operations.schedule_named, "schedule")
    assert (after.paused, after.next_fire_at) == (False, clock.after("1h"))
    assert after.state is not None
    assert "no such table" in after.state
    assert len(all_runs(store)) == len(ledger(store, before)) == 1


# Retry


def test_retry_makes_another_run_of_the_same_occurrence(store: Store, clock: VirtualClock) -> None:
    schedule = hourly(store, clock, on_error="retry", args={"n": 1}, priority=3)
    died = end(store)
    first, again = all_runs(store)
    assert (again.state, again.due_at) == ("waiting", clock.after("1m"))
    assert (again.retry_of, again.occurrence) == (died.id, first.occurrence)
    for name in ("job", "queue", "args", "priority", "schedule_id", "overlap_key", "max_attempts"):
        assert getattr(again, name) == getattr(first, name), name
    assert len(ledger(store, schedule)) == 1
    assert store.read(operations.schedule_named, "schedule").next_fire_at == clock.after("1h")


def test_each_retry_waits_twice_as_long_and_none_past_the_next_occurrence(
    store: Store, clock: VirtualClock
) -> None:
    hourly(store, clock, on_error="retry")
    waits = []
    for _ in range(10):
        end(store)
        due = all_runs(store)[-1].due_at
        if due <= clock():
            break
        waits.append((due - clock()).total_seconds() / 60)
        clock.moment = due
    assert waits == [1, 2, 4, 8, 16]  # 31 minutes later; the next, after 32 more, would be late
    assert store.read(operations.schedule_named, "schedule").next_fire_at == clock.after("29m")


@pytest.mark.parametrize("between", ["failed", "snoozed", "redo"])
def test_what_a_retry_did_meanwhile_does_not_change_the_next_wait(
    store: Store, clock: VirtualClock, between: str
) -> None:
    """Attempts, a snooze and a redo set the due time of the run anew."""
    hourly(store, clock, on_error="retry")
    end(store)
    clock.advance("1m")
    store.write(operations.promote, 10)
    run = claim_one(store)
    if between == "redo":
        settle(store, run, "succeeded")
        clock.advance("20m")
        store.write(operations.redo_run, run.id, None, ME)
    else:
        later = Retry(max_attempts=2, backoff="fixed", delay=timedelta(minutes=20))
        settle(store, run, between, retry=later, after=timedelta(minutes=20))
        clock.advance("20m")
    assert end(store).id == run.id
    again = all_runs(store)[-1]
    assert (again.retry_of, again.due_at) == (run.id, clock.after("2m"))


def test_a_success_needs_no_retry(store: Store, clock: VirtualClock) -> None:
    hourly(store, clock, on_error="retry")
    end(store)
    clock.advance("1m")
    end(store, "succeeded")
    assert [run.state for run in all_runs(store)] == ["dead", "succeeded"]


def test_a_cancelled_run_is_not_retried(store: Store, clock: VirtualClock) -> None:
    hourly(store, clock, on_error="retry", pause_after=1)
    end(store, "cancelled")
    assert len(all_runs(store)) == 1
    assert not store.read(operations.schedule_named, "schedule").paused


def test_a_run_between_attempts_is_not_dead(store: Store, clock: VirtualClock) -> None:
    hourly(store, clock, on_error="retry")
    settle(store, claim_one(store), "failed")
    assert len(all_runs(store)) == 1


def test_a_settle_said_twice_retries_once(store: Store, clock: VirtualClock) -> None:
    hourly(store, clock, on_error="retry")
    run = claim_one(store)
    for _ in range(2):
        settle(store, run, "failed", retry=ONCE)
    assert len(all_runs(store)) == 2


def test_a_redo_that_dies_is_retried_again(store: Store, clock: VirtualClock) -> None:
    hourly(store, clock, on_error="retry")
    died = end(store)
    clock.advance("1m")
    end(store, "succeeded")
    store.write(operations.redo_run, died.id, None, ME)
    assert end(store).id == died.id
    assert len(all_runs(store)) == 3


def test_a_lost_run_that_dies_is_retried(store: Store, clock: VirtualClock) -> None:
    hourly(store, clock, on_error="retry")
    claim_one(store)
    clock.advance("30s")
    rescue(store, max_lost=1)
    assert [run.state for run in all_runs(store)] == ["dead", "waiting"]


def test_a_retry_stands_in_its_schedules_line(store: Store, clock: VirtualClock) -> None:
    hourly(store, clock, on_error="retry", overlap="queue", overlap_key="job job")
    end(store)
    enqueue(store, overlap_key="job job")
    clock.advance("1m")
    store.write(operations.promote, 10)
    assert [run.state for run in all_runs(store)] == ["dead", "held", "queued"]


# Pause


def test_pause_pauses_the_schedule_and_says_why(store: Store, clock: VirtualClock) -> None:
    schedule = hourly(store, clock, on_error="pause")
    died = end(store)
    paused = store.read(operations.schedule_named, "schedule")
    assert (paused.paused, paused.paused_by, paused.paused_at) == (True, "rota", clock())
    assert paused.paused_reason is not None
    assert died.id in paused.paused_reason
    assert "no such table" in paused.paused_reason
    (change, _) = store.read(operations.list_schedule_changes, schedule.id, before=10**9, limit=9)
    assert (change["action"], change["by"]) == ("pause", "rota")
    assert store.read(operations.list_audit, limit=1)[0]["action"] == "pause_schedule"
    clock.advance("1h")
    assert tick(store) == 0


def test_pause_after_counts_deaths_in_a_row(store: Store, clock: VirtualClock) -> None:
    hourly(store, clock, on_error="next", pause_after=2)
    seen = []
    for kind in ("failed", "succeeded", "failed", "failed"):
        end(store, kind)
        seen.append(store.read(operations.schedule_named, "schedule").paused)
        clock.advance("1h")
        tick(store)
    assert seen == [False, False, False, True]


def test_pause_after_counts_retries_too(store: Store, clock: VirtualClock) -> None:
    hourly(store, clock, on_error="retry", pause_after=3)
    for paused in (False, False, True):
        end(store)
        assert store.read(operations.schedule_named, "schedule").paused == paused
        clock.advance("5m")
    assert len(all_runs(store)) == 3


def test_a_paused_schedule_is_left_as_it_was(store: Store, clock: VirtualClock) -> None:
    hourly(store, clock, on_error="retry")
    before = store.write(operations.pause_schedule, "schedule", "the operator's reason", ME)
    end(store)
    after = store.read(operations.schedule_named, "schedule")
    assert (after.paused_by, after.paused_reason) == (before.paused_by, before.paused_reason)
    assert len(all_runs(store)) == 1


# Runs that do not concern it


@pytest.mark.parametrize("on_error", ["retry", "pause"])
def test_a_run_that_stands_for_no_occurrence_does_not_concern_it(
    store: Store, clock: VirtualClock, on_error: str
) -> None:
    before = put_schedule(store, expr="1h", on_error=on_error, pause_after=1)
    enqueue(store, schedule_id=before.id)
    end(store)
    assert store.read(operations.schedule_named, "schedule") == before
    assert len(all_runs(store)) == 1


def test_the_runs_of_a_dropped_schedule_end_alone(store: Store, clock: VirtualClock) -> None:
    hourly(store, clock, on_error="retry")
    store.write(operations.drop_schedule, "schedule", None, ME)
    assert end(store).state == "dead"
    assert len(all_runs(store)) == 1


@pytest.mark.parametrize(
    ("options", "fault"),
    [({"on_error": "pause"}, {"timezone": "Nowhere/Land"}), ({"anchor": "delay"}, {"expr": "?"})],
    ids=["zone", "delay"],
)
def test_a_schedule_that_cannot_be_read_keeps_no_run_from_ending(
    store: Store, clock: VirtualClock, options: dict[str, str], fault: dict[str, str]
) -> None:
    hourly(store, clock, **options)
    overwrite(store, store.read(operations.schedule_named, "schedule"), **fault)
    assert end(store).state == "dead"


def test_a_chain_whose_beginning_is_gone_is_not_begun_again(
    store: Store, clock: VirtualClock
) -> None:
    """Pruned, or deleted by hand: the time since the occurrence tells how long it is."""
    put_schedule(store, kind="once", expr=clock.after("10s").isoformat(), on_error="retry")
    clock.advance("10s")
    tick(store)
    first = end(store)
    clock.advance("1m")
    store.write(operations.promote, 10)
    second = end(store)
    clock.advance("2m")
    store.write(operations.promote, 10)
    for run in (first, second):
        store.write(operations.delete_run, run.id, None, ME)
    end(store)
    assert all_runs(store)[-1].due_at == clock.after("4m")
