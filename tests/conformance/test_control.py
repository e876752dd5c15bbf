"""Control: what operators do to runs and queues, and the trace that each act leaves."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.errors import Conflict, Unknown
from rota.model.retry import ONCE
from rota.storage import operations
from rota.storage.store import Store
from tests.conformance.support import (
    ME,
    Place,
    VirtualClock,
    all_runs,
    claim,
    claim_one,
    enqueue,
    enqueue_many,
    put_job,
    put_schedule,
    settle,
    states,
    tick,
    together,
)

NOBODY = "00000000-0000-0000-0000-000000000000"


# Cancel


def test_a_run_that_has_not_started_is_cancelled_at_once(store: Store, clock: VirtualClock) -> None:
    run_id = enqueue(store)
    clock.advance("1s")
    run = store.write(operations.cancel_run, run_id, "a mistake", ME)
    assert (run.state, run.finished_at, run.reason) == ("cancelled", clock(), "a mistake")
    assert run == store.read(operations.get_run, run_id)


def test_a_running_run_is_asked_to_end(store: Store, clock: VirtualClock) -> None:
    run_id = enqueue(store)
    claim_one(store)
    run = store.write(operations.cancel_run, run_id, "a mistake", ME)
    assert (run.state, run.cancel_requested_at) == ("running", clock())
    clock.advance("1s")
    assert (
        store.write(operations.cancel_run, run_id, None, ME).cancel_requested_at
        == run.cancel_requested_at
    )


def test_a_cancel_without_a_reason_names_who(store: Store) -> None:
    assert (
        store.write(operations.cancel_run, enqueue(store), None, ME).reason
        == "cancelled by operator"
    )


# Pause and resume


def test_a_paused_run_goes_on_where_it_was(store: Store, clock: VirtualClock) -> None:
    run_id = enqueue(store, delay=timedelta(hours=1))
    due = clock.after("1h")
    assert store.write(operations.pause_run, run_id, "wait", ME).state == "paused"
    clock.advance("30m")
    resumed = store.write(operations.resume_run, run_id, None, ME)
    assert (resumed.state, resumed.due_at) == ("waiting", due)
    assert store.write(operations.promote, 10) == 0
    clock.advance("30m")
    assert store.write(operations.promote, 10) == 1


def test_a_running_run_is_asked_to_pause(store: Store, clock: VirtualClock) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    asked = store.write(operations.pause_run, run_id, None, ME)
    assert (asked.state, asked.pause_requested_at) == ("running", clock())
    settle(store, run, "succeeded")
    assert states(store, [run_id]) == ["succeeded"]


# Redo


@pytest.mark.parametrize("kind", ["succeeded", "failed", "cancelled"])
def test_a_redo_starts_over_with_fresh_counts(store: Store, clock: VirtualClock, kind: str) -> None:
    run_id = enqueue(store)
    settle(store, claim_one(store), kind, retry=ONCE, result='"x"')
    clock.advance("1h")
    run = store.write(operations.redo_run, run_id, "again", ME)
    assert (run.state, run.due_at, run.finished_at) == ("waiting", clock(), None)
    assert (run.failures, run.lost, run.redo, run.result) == (0, 0, 1, None)
    assert (run.cancel_requested_at, run.pause_requested_at) == (None, None)
    store.write(operations.promote, 10)
    assert claim_one(store).attempt == 2


def test_a_run_cancelled_while_running_can_be_redone(store: Store) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    store.write(operations.cancel_run, run_id, None, ME)
    settle(store, run, "cancelled")
    assert store.write(operations.redo_run, run_id, None, ME).cancel_requested_at is None
    store.write(operations.promote, 10)
    settle(store, claim_one(store), "failed")
    assert states(store, [run_id]) == ["waiting"]


def test_a_redo_of_a_fired_run_moves_no_cursor(store: Store, clock: VirtualClock) -> None:
    put_schedule(store)
    clock.advance("10s")
    tick(store)
    run = claim_one(store)
    settle(store, run)
    before = store.read(operations.schedule_named, "schedule")
    store.write(operations.redo_run, run.id, None, ME)
    assert store.read(operations.schedule_named, "schedule") == before
    assert len(all_runs(store)) == 1


# Delete


def test_a_running_run_cannot_be_deleted(store: Store) -> None:
    run_id = enqueue(store)
    claim_one(store)
    with pytest.raises(Conflict, match=r"is running; cancel it first"):
        store.write(operations.delete_run, run_id, None, ME)
    assert states(store, [run_id]) == ["running"]


def test_a_deleted_run_is_gone(store: Store) -> None:
    run_id = enqueue(store)
    store.write(operations.delete_run, run_id, "noise", ME)
    with pytest.raises(Unknown, match=run_id):
        store.read(operations.get_run, run_id)


# Whoever is asked for


@pytest.mark.parametrize("act", ["cancel_run", "pause_run", "resume_run", "redo_run", "delete_run"])
def test_a_run_that_does_not_exist_is_named(store: Store, act: str) -> None:
    with pytest.raises(Unknown, match=NOBODY):
        store.write(getattr(operations, act), NOBODY, None, ME)
    assert store.read(operations.list_audit, limit=9) == []


def test_an_id_that_is_no_id_is_unknown(store: Store) -> None:
    with pytest.raises(Unknown, match="no-such-run"):
        store.read(operations.get_run, "no-such-run")


def test_of_two_acts_at_once_one_meets_a_conflict(store: Store, place: Place) -> None:
    run_id = enqueue(store)
    other = place.open()

    def cancel(one: Store) -> str:
        try:
            return one.write(operations.cancel_run, run_id, None, ME).state
        except Conflict:
            return "conflict"

    answers = together(lambda: cancel(store), lambda: cancel(other))
    assert sorted(answers) == ["cancelled", "conflict"]
    assert len(store.read(operations.list_audit, limit=9)) == 1


def test_a_cancel_and_a_claim_at_once_leave_one_story(store: Store, place: Place) -> None:
    ids = enqueue_many(store, 20)
    other = place.open()
    claimed, cancelled = together(
        lambda: [run.id for run in claim(store, 20)],
        lambda: [other.write(operations.cancel_run, run_id, None, ME) for run_id in ids],
    )
    for run in cancelled:
        assert run.state == ("running" if run.id in claimed else "cancelled")


# Queues and dispatch


def test_a_paused_queue_says_who_and_why(store: Store, clock: VirtualClock) -> None:
    enqueue_many(store, 3)
    store.write(operations.pause_queue, "default", "maintenance", ME)
    store.write(operations.pause_queue, "tomorrow", None, ME)  # before its first run
    first, second = store.read(operations.list_queues, limit=9)
    assert (first["name"], first["paused"], first["reason"]) == ("default", True, "maintenance")
    assert (first["paused_by"], first["paused_at"]) == ("operator", clock())
    assert (first["queued"], first["oldest_at"]) == (3, clock())
    assert (second["name"], second["paused"], second["queued"]) == ("tomorrow", True, 0)
    store.write(operations.resume_queue, "default", ME)
    resumed = store.read(operations.list_queues, limit=1)[0]
    assert (resumed["paused"], resumed["reason"], resumed["paused_by"]) == (False, None, None)


def test_to_resume_a_queue_that_is_open_changes_nothing(store: Store) -> None:
    store.write(operations.resume_queue, "default", ME)
    assert store.read(operations.list_audit, limit=9) == []


def test_a_queue_that_does_not_exist_cannot_be_resumed(store: Store) -> None:
    with pytest.raises(Unknown, match="'nowhere'"):
        store.write(operations.resume_queue, "nowhere", ME)


def test_registering_a_job_again_leaves_its_queue_paused(store: Store) -> None:
    store.write(operations.pause_queue, "default", None, ME)
    put_job(store)
    store.write(operations.ensure_queues, ["default"])
    assert store.read(operations.list_queues, limit=9)[0]["paused"]


def test_the_dispatch_switch_says_who_and_why(store: Store) -> None:
    assert store.read(operations.overview)["dispatch"] == "on"
    store.write(operations.set_dispatch, False, "deploy", ME)
    assert store.read(operations.overview)["dispatch"] == "paused by operator: deploy"
    store.write(operations.set_dispatch, True, None, ME)
    assert store.read(operations.overview)["dispatch"] == "on"


# The trace


def test_every_act_leaves_an_audit_row(store: Store, clock: VirtualClock) -> None:
    first, second = enqueue_many(store, 2)
    store.write(operations.pause_run, first, "one", ME)
    store.write(operations.resume_run, first, "two", ME)
    store.write(operations.cancel_run, first, "three", ME)
    store.write(operations.redo_run, first, "four", ME)
    store.write(operations.delete_run, second, "five", ME)
    store.write(operations.pause_queue, "default", "six", ME)
    store.write(operations.resume_queue, "default", ME)
    store.write(operations.set_dispatch, False, "seven", ME)
    store.write(operations.set_dispatch, True, None, ME)
    rows = store.read(operations.list_audit, limit=99)[::-1]
    assert [(row["action"], row["thing"], row["reason"]) for row in rows] == [
        ("pause_run", first, "one"),
        ("resume_run", first, "two"),
        ("cancel_run", first, "three"),
        ("redo_run", first, "four"),
        ("delete_run", second, "five"),
        ("pause_queue", "default", "six"),
        ("resume_queue", "default", None),
        ("pause_dispatch", "dispatch", "seven"),
        ("resume_dispatch", "dispatch", None),
    ]
    assert {(row["by"], row["via"], row["at"]) for row in rows} == {("operator", "test", clock())}
    assert [row["before"] for row in rows[:4]] == ["queued", "paused", "waiting", "cancelled"]
    assert store.read(operations.list_audit, before=rows[2]["id"], limit=9) == rows[1::-1]


def test_a_refused_act_leaves_no_trace(store: Store) -> None:
    run_id = enqueue(store)
    with pytest.raises(Conflict, match=r"is queued; redo is not possible"):
        store.write(operations.redo_run, run_id, None, ME)
    assert store.read(operations.list_audit, limit=9) == []


# Reading


def test_runs_are_listed_newest_first_in_pages(store: Store) -> None:
    ids = enqueue_many(store, 5)
    page = store.read(operations.list_runs, limit=2)
    assert [run.id for run in page] == ids[:-3:-1]
    assert [
        run.id for run in store.read(operations.list_runs, before=page[-1].seq, limit=9)
    ] == ids[2::-1]


def test_runs_are_filtered_by_what_they_are(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store, job="other")
    plain, heavy = enqueue(store), enqueue(store, queue="heavy")
    done = claim_one(store)
    settle(store, done)
    clock.advance("10s")
    tick(store)
    (fired,) = store.read(operations.list_runs, schedule_id=schedule.id, limit=9)
    assert [run.id for run in store.read(operations.list_runs, job="other", limit=9)] == [fired.id]
    assert [run.id for run in store.read(operations.list_runs, job="job", limit=9)] == [
        heavy,
        plain,
    ]
    assert [run.id for run in store.read(operations.list_runs, state="succeeded", limit=9)] == [
        plain
    ]
    assert [run.id for run in store.read(operations.list_runs, queue="heavy", limit=9)] == [heavy]
    assert (
        store.read(operations.list_runs, job="job", state="queued", queue="default", limit=9) == []
    )
    assert store.read(operations.list_runs, schedule_id=schedule.id, state="dead", limit=9) == []


def test_runs_are_counted_by_what_they_are(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store, job="other")
    enqueue_many(store, 3)
    enqueue(store, queue="heavy")
    clock.advance("10s")
    tick(store)
    assert store.read(operations.count_matching_runs, "queued", limit=9) == 5
    assert store.read(operations.count_matching_runs, "queued", limit=2) == 2
    assert store.read(operations.count_matching_runs, "queued", job="job", limit=9) == 4
    assert (
        store.read(operations.count_matching_runs, "queued", job="job", queue="heavy", limit=9) == 1
    )
    assert (
        store.read(operations.count_matching_runs, "queued", schedule_id=schedule.id, limit=9) == 1
    )
    assert store.read(operations.count_matching_runs, "dead", limit=9) == 0


def test_a_run_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    ids = [f"{start}-0000-4000-8000-000000000000" for start in ("aaaa0000", "aaaa1111", "bbbb0000")]
    for run_id in ids:
        enqueue(store, id=run_id)
    assert store.read(operations.run_ids, "aaaa", limit=9) == ids[:2]
    assert store.read(operations.run_ids, "aaaa", limit=1) == ids[:1]
    assert (
        store.read(operations.run_ids, "aaaa1", limit=9)
        == store.read(operations.run_ids, ids[1], limit=9)
        == ids[1:2]
    )
    assert store.read(operations.run_ids, "c", limit=9) == []


def test_the_overview_counts(store: Store, clock: VirtualClock) -> None:
    enqueue_many(store, 3, concurrency_key="c")
    settle(store, claim_one(store))
    put_schedule(store, "a")
    put_schedule(store, "b")
    store.write(operations.pause_schedule, "a", None, ME)
    seen = store.read(operations.overview)
    assert seen["runs"] == {"succeeded": 1, "queued": 1, "held": 1}
    assert seen["schedules"] == {"schedules": 2, "paused": 1, "broken": 0}
    assert seen["now_at"] == store.now() == clock()
