"""Promote: runs whose time has come enter the queue, or the line for the slot they want."""

from __future__ import annotations

from datetime import timedelta

from rota.storage import operations
from rota.storage.store import Store
from tests.conformance.support import (
    Place,
    VirtualClock,
    all_runs,
    claim_one,
    enqueue,
    enqueue_many,
    settle,
    slots,
    states,
    together,
)

HOUR = timedelta(hours=1)


def test_a_run_enters_the_queue_when_it_is_due(store: Store, clock: VirtualClock) -> None:
    run_id = enqueue(store, delay=HOUR)
    clock.advance("59m59.999999s")
    assert store.write(operations.promote, 10) == 0
    clock.advance("1us")
    assert store.write(operations.promote, 10) == 1
    assert store.write(operations.promote, 10) == 0
    run = store.read(operations.get_run, run_id)
    assert (run.state, run.due_at, run.queued_at) == ("queued", clock(), clock())


def test_promote_is_bounded_and_takes_the_earliest_first(store: Store, clock: VirtualClock) -> None:
    late, early = enqueue(store, delay=2 * HOUR), enqueue(store, delay=HOUR)
    clock.advance("3h")
    assert store.write(operations.promote, 1) == 1
    assert states(store, [early, late]) == ["queued", "waiting"]
    assert [store.write(operations.promote, 1), store.write(operations.promote, 1)] == [1, 0]


def test_the_next_due_instant_is_known(store: Store, clock: VirtualClock) -> None:
    assert store.read(operations.next_due_at) == (clock(), None)
    enqueue(store, delay=2 * HOUR)
    enqueue(store, delay=HOUR)
    enqueue(store)
    assert store.read(operations.next_due_at) == (clock(), clock.after("1h"))


def test_a_due_run_takes_its_free_slot_at_once(store: Store, clock: VirtualClock) -> None:
    run_id = enqueue(store, delay=HOUR, concurrency_key="c")
    assert slots(store, "c/c") == []  # it takes nothing while it waits
    clock.advance("1h")
    assert store.write(operations.promote, 10) == 1
    assert states(store, [run_id]) == ["queued"]
    assert slots(store, "c/c") == [1]


def test_a_due_run_whose_slot_is_taken_is_held(store: Store, clock: VirtualClock) -> None:
    run_id = enqueue(store, delay=HOUR, concurrency_key="c")
    enqueue(store, concurrency_key="c")
    clock.advance("1h")
    assert store.write(operations.promote, 10) == 1
    assert states(store, [run_id]) == ["held"]
    settle(store, claim_one(store))
    assert states(store, [run_id]) == ["queued"]


def test_a_retry_that_kept_its_slot_goes_straight_into_the_queue(
    store: Store, clock: VirtualClock
) -> None:
    first, second = enqueue_many(store, 2, concurrency_key="c")
    settle(store, claim_one(store), "failed")
    clock.advance("1s")
    store.write(operations.promote, 10)
    assert states(store, [first, second]) == ["queued", "held"]


def test_many_promoters_promote_each_run_once(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    enqueue_many(store, 40, delay=HOUR)
    clock.advance("1h")
    stores = [place.open() for _ in range(4)]
    promoted = together(*[lambda one=one: one.write(operations.promote, 10) for one in stores])
    assert sum(promoted) + store.write(operations.promote, 100) == 40
    assert {run.state for run in all_runs(store)} == {"queued"}
