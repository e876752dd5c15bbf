"""Rescue and repair: what dead processes left behind, found by anybody, as often as they like."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.model.outcome import Outcome
from rota.model.outcome import settle as decide
from rota.model.retry import ONCE, Retry
from rota.model.schedule import WAITING_FOR_RUN
from rota.storage import operations
from rota.storage.store import Store
from tests.conformance.support import (
    LEASE,
    ME,
    Place,
    VirtualClock,
    all_runs,
    claim,
    claim_one,
    enqueue,
    enqueue_many,
    new_run,
    overwrite,
    put_schedule,
    rescue,
    settle,
    slots,
    states,
    sweep,
    tick,
    together,
    worker_row,
)

LOST = Outcome(kind="lost", error="lease expired")


def test_a_lease_holds_until_its_last_moment(store: Store, clock: VirtualClock) -> None:
    run_id = enqueue(store)
    claim_one(store)
    clock.advance("29.999999s")
    assert rescue(store) == []
    clock.advance("1us")
    assert len(rescue(store)) == 1
    assert rescue(store) == []
    assert states(store, [run_id]) == ["queued"]


def test_lost_attempts_are_counted_apart_from_failures(store: Store, clock: VirtualClock) -> None:
    run_id = enqueue(store, max_attempts=1)
    for lost in (1, 2, 3):
        run = claim_one(store)
        clock.advance("30s")
        rescue(store)
        assert (
            store.read(operations.get_run, run_id).lost,
            store.read(operations.get_run, run_id).failures,
        ) == (lost, 0)
    ended = store.read(operations.get_run, run_id)
    assert (ended.state, ended.error, ended.finished_at) == ("dead", "lease expired", clock())
    assert [row.outcome for row in store.read(operations.list_attempts, run.seq, limit=9)] == [
        "lost"
    ] * 3


def test_expired_runs_come_in_pages_the_oldest_first(store: Store, clock: VirtualClock) -> None:
    first, second, _ = enqueue_many(store, 3)
    for _ in range(3):
        claim(store, 1)
        clock.advance("1s")
    clock.advance("30s")
    assert [run.id for run in store.read(operations.expired_runs, 2)] == [first, second]


def test_a_renewal_after_the_look_saves_the_run(store: Store, clock: VirtualClock) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    clock.advance("30s")
    found = store.read(operations.expired_runs, 10)
    store.write(operations.renew, [(run.seq, run.attempt)], LEASE)
    assert (
        store.write(operations.settle, [decide(one, LOST, retry=ONCE, max_lost=1) for one in found])
        == []
    )
    assert (
        store.read(operations.get_run, run_id).state,
        store.read(operations.get_run, run_id).lost,
    ) == ("running", 0)


def test_a_run_lost_and_found_again_is_not_lost_twice(store: Store, clock: VirtualClock) -> None:
    run_id = enqueue(store)
    claim_one(store)
    clock.advance("30s")
    found = [
        decide(run, LOST, retry=Retry(), max_lost=3)
        for run in store.read(operations.expired_runs, 10)
    ]
    store.write(operations.settle, found)
    claim_one(store)
    clock.advance("30s")
    assert store.write(operations.settle, found) == []
    assert store.read(operations.get_run, run_id).lost == 1


def test_many_rescuers_rescue_each_run_once(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    enqueue_many(store, 20)
    claim(store, 20)
    clock.advance("30s")
    stores = [place.open() for _ in range(4)]
    saved = together(*[lambda one=one: len(rescue(one)) for one in stores])
    assert sum(saved) == 20
    assert {(run.state, run.lost) for run in all_runs(store)} == {("queued", 1)}


@pytest.mark.parametrize("request_first", ["cancel", "pause"])
def test_a_rescue_honours_what_was_asked(
    store: Store, clock: VirtualClock, request_first: str
) -> None:
    run_id = enqueue(store)
    claim_one(store)
    if request_first == "cancel":
        store.write(operations.cancel_run, run_id, None, ME)
    else:
        store.write(operations.pause_run, run_id, None, ME)
    clock.advance("30s")
    rescue(store)
    wanted = {"cancel": "cancelled", "pause": "paused"}[request_first]
    assert states(store, [run_id]) == [wanted]


# Repair


def leave_slot(place: Place, key: str, number: int, owner: int) -> None:
    place.execute(
        f"INSERT INTO {place.table('slots')} (key, number, owner_run)"
        f" VALUES ('{key}', {number}, {owner})"
    )


def test_slots_that_nobody_owns_are_freed(store: Store, place: Place) -> None:
    first, second = enqueue_many(store, 2, concurrency_key="c", concurrency_limit=2)
    third = enqueue(store, concurrency_key="c", concurrency_limit=3)
    settle(store, claim_one(store))
    gone, ended = 999_999, store.read(operations.get_run, first).seq
    leave_slot(place, "c/d", 1, gone)
    leave_slot(place, "c/d", 2, ended)
    waiting = enqueue(store, concurrency_key="d", concurrency_limit=1)
    assert states(store, [waiting]) == ["held"]
    assert sweep(store, 10) == 1
    assert states(store, [second, third, waiting]) == ["queued", "queued", "queued"]
    assert slots(store, "c/d") == [1]
    assert len(slots(store, "c/c")) == 2
    assert sweep(store, 10) == 0


def test_a_sweep_leaves_runs_between_attempts_their_slots(store: Store) -> None:
    retried = enqueue(store, concurrency_key="a")
    settle(store, claim_one(store), "failed")
    paused = enqueue(store, concurrency_key="b")
    store.write(operations.pause_run, paused, None, ME)
    both = [enqueue(store, overlap_key="o", concurrency_key="a")]
    assert states(store, [retried, paused, *both]) == ["waiting", "paused", "held"]
    assert sweep(store, 10) == 0
    assert [slots(store, key) for key in ("c/a", "c/b", "o/o")] == [[1], [1], [1]]


def test_a_delay_schedule_whose_run_is_gone_starts_again(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    put_schedule(store, anchor="delay")
    clock.advance("10s")
    tick(store)
    assert sweep(store, 10) == 0
    place.execute(f"DELETE FROM {place.table('runs')}")  # nobody of ours would leave it behind
    assert store.read(operations.schedule_named, "schedule").next_fire_at == WAITING_FOR_RUN
    assert sweep(store, 10) == 2, "and its slot is free"
    assert store.read(operations.schedule_named, "schedule").next_fire_at == clock.after("10s")
    assert sweep(store, 10) == 0


def test_a_schedule_that_cannot_be_read_does_not_stop_the_sweep(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    for name in ("bad", "good"):
        put_schedule(store, name, anchor="delay", overlap="allow")
    clock.advance("10s")
    assert tick(store) == 2
    place.execute(f"DELETE FROM {place.table('runs')}")
    overwrite(store, store.read(operations.schedule_named, "bad"), expr="?")
    sweep(store, 10)
    assert store.read(operations.schedule_named, "good").next_fire_at == clock.after("10s")


def test_a_sweep_is_bounded(store: Store, place: Place) -> None:
    for number in range(5):
        leave_slot(place, f"c/{number}", 1, 10**6 + number)
    assert [sweep(store, 2) for _ in range(4)] == [2, 2, 1, 0]


# Workers


def test_a_worker_says_that_it_is_alive(store: Store, clock: VirtualClock) -> None:
    store.write(operations.put_worker, worker_row("one"))
    started = clock()
    enqueue(store)
    claim(store, worker="one")
    clock.advance("10s")
    store.write(operations.put_worker, worker_row("one", slots=2, stuck=1, queues='["default"]'))
    (worker,) = store.read(operations.list_workers, limit=9)
    assert (worker["started_at"], worker["seen_at"]) == (started, clock())
    assert (worker["slots"], worker["stuck"], worker["running"]) == (2, 1, 1)
    assert (worker["jobs"], worker["queues"]) == (["job"], ["default"])


def test_workers_are_forgotten_when_they_say_goodbye_or_are_silent(
    store: Store, clock: VirtualClock
) -> None:
    for name in ("gone", "silent", "alive"):
        store.write(operations.put_worker, worker_row(name))
    store.write(operations.forget_worker, "gone")
    clock.advance("1m")
    store.write(operations.put_worker, worker_row("alive"))
    store.write(operations.forget_old_workers, timedelta(seconds=59).total_seconds())
    assert [worker["id"] for worker in store.read(operations.list_workers, limit=9)] == ["alive"]


def test_a_run_that_never_started_is_not_lost(store: Store, clock: VirtualClock) -> None:
    store.write(operations.enqueue, [new_run()])
    clock.advance("1000d")
    assert store.read(operations.expired_runs, 10) == []
