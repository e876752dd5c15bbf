"""Enqueue: runs are inserted once, however often the call is repeated."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rota.errors import StorageError
from rota.storage import operations
from rota.storage.store import Store
from tests.conformance.support import (
    ME,
    Place,
    VirtualClock,
    alike,
    all_runs,
    claim,
    claim_one,
    enqueue,
    enqueue_many,
    new_run,
    settle,
    states,
    together,
)

HOUR = timedelta(hours=1)


def test_a_run_is_queued_at_once(store: Store, clock: VirtualClock) -> None:
    run = store.read(operations.get_run, enqueue(store))
    assert (run.state, run.attempt, run.failures, run.lost) == ("queued", 0, 0, 0)
    assert run.due_at == run.created_at == run.queued_at == clock()


def test_everything_the_caller_said_is_kept(store: Store) -> None:
    told = new_run(
        queue="heavy",
        args='{"n":1}',
        priority=-3,
        max_attempts=7,
        timeout=timedelta(seconds=90),
        backoff='{"delay":"5s"}',
        overlap_key="o",
        concurrency_key="c",
        concurrency_limit=4,
        schedule_id=12,
        retry_of="run-before",
        created_by="somebody",
        correlation_id="order-7",
        trace="00-ab-cd-01",
    )
    store.write(operations.enqueue, [told])
    run = store.read(operations.get_run, told.id)
    for name in (
        "queue", "priority", "max_attempts", "timeout", "overlap_key", "concurrency_key",
        "concurrency_limit", "schedule_id", "retry_of", "created_by", "correlation_id", "trace",
    ):  # fmt: skip
        assert getattr(run, name) == getattr(told, name), name
    assert (json.loads(run.args), run.backoff) == ({"n": 1}, told.backoff)


@pytest.mark.parametrize(
    "text", ["Grüße, 世界 🎉", "a\0b", "'; DROP TABLE runs; --", "%s {prefix}"]
)
def test_any_text_in_the_arguments_comes_back(store: Store, text: str) -> None:
    enqueue(store, args=json.dumps({"text": text, "big": 2**63 + 1, "deep": [[{}]]}))
    assert json.loads(claim_one(store).args) == {"text": text, "big": 2**63 + 1, "deep": [[{}]]}


@pytest.mark.parametrize(
    ("option", "state"),
    [({"delay": HOUR}, "waiting"), ({"delay": timedelta(0)}, "queued"), ({}, "queued")],
)
def test_a_delay_puts_the_run_into_the_future(
    store: Store, clock: VirtualClock, option: dict[str, timedelta], state: str
) -> None:
    run = store.read(operations.get_run, enqueue(store, **option))
    assert (run.state, run.due_at) == (state, clock() + option.get("delay", timedelta(0)))
    assert (run.queued_at is None) == (state == "waiting")


def test_due_at_decides_between_waiting_and_queued(store: Store, clock: VirtualClock) -> None:
    later = enqueue(store, due_at=clock.after("1us"))
    now = enqueue(store, due_at=clock())
    past = enqueue(store, due_at=clock() - HOUR)
    assert states(store, [later, now, past]) == ["waiting", "queued", "queued"]


def test_runs_of_one_call_keep_their_order(store: Store) -> None:
    ids = enqueue_many(store, 500)
    assert [run.id for run in all_runs(store)] == ids
    assert [run.id for run in claim(store, 500)] == ids


@pytest.mark.parametrize(
    "option",
    [
        {},
        {"args": '{"n":1}', "queue": "heavy", "priority": 3, "max_attempts": 7, "created_by": "me"},
        {"delay": HOUR},
        {"timeout": HOUR},
        {"backoff": '{"delay":"5s"}'},
        {"concurrency_limit": 2},
        {"retry_of": "another"},
        {"correlation_id": "c"},
        {"trace": "t"},
    ],
    ids=lambda option: next(iter(option), "plain"),
)
def test_one_alone_is_stored_as_one_of_many(store: Store, option: dict[str, Any]) -> None:
    """Whichever statement is the shortest for it, and whether others are told of it or not."""
    store.write(operations.enqueue, [new_run(**option)])
    for count, notify in [(1, True), (1, False), (2, True)]:
        store.write(operations.enqueue, alike(count, **option), notify=notify)
    first, *others = [replace(run, seq=0, id="", args="") for run in all_runs(store)]
    assert others == [first] * 4


def test_an_enqueue_of_nothing_is_nothing(store: Store) -> None:
    assert store.write(operations.enqueue, []) == []


@pytest.mark.parametrize(
    "option", [{}, {"key": "k"}, {"concurrency_key": "c"}], ids=["plain", "key", "slot"]
)
def test_the_same_call_again_inserts_nothing(store: Store, option: dict[str, str]) -> None:
    told = new_run(**option)
    first = store.write(operations.enqueue, [told])
    assert store.write(operations.enqueue, [told]) == first
    assert first[0].created
    assert [run.id for run in all_runs(store)] == [told.id]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("option", [{}, {"concurrency_key": "c"}], ids=["plain", "slot"])
def test_the_same_bulk_again_inserts_nothing(
    store: Store, count: int, option: dict[str, str]
) -> None:
    told = alike(count, **option)
    first = store.write(operations.enqueue, told)
    assert store.write(operations.enqueue, told) == first
    assert [run.id for run in all_runs(store)] == list(told.ids)


@pytest.mark.own_store  # its sequence has given out no number
@pytest.mark.parametrize("count", [1, 3])
def test_numbers_that_were_given_out_before_are_told_and_nothing_is_lost(
    store: Store, place: Place, count: int
) -> None:
    """After a restore, or on a replica that became the server: sequences are not replicated."""
    if place.engine != "postgres":
        pytest.skip("the others count by their rows")
    ids = enqueue_many(store, 3)
    place.execute("SELECT setval('rota_data.runs_seq', 1, false)")
    with pytest.raises(StorageError, match=r"run(s|_ids)_pkey"):
        enqueue_many(store, count)
    assert [run.id for run in all_runs(store)] == ids


def test_a_repeat_does_not_bring_back_a_run_that_went_on(store: Store) -> None:
    told = new_run()
    store.write(operations.enqueue, [told])
    settle(store, claim_one(store))
    store.write(operations.enqueue, [told])
    assert states(store, [told.id]) == ["succeeded"]


# Idempotency keys


def test_the_same_key_returns_the_first_run(store: Store) -> None:
    first, second = (store.write(operations.enqueue, [new_run(key="order-7")])[0] for _ in range(2))
    assert (first.created, second.created) == (True, False)
    assert second.id == first.id
    assert len(all_runs(store)) == 1


def test_the_same_key_within_one_call_makes_one_run(store: Store) -> None:
    made = store.write(
        operations.enqueue, [new_run(key="k"), new_run(key="k"), new_run(key="l"), new_run()]
    )
    assert [one.created for one in made] == [True, False, True, True]
    assert made[1].id == made[0].id
    assert len(all_runs(store)) == 3


def test_a_key_belongs_to_its_job(store: Store) -> None:
    assert store.write(operations.enqueue, [new_run(key="k")])[0].created
    assert store.write(operations.enqueue, [new_run(key="k", job="other")])[0].created


def test_a_key_lasts_longer_than_the_work(store: Store) -> None:
    first = enqueue(store, key="k")
    settle(store, claim_one(store))
    assert enqueue(store, key="k") == first


def test_a_key_with_a_time_is_free_after_it(store: Store, clock: VirtualClock) -> None:
    first = enqueue(store, key="k", key_ttl=HOUR)
    clock.advance("59m")
    assert enqueue(store, key="k", key_ttl=HOUR) == first
    clock.advance("1m")
    second = enqueue(store, key="k", key_ttl=HOUR)
    assert second != first
    clock.advance("59m")
    assert enqueue(store, key="k", key_ttl=HOUR) == second


def test_a_key_without_a_time_lasts_until_its_run_is_deleted(
    store: Store, clock: VirtualClock
) -> None:
    first = enqueue(store, key="k")
    clock.advance("3650d")
    assert enqueue(store, key="k") == first
    store.write(operations.delete_run, first, None, ME)
    assert enqueue(store, key="k") != first


def test_deleting_a_run_leaves_a_key_that_another_run_took_over(
    store: Store, clock: VirtualClock
) -> None:
    first = enqueue(store, key="k", key_ttl=HOUR)
    clock.advance("1h")
    second = enqueue(store, key="k", key_ttl=HOUR)
    store.write(operations.delete_run, first, None, ME)
    assert enqueue(store, key="k", key_ttl=HOUR) == second


def test_a_key_given_by_many_at_once_makes_one_run(store: Store, place: Place) -> None:
    stores = [place.open() for _ in range(4)]
    made = together(
        *[
            lambda one=one: one.write(operations.enqueue, [new_run(key="k")])[0]
            for one in stores * 2
        ]
    )
    assert [one.created for one in made].count(True) == 1
    assert len({one.id for one in made}) == len(all_runs(store)) == 1


# Queues


def test_a_run_in_a_queue_nobody_made_waits_for_it(store: Store) -> None:
    run_id = enqueue(store, queue="fresh")
    assert claim(store) == []
    store.write(operations.ensure_queues, ["fresh", "fresh", "default"])
    assert [run.id for run in claim(store)] == [run_id]
    assert [queue["name"] for queue in store.read(operations.list_queues, limit=9)] == [
        "default",
        "fresh",
    ]
