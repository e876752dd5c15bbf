"""Prune: old runs go in bounded batches with all that is theirs; the ledger outlives them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.errors import Unknown
from rota.flow import prune as pruning
from rota.flow.prune import Prune
from rota.model.retry import ONCE
from rota.model.schedule import Schedule
from rota.model.transitions import PENDING
from rota.storage import operations
from rota.storage.operations.claiming import LogLine
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
    ledger,
    put_schedule,
    settle,
    tick,
    together,
)

DAY = 86_400.0
SECOND = timedelta(seconds=1)


def ended(store: Store, kind: str = "succeeded", **options: object) -> str:
    run_id = enqueue(store, **options)
    settle(store, claim_one(store), kind, retry=ONCE)
    return run_id


def prune(store: Store, state: str = "succeeded", keep_last: int = 0, limit: int = 100) -> int:
    return store.write(
        operations.prune_runs, state, age_seconds=DAY, keep_last=keep_last, limit=limit
    )


def test_a_run_is_kept_for_its_time(store: Store, clock: VirtualClock) -> None:
    run_id = ended(store)
    clock.advance("1d")
    assert prune(store) == 0
    clock.advance("1us")
    assert prune(store) == 1
    assert prune(store) == 0
    with pytest.raises(Unknown, match=run_id):
        store.read(operations.get_run, run_id)


def test_each_state_is_pruned_on_its_own(store: Store, clock: VirtualClock) -> None:
    ended(store, "succeeded")
    ended(store, "failed")
    ended(store, "cancelled")
    clock.advance("2d")
    assert prune(store, "dead") == 1
    assert [run.state for run in all_runs(store)] == ["succeeded", "cancelled"]
    assert prune(store, "cancelled") == prune(store, "succeeded") == 1


def test_what_has_not_ended_is_never_pruned(store: Store, clock: VirtualClock) -> None:
    enqueue_many(store, 2, concurrency_key="c")
    enqueue(store, due_at=clock.after("9d"))
    store.write(operations.pause_run, enqueue(store), None, ME)
    claim(store, 1)
    clock.advance("2d")
    before = all_runs(store)
    assert {run.state for run in before} == {"running", "held", "waiting", "paused"}
    for state in (*PENDING, "running", "paused", "succeeded"):
        assert prune(store, state) == 0
    assert all_runs(store) == before


def test_the_last_runs_of_each_job_are_kept(store: Store, clock: VirtualClock) -> None:
    ids = [ended(store) for _ in range(4)]
    for _ in range(2):
        enqueue(store, job="other")
        settle(store, claim(store, jobs=["other"])[0])
    clock.advance("2d")
    assert prune(store, keep_last=2) == 2
    assert [run.id for run in all_runs(store, job="job")] == ids[2:]
    assert len(all_runs(store, job="other")) == 2


def test_prune_is_bounded_and_takes_the_oldest_first(store: Store, clock: VirtualClock) -> None:
    ids = [ended(store) for _ in range(3)]
    clock.advance("2d")
    assert prune(store, limit=2) == 2
    assert [run.id for run in all_runs(store)] == ids[2:]


def test_all_that_belongs_to_a_run_goes_with_it(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    enqueue(store, key="k", concurrency_key="c")
    run = claim_one(store)
    store.write(
        operations.insert_logs,
        [LogLine(run_seq=run.seq, attempt=1, at=clock(), level="info", text="hello")],
    )
    settle(store, run, "failed", retry=ONCE)
    clock.advance("2d")
    assert prune(store, "dead") == 1
    for table in ("runs", "attempts", "logs", "run_keys", "slots"):
        assert place.execute(f"SELECT count(*) FROM {place.table(table)}") == [(0,)], table


def test_the_ledger_outlives_the_run(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store)
    clock.advance("10s")
    tick(store)
    settle(store, claim_one(store))
    before = ledger(store, schedule)
    clock.advance("2d")
    assert prune(store) == 1
    assert ledger(store, schedule) == before != []


def test_many_pruners_prune_each_run_once(store: Store, place: Place, clock: VirtualClock) -> None:
    enqueue_many(store, 30)
    for run in claim(store, 30):
        settle(store, run)
    clock.advance("2d")
    stores = [place.open() for _ in range(4)]
    pruned = together(*[lambda one=one: prune(one) for one in stores])
    assert sum(pruned) + prune(store) == 30


# The ledger


def fold(store: Store, schedule: Schedule, limit: int = 9) -> int:
    return store.write(
        operations.fold_ledger, schedule.id, age_seconds=DAY, keep_rows=100, limit=limit
    )


def test_old_ledger_rows_fold_in_bounded_batches(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store, overlap="allow", catch_up="all")
    clock.advance("50s")
    tick(store)
    clock.advance("1d")
    assert fold(store, schedule) == 0
    clock.advance("1us")
    assert fold(store, schedule, limit=3) == 2
    assert fold(store, schedule, limit=3) == 2
    assert [row["count"] for row in ledger(store, schedule)] == [5]
    assert fold(store, schedule) == 0


def test_the_ledger_is_never_folded_past_the_cursor(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store, overlap="allow", catch_up="all")
    clock.advance("20s")
    tick(store)
    row = {
        "schedule_id": schedule.id, "occurrence": clock.after("1s"),
        "last_occurrence": clock.after("1d"), "count": 3, "outcome": "fired", "reason": None,
        "run_id": None,
    }  # fmt: skip
    store.engine.write("leave", lambda tx: tx.many("insert_occurrences", [row]))
    clock.advance("2d")
    assert fold(store, schedule) == 1
    assert sorted(one["count"] for one in ledger(store, schedule)) == [2, 3]


def test_the_ledger_of_a_dropped_schedule_ages_like_any_other(
    store: Store, clock: VirtualClock
) -> None:
    schedule = put_schedule(store, overlap="allow", catch_up="all")
    clock.advance("20s")
    tick(store)
    store.write(operations.drop_schedule, "schedule", None, ME)
    assert len(ledger(store, schedule)) == 2
    clock.advance("2d")
    assert fold(store, schedule) == 1
    assert [row["count"] for row in ledger(store, schedule)] == [2]


def test_a_step_folds_one_batch_and_is_followed_at_once(
    store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = put_schedule(store, overlap="allow", catch_up="all")
    clock.advance("90s")
    tick(store)
    before = len(ledger(store, schedule))
    clock.advance("91d")
    monkeypatch.setattr(pruning, "BATCH", 3)
    steps, pauses, rows = Prune(store, interval=60.0), [], []
    while not pauses or pauses[-1] == 0.0:
        pauses.append(steps.step())
        rows.append(len(ledger(store, schedule)))
    assert rows[0] == before - 2
    assert rows[-1] == 1
    assert pauses == [0.0] * (len(pauses) - 1) + [60.0]


def test_a_step_counts_one_long_stretch_and_is_followed_at_once(
    store: Store, clock: VirtualClock
) -> None:
    schedules = [
        put_schedule(store, f"s{number}", kind="cron", expr="*/5 * * * * *", catch_up="one")
        for number in range(3)
    ]
    clock.advance("14d")
    tick(store)

    def uncounted() -> int:
        return sum(row["count"] is None for one in schedules for row in ledger(store, one))

    assert uncounted() == 3
    steps, left, pauses = Prune(store, interval=60.0), [], []
    while not pauses or pauses[-1] == 0.0:
        pauses.append(steps.step())
        left.append(uncounted())
    assert (left, pauses) == ([2, 1, 0, 0], [0.0, 0.0, 0.0, 60.0])
