"""Settle: an attempt ends once, for whoever still holds it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from rota.errors import Invalid, Unavailable
from rota.flow.events import Events
from rota.flow.notes import Notes
from rota.flow.settle import Settler
from rota.model.outcome import Outcome
from rota.model.outcome import settle as decide
from rota.model.retry import ONCE, Retry
from rota.model.run import Run
from rota.storage import operations
from rota.storage.operations.settling import Settled
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
    rescue,
    settle,
    states,
    together,
)
from tests.support.operations import replace_operation

# Outcomes


def test_a_success_ends_the_run(store: Store, clock: VirtualClock) -> None:
    run_id = enqueue(store)
    claimed = claim_one(store)
    clock.advance("5s")
    assert settle(store, claimed, result='{"rows":3}') == [Settled(claimed.seq, "succeeded")]
    run = store.read(operations.get_run, run_id)
    assert (run.state, run.finished_at, run.result) == ("succeeded", clock(), '{"rows":3}')
    assert (run.lease_until, run.failures, run.error) == (None, 0, None)


def test_a_failure_waits_for_its_retry(store: Store, clock: VirtualClock) -> None:
    run_id = enqueue(store)
    settle(store, claim_one(store), "failed", error="boom", retry=Retry(delay=timedelta(minutes=2)))
    run = store.read(operations.get_run, run_id)
    assert (run.state, run.failures, run.error) == ("waiting", 1, "boom")
    assert (run.due_at, run.finished_at, run.lease_until) == (clock.after("2m"), None, None)


@pytest.mark.parametrize("kind", ["failed", "timed_out"])
def test_a_run_out_of_attempts_is_dead(store: Store, clock: VirtualClock, kind: str) -> None:
    run_id = enqueue(store)
    for wanted in ("waiting", "waiting", "dead"):
        settle(store, claim_one(store), kind, error="boom")
        clock.advance("1s")
        store.write(operations.promote, 10)
        assert (
            store.read(operations.get_run, run_id).failures
            == store.read(operations.get_run, run_id).attempt
        )
        assert store.read(operations.get_run, run_id).state in (wanted, "queued")
    run = store.read(operations.get_run, run_id)
    assert (run.state, run.failures, run.error) == ("dead", 3, "boom")


@pytest.mark.parametrize("kind", ["released", "snoozed", "paused"])
def test_an_interrupted_attempt_does_not_count(store: Store, kind: str) -> None:
    run_id = enqueue(store)
    wanted = {"released": "queued", "snoozed": "waiting", "paused": "paused"}[kind]
    settle(store, claim_one(store), kind, retry=ONCE, reason="later")
    run = store.read(operations.get_run, run_id)
    assert (run.state, run.attempt, run.failures, run.lost) == (wanted, 1, 0, 0)
    assert run.reason == "later"


def test_a_snooze_says_when(store: Store, clock: VirtualClock) -> None:
    run_id = enqueue(store)
    settle(store, claim_one(store), "snoozed", after=timedelta(hours=1))
    assert store.read(operations.get_run, run_id).due_at == clock.after("1h")


def test_the_start_is_counted_back_from_what_the_worker_measured(
    store: Store, clock: VirtualClock
) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    clock.advance("10s")
    told = Outcome(kind="succeeded")
    store.write(operations.settle, [decide(run, told, retry=ONCE, max_lost=3, ran_seconds=4)])
    assert store.read(operations.get_run, run_id).started_at == clock() - timedelta(seconds=4)


def test_many_attempts_end_in_one_call(store: Store) -> None:
    ids = enqueue_many(store, 3) + enqueue_many(store, 1, concurrency_key="c")
    kinds = ("succeeded", "failed", "released", "cancelled")
    ended = [
        decide(run, Outcome(kind=kind), retry=Retry(), max_lost=3)
        for run, kind in zip(claim(store), kinds, strict=True)
    ]
    answer = sorted((one.seq, one.state) for one in store.write(operations.settle, ended))
    assert [state for _, state in answer] == states(store, ids)
    assert states(store, ids) == ["succeeded", "waiting", "queued", "cancelled"]


# Fences


def test_a_late_settle_changes_nothing(store: Store, clock: VirtualClock) -> None:
    run_id = enqueue(store)
    late = claim_one(store)
    clock.advance("30s")
    rescue(store)
    claim_one(store)
    before = store.read(operations.get_run, run_id)
    assert settle(store, late) == []
    assert settle(store, late, "failed") == []
    assert store.read(operations.get_run, run_id) == before
    assert [
        attempt.outcome for attempt in store.read(operations.list_attempts, late.seq, limit=9)
    ] == ["lost"]


@pytest.mark.parametrize("kind", ["succeeded", "failed"])
def test_an_attempt_ends_once(store: Store, clock: VirtualClock, kind: str) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    settle(store, run, kind)
    before = store.read(operations.get_run, run_id)
    clock.advance("1s")
    assert settle(store, run, kind) == settle(store, run, "cancelled") == []
    assert store.read(operations.get_run, run_id) == before


def test_successes_with_and_without_results_end_together_and_the_lost_ones_do_not(
    store: Store, clock: VirtualClock
) -> None:
    enqueue_many(store, 6)
    lost = claim(store)
    clock.advance("31s")
    rescue(store)
    assert {run.attempt for run in claim(store)} == {2}
    enqueue_many(store, 4)
    first = claim(store)
    clock.advance("5s")
    told = [Outcome(kind="succeeded"), Outcome(kind="succeeded", result="1")]
    ends = [
        decide(run, told[place % 2], retry=ONCE, max_lost=3, ran_seconds=place + 0.25)
        for place, run in enumerate([*first, *lost])
    ]
    assert {one.seq for one in store.write(operations.settle, ends)} == {run.seq for run in first}
    for place, run in enumerate(first):
        row = store.read(operations.get_run, run.id)
        assert (row.state, row.result) == ("succeeded", told[place % 2].result)
        assert row.started_at == clock() - timedelta(seconds=place + 0.25)
    assert {store.read(operations.get_run, run.id).state for run in lost} == {"running"}


def test_of_two_attempts_in_one_call_the_later_counts(store: Store) -> None:
    run_id = enqueue(store)
    first = claim_one(store)
    settle(store, first, "released")
    second = claim_one(store)
    ended = [
        decide(second, Outcome(kind="succeeded"), retry=ONCE, max_lost=3),
        decide(first, Outcome(kind="failed"), retry=ONCE, max_lost=3),
    ]
    assert store.write(operations.settle, ended) == [Settled(second.seq, "succeeded")]
    assert states(store, [run_id]) == ["succeeded"]
    assert len(store.read(operations.list_attempts, first.seq, limit=9)) == 2


def test_of_two_settles_at_once_one_counts(store: Store, place: Place) -> None:
    enqueue_many(store, 10)
    runs = claim(store)
    other = place.open()

    def end(one: Store, kind: str) -> list[Settled]:
        told = Outcome(kind=kind)
        return one.write(
            operations.settle, [decide(run, told, retry=ONCE, max_lost=3) for run in runs]
        )

    answers = together(lambda: end(store, "succeeded"), lambda: end(other, "failed"))
    assert sorted(map(len, answers)) == [0, 10]
    assert len({run.state for run in all_runs(store)}) == 1


def test_a_settle_of_a_deleted_run_changes_nothing(store: Store) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    settle(store, run)
    store.write(operations.delete_run, run_id, None, ME)
    assert settle(store, run) == []
    assert all_runs(store) == []


# Requests that came meanwhile


@pytest.mark.parametrize("max_attempts", [1, 3])
@pytest.mark.parametrize("kind", ["failed", "released", "snoozed", "paused", "cancelled"])
def test_a_cancel_wins_over_everything_but_success(
    store: Store, kind: str, max_attempts: int
) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    store.write(operations.cancel_run, run_id, "no longer needed", ME)
    retry = Retry(max_attempts=max_attempts)
    assert settle(store, run, kind, retry=retry) == [Settled(run.seq, "cancelled")]
    assert store.read(operations.get_run, run_id).finished_at is not None


def test_a_success_wins_over_a_cancel(store: Store) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    store.write(operations.cancel_run, run_id, None, ME)
    settle(store, run)
    assert states(store, [run_id]) == ["succeeded"]


@pytest.mark.parametrize("kind", ["failed", "released", "snoozed"])
def test_a_pause_wins_over_a_retry(store: Store, kind: str) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    store.write(operations.pause_run, run_id, "look first", ME)
    assert settle(store, run, kind) == [Settled(run.seq, "paused")]
    paused = store.read(operations.get_run, run_id)
    assert (paused.finished_at, paused.pause_requested_at) == (None, None)
    store.write(operations.resume_run, run_id, None, ME)
    assert states(store, [run_id]) == ["waiting"]


def test_a_cancel_wins_over_a_pause(store: Store) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    store.write(operations.pause_run, run_id, None, ME)
    store.write(operations.cancel_run, run_id, None, ME)
    settle(store, run, "failed")
    assert states(store, [run_id]) == ["cancelled"]


def test_a_cancelled_retry_hands_its_slot_on(store: Store) -> None:
    first, second = enqueue_many(store, 2, concurrency_key="c")
    run = claim_one(store)
    store.write(operations.cancel_run, first, None, ME)
    settle(store, run, "failed")
    assert states(store, [first, second]) == ["cancelled", "queued"]


@pytest.mark.parametrize("act", ["cancel_run", "pause_run"])
def test_why_it_was_asked_to_stop_is_kept(store: Store, act: str) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    store.write(getattr(operations, act), run_id, "the operator's reason", ME)
    settle(store, run, "failed")
    assert store.read(operations.get_run, run_id).reason == "the operator's reason"


def test_a_reason_of_an_earlier_attempt_does_not_stay(store: Store) -> None:
    run_id = enqueue(store)
    settle(store, claim_one(store), "released", reason="shutdown")
    settle(store, claim_one(store))
    assert store.read(operations.get_run, run_id).reason is None


# Attempts


def test_a_success_at_the_first_try_leaves_no_attempt_row(store: Store) -> None:
    enqueue_many(store, 1)
    enqueue_many(store, 1, concurrency_key="c")
    for run in claim(store):
        settle(store, run)
        assert store.read(operations.list_attempts, run.seq, limit=9) == []


def test_every_other_attempt_leaves_a_row(store: Store, clock: VirtualClock) -> None:
    enqueue(store)
    for kind in ("failed", "released", "timed_out", "succeeded"):
        run = claim_one(store)
        clock.advance("1s")
        error = "boom" if kind == "failed" else None
        settle(store, run, kind, error=error, ran_seconds=1)
        clock.advance("1m")
        store.write(operations.promote, 10)
    rows = store.read(operations.list_attempts, run.seq, limit=9)
    assert [row.outcome for row in rows] == ["failed", "released", "timed_out", "succeeded"]
    assert [row.number for row in rows] == [1, 2, 3, 4]
    assert {row.worker_id for row in rows} == {"worker"}
    assert rows[0].error == "boom"
    for row in rows:
        assert row.started_at is not None
        assert row.finished_at == row.started_at + timedelta(seconds=1)
    assert store.read(operations.list_attempts, run.seq, limit=2) == rows[:2]


@pytest.mark.parametrize("kind", ["released", "cancelled"])
def test_an_attempt_that_never_began_has_no_start(store: Store, kind: str) -> None:
    enqueue(store)
    run = claim_one(store)
    settle(store, run, kind)
    (row,) = store.read(operations.list_attempts, run.seq, limit=9)
    assert (row.outcome, row.started_at) == (kind, None)
    assert row.finished_at is not None


@pytest.mark.parametrize(("kind", "outcome"), [("snoozed", "released"), ("paused", "released")])
def test_an_attempt_that_is_not_a_failure_is_released(
    store: Store, kind: str, outcome: str
) -> None:
    enqueue(store)
    run = claim_one(store)
    settle(store, run, kind)
    (row,) = store.read(operations.list_attempts, run.seq, limit=9)
    assert row.outcome == outcome


# Statements that commit with the end


@pytest.fixture
def effects(place: Place) -> Callable[[], list[str]]:
    """A table of somebody else's, and what is in it."""
    place.execute("CREATE TABLE effects (run_id TEXT)")
    return lambda: sorted(row[0] for row in place.execute("SELECT run_id FROM effects"))


def note_end(run: Run) -> list[tuple[str, dict[str, Any]]]:
    return [("INSERT INTO effects (run_id) VALUES (:run_id)", {"run_id": run.id})]


def broken_end(run: Run) -> list[tuple[str, dict[str, Any]]]:
    return [*note_end(run), ("INSERT INTO no_such_table VALUES (1)", {})]


Effects = Callable[[], list[str]]


def test_statements_commit_with_the_end_of_a_run(store: Store, effects: Effects) -> None:
    ids = enqueue_many(store, 2)
    ended = [decide(run, Outcome(kind="succeeded"), retry=ONCE, max_lost=3) for run in claim(store)]
    store.write(operations.settle, ended, note_end)
    store.write(operations.settle, ended, note_end)
    assert effects() == sorted(ids)


def test_statements_see_the_run_as_it_ended(store: Store, effects: Effects) -> None:
    enqueue(store)
    seen: list[Run] = []

    def look(run: Run) -> list[tuple[str, dict[str, Any]]]:
        seen.append(run)
        return []

    settle(store, claim_one(store), "failed", retry=ONCE, error="boom", on_terminated=look)
    assert [(run.state, run.error) for run in seen] == [("dead", "boom")]


@pytest.mark.parametrize("kind", ["failed", "released", "snoozed"])
def test_an_attempt_that_is_not_the_last_runs_no_statements(
    store: Store, effects: Effects, kind: str
) -> None:
    enqueue(store)
    settle(store, claim_one(store), kind, on_terminated=note_end)
    assert effects() == []


def test_a_fenced_settle_runs_no_statements(store: Store, effects: Effects) -> None:
    enqueue(store)
    run = claim_one(store)
    settle(store, run, "released")
    assert settle(store, run, on_terminated=note_end) == []
    assert effects() == []


def test_statements_that_fail_are_undone_alone_and_said(store: Store, effects: Effects) -> None:
    first, second = enqueue_many(store, 2, concurrency_key="c")
    settle(store, claim_one(store), on_terminated=broken_end)
    assert states(store, [first, second]) == ["succeeded", "queued"]
    assert effects() == []
    (event,) = store.read(operations.list_events, run_id=first, limit=9)
    assert (event["kind"], event["name"]) == ("run.on_terminated_failed", "job")
    assert "no_such_table" in event["detail"]


def test_a_failing_statement_leaves_its_neighbours_alone(store: Store, effects: Effects) -> None:
    ids = enqueue_many(store, 3)
    ended = [decide(run, Outcome(kind="succeeded"), retry=ONCE, max_lost=3) for run in claim(store)]
    store.write(
        operations.settle, ended, lambda run: broken_end(run) if run.id == ids[1] else note_end(run)
    )
    assert states(store, ids) == ["succeeded"] * 3
    assert effects() == sorted([ids[0], ids[2]])


def test_a_cancel_of_a_waiting_run_runs_the_statements(store: Store, effects: Effects) -> None:
    run_id = enqueue(store)
    store.write(operations.cancel_run, run_id, None, ME, note_end)
    assert effects() == [run_id]


def test_a_cancel_of_a_running_run_leaves_them_to_its_settle(
    store: Store, effects: Effects
) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    store.write(operations.cancel_run, run_id, None, ME, note_end)
    assert effects() == []
    settle(store, run, "failed", on_terminated=note_end)
    assert effects() == [run_id]


# The loop


def test_an_outcome_written_alone_without_an_answer_is_told_once(
    store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that cannot be stored is written one by one; of the first the answer is lost."""
    run_id = enqueue(store)
    run = claim_one(store)
    events, told, tries = Events(), [], iter(("refused", "lost", "good"))
    events.on("job.completed", lambda event: told.append(event.run_id))
    settler = Settler(
        store, jobs={}, max_lost=3, events=events, termination_hook_of=lambda name: None
    )

    def settling(plain: Callable[..., list[Settled]], *given: Any) -> list[Settled]:
        match next(tries):
            case "refused":
                raise Invalid("one of them is no text")
            case "lost":
                plain(*given)
                raise Unavailable("the connection was lost")
            case _:
                return plain(*given)

    replace_operation(monkeypatch, store, operations.settle, settling)
    settler.put(run, Outcome(kind="succeeded"))
    with pytest.raises(Unavailable):
        settler.step()
    settler.step()
    assert store.read(operations.get_run, run_id).state == "succeeded"
    assert told == [run_id]
    assert settler.unwritten() == []


def test_the_first_outcome_that_waits_wakes_the_loop(store: Store) -> None:
    """And it alone: the loop takes what is there when it comes to it."""
    enqueue_many(store, 4)
    first, second, third, fourth = claim(store, limit=4)
    settler = Settler(
        store, jobs={}, max_lost=3, events=Events(), termination_hook_of=lambda name: None
    )
    woken: list[None] = []
    settler.on_put(lambda: woken.append(None))
    for run in (first, second):
        settler.put(run, Outcome(kind="succeeded"))
    assert len(woken) == 1
    settler.step()
    for run in (third, fourth):
        settler.put(run, Outcome(kind="failed", error="no"))
    assert len(woken) == 2
    settler.step()
    assert settler.unwritten() == []


def test_what_is_told_while_the_database_is_away_is_kept(
    store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue_many(store, 2)
    first, second = claim(store, 2)
    notes, is_away = Notes(store), [True]

    def away(plain: Callable[..., None], *given: Any) -> None:
        if is_away:
            raise Unavailable("away")
        plain(*given)

    notes.progress(first, {"done": 1, "total": 3})
    notes.progress(second, {"done": 1, "total": 3})
    replace_operation(monkeypatch, store, operations.set_progress, away)
    with pytest.raises(Unavailable):
        notes.step()
    is_away.clear()
    notes.progress(second, {"done": 2, "total": 3})
    notes.step()
    found = [store.read(operations.get_run, run.id).progress for run in (first, second)]
    assert found == ['{"done":1,"total":3}', '{"done":2,"total":3}']
