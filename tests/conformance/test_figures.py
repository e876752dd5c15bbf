"""Figures for metrics: what waits and since when, who works, what succeeded last, within limits."""

from __future__ import annotations

from typing import Any

import pytest

from rota.flow.fire import fire as fire_plans
from rota.storage import operations
from rota.storage.operations.dashboard import Figures
from rota.storage.store import Store
from tests.conformance.support import (
    ME,
    VirtualClock,
    all_runs,
    claim,
    claim_one,
    enqueue,
    enqueue_many,
    fire,
    overwrite,
    plans,
    put_job,
    put_schedule,
    settle,
)

WORKER: dict[str, Any] = {
    "host": "here", "pid": 1, "version": "1", "tzdata": "1", "origin": None, "jobs": "[]",
    "queues": "[]", "slots": 1, "stuck": 0,
}  # fmt: skip


def figures(store: Store, **limits: int) -> Figures:
    asked: dict[str, Any] = {"depth": 100, "queues": 10, "jobs": 10, "recent": 10}
    return store.read(operations.figures, **{**asked, **limits}, live_seconds=30.0)


def test_a_new_store_has_nothing_to_count(store: Store, clock: VirtualClock) -> None:
    told = figures(store)
    assert (told.now, told.queues, told.workers) == (clock(), ("default",), 0)
    assert (told.depths, told.oldest_at, told.schedules) == ({}, {}, {})
    assert told.successes == {"job": None}


def test_depths_are_counted_by_queue_and_state(store: Store, clock: VirtualClock) -> None:
    put_job(store, "mailer", queue="mail")
    enqueue_many(store, 3)
    enqueue_many(store, 2, queue="mail", job="mailer")
    enqueue(store, due_at=clock.after("1h"))
    enqueue(store, concurrency_key="one")
    enqueue(store, concurrency_key="one")  # held
    store.write(operations.pause_run, enqueue(store, queue="mail", job="mailer"), None, ME)
    settle(store, claim_one(store))
    claim(store, 1)
    assert figures(store).depths == {
        ("default", "queued"): 2,
        ("default", "running"): 1,
        ("default", "waiting"): 1,
        ("default", "held"): 1,
        ("mail", "queued"): 2,
        ("mail", "paused"): 1,
    }


def test_no_more_than_so_many_are_counted(store: Store) -> None:
    enqueue_many(store, 30)
    assert figures(store, depth=7).depths == {("default", "queued"): 7}


def test_the_oldest_is_found_whatever_its_priority(store: Store, clock: VirtualClock) -> None:
    put_job(store, "mailer", queue="mail")
    oldest = clock()
    enqueue(store, priority=-5)
    for priority in (7, 0, 7, 3):
        clock.advance("1m")
        enqueue(store, priority=priority)
    enqueue(store, queue="mail", job="mailer")
    assert figures(store).oldest_at == {"default": oldest, "mail": clock()}


def test_schedules_are_counted_by_status(store: Store) -> None:
    for name in ("one", "two", "three", "four", "five"):
        put_schedule(store, name)
    store.write(operations.pause_schedule, "one", None, ME)
    overwrite(
        store, store.read(operations.schedule_named, "two"), error="broken", next_fire_at=None
    )
    overwrite(store, store.read(operations.schedule_named, "three"), enabled=False)
    overwrite(store, store.read(operations.schedule_named, "four"), next_fire_at=None)
    assert figures(store).schedules == {
        "ACTIVE": 1, "PAUSED": 1, "BROKEN": 1, "DISABLED": 1, "FINISHED": 1,
    }  # fmt: skip


def test_the_last_success_of_each_job_is_told(store: Store, clock: VirtualClock) -> None:
    put_job(store, "never")
    enqueue_many(store, 3)
    settle(store, claim_one(store))
    clock.advance("1m")
    settle(store, claim_one(store))
    succeeded_at = clock()
    clock.advance("1m")
    settle(store, claim_one(store), "failed", error="x", final=True)
    assert figures(store).successes == {"job": succeeded_at, "never": None}
    assert set(figures(store, jobs=1).successes) == {"job"}


def test_a_worker_that_was_not_seen_for_long_is_not_counted(
    store: Store, clock: VirtualClock
) -> None:
    store.write(operations.put_worker, {"id": "gone", **WORKER})
    clock.advance("31s")
    store.write(operations.put_worker, {"id": "here", **WORKER})
    assert figures(store).workers == 1


@pytest.mark.parametrize(
    ("options", "outcomes"),
    [
        ({"overlap": "queue"}, {"fired": 1, "coalesced": 2}),
        ({"overlap": "queue", "catch_up": "all"}, {"fired": 3}),
        ({"overlap": "skip", "catch_up": "all"}, {"fired": 1, "skipped": 2}),
        ({"overlap": "queue", "catch_up": "all", "queue_max": 1}, {"fired": 2, "dropped": 1}),
        ({"overlap": "wait", "catch_up": "all"}, {"fired": 2, "coalesced": 1}),
    ],
)
def test_a_fire_tells_what_became_of_each_occurrence(
    store: Store, clock: VirtualClock, options: dict[str, Any], outcomes: dict[str, int]
) -> None:
    schedule = put_schedule(store, **options)
    clock.advance("31s")
    fired = fire_plans(store, plans(store), store.read(operations.jobs_named, ["job"]))
    assert (dict(fired.outcomes), fired.moved) == (outcomes, {schedule.id})
    assert fired.runs == len(all_runs(store))


def test_who_comes_second_fires_nothing(store: Store, clock: VirtualClock) -> None:
    put_schedule(store)
    clock.advance("11s")
    planned = plans(store)
    fire(store, planned)
    late = fire_plans(store, planned, store.read(operations.jobs_named, ["job"]))
    assert (dict(late.outcomes), late.moved, late.runs) == ({}, frozenset(), 0)
