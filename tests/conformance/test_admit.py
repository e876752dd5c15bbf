"""Slots: a key lets so many runs through at a time, first in, first out, and loses nobody."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from rota.model.outcome import Outcome
from rota.model.outcome import settle as decide
from rota.model.retry import ONCE
from rota.storage import operations
from rota.storage.store import Store
from tests.conformance.support import (
    ME,
    PATIENCE,
    Place,
    VirtualClock,
    all_runs,
    claim,
    claim_one,
    enqueue,
    enqueue_many,
    new_run,
    rescue,
    settle,
    slots,
    states,
    together,
)


def held_by_caller(store: Store, place: Place, count: int, **options: object) -> list[str]:
    """Runs that wait for slots nobody has taken: a caller's transaction left them so."""
    caller = place.begin()
    made = store.enqueue_on(caller, [new_run(**options) for _ in range(count)])
    caller.commit()
    caller.close()
    return [one.id for one in made]


# Limits


def test_a_key_lets_one_run_through(store: Store) -> None:
    ids = enqueue_many(store, 3, concurrency_key="c")
    assert states(store, ids) == ["queued", "held", "held"]
    assert slots(store, "c/c") == [1]
    assert len(claim(store)) == 1


def test_a_key_lets_as_many_through_as_its_limit(store: Store) -> None:
    ids = enqueue_many(store, 5, concurrency_key="c", concurrency_limit=3)
    assert states(store, ids) == ["queued"] * 3 + ["held"] * 2
    assert slots(store, "c/c") == [1, 2, 3]


def test_keys_do_not_disturb_each_other(store: Store) -> None:
    ids = [enqueue(store, concurrency_key=key) for key in ("a", "b", "c")]
    ids += [enqueue(store, overlap_key=key) for key in ("a", "b")]
    assert states(store, ids) == ["queued"] * 5


def test_a_run_that_wants_more_room_waits_at_the_head_of_the_line(store: Store) -> None:
    first = enqueue(store, concurrency_key="c", concurrency_limit=1)
    narrow = enqueue(store, concurrency_key="c", concurrency_limit=1)
    wide = enqueue(store, concurrency_key="c", concurrency_limit=9)
    assert states(store, [first, narrow, wide]) == ["queued", "held", "held"]
    settle(store, claim_one(store))
    assert states(store, [narrow, wide]) == ["queued", "queued"]


def test_many_admitters_never_pass_the_limit(store: Store, place: Place) -> None:
    ids = held_by_caller(store, place, 20, concurrency_key="c", concurrency_limit=3)
    stores = [place.open() for _ in range(4)]
    together(*[lambda one=one: one.write(operations.admit, ["c/c"]) for one in stores])
    store.write(operations.admit, ["c/c"])
    assert states(store, ids) == ["queued"] * 3 + ["held"] * 17
    assert slots(store, "c/c") == [1, 2, 3]


def test_enqueues_at_once_never_pass_the_limit(store: Store, place: Place) -> None:
    stores = [place.open() for _ in range(4)]
    together(*[lambda one=one: enqueue_many(one, 5, concurrency_key="c") for one in stores])
    store.write(operations.admit, ["c/c"])
    found = [run.state for run in all_runs(store)]
    assert (found.count("queued"), found.count("held")) == (1, 19)


# The line


def test_the_line_is_first_in_first_out(store: Store) -> None:
    ids = enqueue_many(store, 4, concurrency_key="c")
    done = []
    for _ in ids:
        run = claim_one(store)
        settle(store, run)
        done.append(run.id)
    assert done == ids


def test_a_higher_priority_waits_in_front(store: Store) -> None:
    enqueue(store, concurrency_key="c")
    low = enqueue(store, concurrency_key="c")
    high = enqueue(store, concurrency_key="c", priority=5)
    settle(store, claim_one(store))
    assert states(store, [low, high]) == ["held", "queued"]


def test_a_new_run_does_not_pass_those_that_wait(store: Store, place: Place) -> None:
    (waiting,) = held_by_caller(store, place, 1, concurrency_key="c")
    late = enqueue(store, concurrency_key="c")
    assert states(store, [waiting, late]) == ["queued", "held"]


def test_admit_gives_free_slots_to_those_who_wait_longest(store: Store, place: Place) -> None:
    ids = held_by_caller(store, place, 3, concurrency_key="c", concurrency_limit=2)
    assert store.write(operations.admit, ["c/c", "c/nobody"]) == 2
    assert states(store, ids) == ["queued", "queued", "held"]
    assert store.write(operations.admit, ["c/c"]) == 0


def test_held_keys_are_told_once_each_in_pages(store: Store, place: Place) -> None:
    for key in ("b", "a", "c"):
        held_by_caller(store, place, 2, concurrency_key=key)
    held_by_caller(store, place, 1, overlap_key="z")
    assert store.read(operations.held_keys, "", 10) == ["c/a", "c/b", "c/c", "o/z"]
    assert store.read(operations.held_keys, "", 2) == ["c/a", "c/b"]
    assert store.read(operations.held_keys, "c/b", 2) == ["c/c", "o/z"]
    store.write(operations.admit, ["c/a"])
    store.write(operations.cancel_run, all_runs(store)[-1].id, None, ME)
    assert store.read(operations.held_keys, "", 10) == ["c/a", "c/b", "c/c"]


def test_who_owns_a_key_and_who_waits_for_it_is_known(store: Store) -> None:
    ids = enqueue_many(store, 5, concurrency_key="c", concurrency_limit=2)
    assert sorted(run.id for run in store.read(operations.slot_owners, "c/c")) == sorted(ids[:2])
    assert store.read(operations.count_held, "c/c") == 3
    assert (
        store.read(operations.slot_owners, "c/d"),
        store.read(operations.count_held, "c/d"),
    ) == ([], 0)


# Handing on


@pytest.mark.parametrize("kind", ["succeeded", "failed", "timed_out", "cancelled"])
def test_settle_hands_the_slot_to_the_next(store: Store, kind: str) -> None:
    _, second, third = enqueue_many(store, 3, concurrency_key="c")
    settle(store, claim_one(store), kind, retry=ONCE)
    assert states(store, [second, third]) == ["queued", "held"]
    assert slots(store, "c/c") == [1]


def test_a_late_settle_hands_nothing_on(store: Store) -> None:
    first, second = enqueue_many(store, 2, concurrency_key="c")
    run = claim_one(store)
    settle(store, run, "released")
    assert settle(store, claim_one(store)) != []
    assert settle(store, run) == []
    assert states(store, [first, second]) == ["succeeded", "queued"]
    assert slots(store, "c/c") == [1]


@pytest.mark.parametrize("state", ["queued", "paused"])
def test_cancel_hands_the_slot_to_the_next(store: Store, state: str) -> None:
    first, second = enqueue_many(store, 2, concurrency_key="c")
    if state == "paused":
        store.write(operations.pause_run, first, None, ME)
    store.write(operations.cancel_run, first, None, ME)
    assert states(store, [first, second]) == ["cancelled", "queued"]


def test_delete_hands_the_slot_to_the_next(store: Store) -> None:
    first, second = enqueue_many(store, 2, concurrency_key="c")
    store.write(operations.delete_run, first, None, ME)
    assert states(store, [second]) == ["queued"]


def test_cancel_of_a_waiting_run_frees_nothing(store: Store) -> None:
    first, second, third = enqueue_many(store, 3, concurrency_key="c")
    store.write(operations.cancel_run, second, None, ME)
    assert states(store, [first, second, third]) == ["queued", "cancelled", "held"]


def test_a_retry_keeps_its_slot(store: Store, clock: VirtualClock) -> None:
    first, second = enqueue_many(store, 2, concurrency_key="c")
    settle(store, claim_one(store), "failed")
    assert states(store, [first, second]) == ["waiting", "held"]
    assert slots(store, "c/c") == [1]
    clock.advance("1s")
    store.write(operations.promote, 10)
    assert claim_one(store).id == first


@pytest.mark.parametrize("kind", ["released", "paused"])
def test_an_interrupted_run_keeps_its_slot(store: Store, kind: str) -> None:
    _, second = enqueue_many(store, 2, concurrency_key="c")
    settle(store, claim_one(store), kind)
    assert states(store, [second]) == ["held"]
    assert slots(store, "c/c") == [1]


def test_a_lost_run_keeps_its_slot_until_it_is_dead(store: Store, clock: VirtualClock) -> None:
    first, second = enqueue_many(store, 2, concurrency_key="c")
    for wanted in (["queued", "held"], ["dead", "queued"]):
        claim_one(store)
        clock.advance("30s")
        rescue(store, max_lost=2)
        assert states(store, [first, second]) == wanted


def test_a_snoozed_run_gives_its_slot_back(store: Store, clock: VirtualClock) -> None:
    first, second = enqueue_many(store, 2, concurrency_key="c")
    settle(store, claim_one(store), "snoozed", after=timedelta(seconds=10))
    assert states(store, [first, second]) == ["waiting", "queued"]
    clock.advance("10s")
    store.write(operations.promote, 10)
    assert states(store, [first, second]) == ["held", "queued"]
    settle(store, claim_one(store))
    assert states(store, [first]) == ["queued"]


def test_a_redo_stands_in_line_again(store: Store) -> None:
    first, second = enqueue_many(store, 2, concurrency_key="c")
    settle(store, claim_one(store))
    store.write(operations.redo_run, first, None, ME)
    store.write(operations.promote, 10)
    assert states(store, [first, second]) == ["held", "queued"]
    settle(store, claim_one(store))
    assert states(store, [first]) == ["queued"]


def test_a_paused_run_keeps_what_it_has_and_takes_nothing(store: Store) -> None:
    owner, waiter = enqueue_many(store, 2, concurrency_key="c")
    store.write(operations.pause_run, waiter, None, ME)
    settle(store, claim_one(store))
    assert states(store, [owner, waiter]) == ["succeeded", "paused"]
    assert slots(store, "c/c") == []
    store.write(operations.resume_run, waiter, None, ME)
    store.write(operations.promote, 10)
    assert states(store, [waiter]) == ["queued"]
    store.write(operations.pause_run, waiter, None, ME)
    assert states(store, [enqueue(store, concurrency_key="c")]) == ["held"]
    store.write(operations.resume_run, waiter, None, ME)
    store.write(operations.promote, 10)
    assert states(store, [waiter]) == ["queued"]


def test_a_run_that_comes_while_a_slot_is_handed_on_is_not_left_in_line(
    store: Store, place: Place
) -> None:
    """The transaction that gives out slots of a key reads its line after others have committed."""
    if place.engine != "postgres" or place.fast_paths:
        pytest.skip("one writer, or one statement, which cannot wait and then read what is new")
    enqueue_many(store, 1, concurrency_key="c")
    (run,) = claim(store)
    at_the_line, go_on = threading.Event(), threading.Event()

    def stop_there(point: str) -> None:
        if point == "settling.settle.held_runs.after":
            at_the_line.set()
            assert go_on.wait(PATIENCE)

    other = place.open(probe=stop_there)
    end = decide(run, Outcome(kind="failed"), retry=ONCE, max_lost=3)
    with ThreadPoolExecutor(2) as pool:
        ended = pool.submit(lambda: other.write(operations.settle, [end]))
        assert at_the_line.wait(PATIENCE)
        comes = pool.submit(lambda: enqueue_many(store, 1, concurrency_key="c"))
        waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while not place.execute(waits):
            assert not comes.done()
        go_on.set()
        ended.result(PATIENCE)
        assert states(store, comes.result(PATIENCE)) == ["queued"]


# Two keys


def test_a_run_takes_both_its_slots(store: Store) -> None:
    run_id = enqueue(store, overlap_key="o", concurrency_key="c")
    assert states(store, [run_id]) == ["queued"]
    assert (slots(store, "o/o"), slots(store, "c/c")) == ([1], [1])
    settle(store, claim_one(store))
    assert (slots(store, "o/o"), slots(store, "c/c")) == ([], [])


def test_a_run_that_waits_for_its_second_slot_holds_the_first(store: Store) -> None:
    blocker = enqueue(store, concurrency_key="c")
    both = enqueue(store, overlap_key="o", concurrency_key="c")
    behind = enqueue(store, overlap_key="o")
    assert states(store, [blocker, both, behind]) == ["queued", "held", "held"]
    assert store.read(operations.get_run, both).wanted_key == "c/c"
    settle(store, claim_one(store))
    assert states(store, [both, behind]) == ["queued", "held"]
    settle(store, claim_one(store))
    assert states(store, [behind]) == ["queued"]


def test_cancel_gives_back_the_first_of_two_slots(store: Store) -> None:
    enqueue(store, concurrency_key="c")
    both = enqueue(store, overlap_key="o", concurrency_key="c")
    behind = enqueue(store, overlap_key="o")
    store.write(operations.cancel_run, both, None, ME)
    assert states(store, [behind]) == ["queued"]


def test_a_run_admitted_to_its_first_slot_goes_on_to_the_second(store: Store) -> None:
    enqueue(store, overlap_key="o")
    both = enqueue(store, overlap_key="o", concurrency_key="c")
    settle(store, claim_one(store))
    assert states(store, [both]) == ["queued"]
    assert (slots(store, "o/o"), slots(store, "c/c")) == ([1], [1])


def test_runs_with_crossed_keys_all_end(store: Store) -> None:
    for _ in range(5):
        enqueue(store, overlap_key="x", concurrency_key="y")
        enqueue(store, overlap_key="y", concurrency_key="x")
        enqueue(store, concurrency_key="x")
        enqueue(store, overlap_key="x")
    for _ in range(20):
        settle(store, claim_one(store))
    assert {run.state for run in all_runs(store)} == {"succeeded"}
