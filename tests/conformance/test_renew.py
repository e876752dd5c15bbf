"""Renew, and what a worker writes while it runs: only the holder of the lease is heard."""

from __future__ import annotations

from datetime import timedelta

from rota.storage import operations
from rota.storage.operations.claiming import LogLine, Renewed
from rota.storage.store import Store
from tests.conformance.support import (
    LEASE,
    ME,
    VirtualClock,
    as_claimed,
    claim,
    claim_one,
    enqueue,
    enqueue_many,
    rescue,
    settle,
)

MINUTE = timedelta(minutes=1)


def test_a_renewal_extends_the_lease_from_now(store: Store, clock: VirtualClock) -> None:
    enqueue_many(store, 3)
    held = claim(store)
    clock.advance("10s")
    answer = store.write(operations.renew, [(run.seq, run.attempt) for run in held], MINUTE)
    assert {one.seq for one in answer} == {run.seq for run in held}
    assert {store.read(operations.get_run, run.id).lease_until for run in held} == {
        clock() + MINUTE
    }
    clock.advance("59s")
    assert store.read(operations.expired_runs, 10) == []


def test_a_lease_that_ended_is_renewed_while_nobody_took_the_run(
    store: Store, clock: VirtualClock
) -> None:
    enqueue(store)
    run = claim_one(store)
    clock.advance("1h")
    assert store.write(operations.renew, [(run.seq, run.attempt)], LEASE) == [
        Renewed(run.seq, False, False)
    ]
    assert rescue(store) == []


def test_a_renewal_tells_of_a_cancel(store: Store) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    store.write(operations.cancel_run, run_id, None, ME)
    assert store.write(operations.renew, [(run.seq, run.attempt)], LEASE) == [
        Renewed(run.seq, True, False)
    ]


def test_a_renewal_tells_of_a_pause(store: Store) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    store.write(operations.pause_run, run_id, None, ME)
    assert store.write(operations.renew, [(run.seq, run.attempt)], LEASE) == [
        Renewed(run.seq, False, True)
    ]


def test_cancels_are_told_between_renewals_too(store: Store) -> None:
    enqueue_many(store, 4)
    asked, left_alone, ended, unnamed = claim(store)
    for run in (asked, ended, unnamed):
        store.write(operations.cancel_run, run.id, None, ME)
    settle(store, ended, "cancelled")
    assert store.read(operations.cancel_requests, [asked.seq, left_alone.seq, ended.seq]) == [
        asked.seq
    ]
    assert store.read(operations.cancel_requests, []) == []


def test_lost_runs_are_not_answered(store: Store, clock: VirtualClock) -> None:
    enqueue_many(store, 4)
    mine, settled, rescued, taken = claim(store)
    settle(store, settled)
    clock.advance("30s")
    store.write(operations.renew, [(mine.seq, 1)], LEASE)
    rescue(store)
    (again,) = [run for run in claim(store, worker="another") if run.seq == taken.seq]
    held = [(run.seq, run.attempt) for run in (taken, rescued, settled, mine)]
    assert store.write(operations.renew, held, MINUTE) == [Renewed(mine.seq, False, False)]
    assert store.read(operations.get_run, taken.id).lease_until == clock() + LEASE
    assert again.attempt == 2


def test_a_renewal_of_nothing_is_nothing(store: Store) -> None:
    assert store.write(operations.renew, [], LEASE) == []
    assert store.write(operations.renew, [(123, 1)], LEASE) == []


# Progress and logs


def test_progress_is_the_last_word_of_the_holder(store: Store) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    store.write(operations.set_progress, run.seq, 1, "10 %")
    store.write(operations.set_progress, run.seq, 1, "20 %, läuft")
    store.write(operations.set_progress, run.seq, 2, "from the future")
    assert store.read(operations.get_run, run_id).progress == "20 %, läuft"
    settle(store, run, "released")
    store.write(operations.set_progress, run.seq, 1, "late")
    assert store.read(operations.get_run, run_id).progress == "20 %, läuft"


def test_log_lines_come_back_in_order_and_in_pages(store: Store, clock: VirtualClock) -> None:
    enqueue_many(store, 2)
    run, other = claim(store)
    lines = [
        LogLine(run_seq=run.seq, attempt=1, at=clock.after("1us"), level="info", text=f"line {n}")
        for n in range(5)
    ]
    store.write(operations.insert_logs, lines)
    store.write(
        operations.insert_logs,
        [LogLine(run_seq=other.seq, attempt=1, at=clock(), level="error", text="x")],
    )
    store.write(operations.insert_logs, [])
    page = store.read(operations.list_logs, run.seq, limit=3)
    assert [line["text"] for line in page] == ["line 0", "line 1", "line 2"]
    assert {(line["attempt"], line["at"], line["level"]) for line in page} == {
        (1, clock.after("1us"), "info")
    }
    rest = store.read(operations.list_logs, run.seq, after=page[-1]["id"], limit=3)
    assert [line["text"] for line in rest] == ["line 3", "line 4"]


def test_a_renewal_changes_nothing_but_the_lease(store: Store) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    store.write(operations.renew, [(run.seq, run.attempt)], MINUTE)
    assert as_claimed(store.read(operations.get_run, run_id)) == run
