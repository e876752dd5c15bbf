"""Ids: however a run was made its id finds it, in the store and in the view, and finds it once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rota.errors import Unknown
from rota.model.retry import ONCE
from rota.storage import operations
from rota.storage.store import Store
from tests.conformance.support import (
    ME,
    Place,
    VirtualClock,
    alike,
    all_runs,
    claim_one,
    enqueue,
    enqueue_many,
    new_run,
    plans,
    put_job,
    put_schedule,
    settle,
    states,
    tick,
)

Make = Callable[[Store, Place, VirtualClock], object]


def on_a_callers_connection(store: Store, place: Place, clock: VirtualClock) -> None:
    caller = place.begin()
    store.enqueue_on(caller, [new_run(), new_run(concurrency_key="c")])
    store.enqueue_on(caller, alike(3))
    caller.commit()


def by_sql(store: Store, place: Place, clock: VirtualClock) -> None:
    if place.engine != "postgres":
        pytest.skip("functions that enqueue are PostgreSQL's")
    place.execute("SELECT rota.enqueue('job', key => 'k'), rota.trigger_job('job')")


def by_a_fire(store: Store, place: Place, clock: VirtualClock, **options: str) -> None:
    for name in ("a", "b"):
        put_schedule(store, name, expr="1h", **options)
    clock.advance("1h")
    assert tick(store) == 2


def by_fires_that_wait(store: Store, place: Place, clock: VirtualClock) -> None:
    by_a_fire(store, place, clock, overlap="queue")
    clock.advance("1h")
    assert tick(store) == 2


def by_a_herd(store: Store, place: Place, clock: VirtualClock) -> None:
    schedules = [put_schedule(store, f"kin-{n}", expr="1h") for n in range(6)]
    clock.advance("1h")
    plan = min(plans(store), key=lambda plan: plan.schedule.id)
    job = store.read(operations.jobs_named, ["job"])["job"]
    assert store.write(operations.fire_group, plan, [one.id for one in schedules], job).runs == 6


def by_an_end_that_is_retried(store: Store, place: Place, clock: VirtualClock) -> None:
    put_schedule(store, expr="1h", on_error="retry")
    clock.advance("1h")
    assert tick(store) == 1
    settle(store, claim_one(store), "failed", retry=ONCE, error="no")
    assert [run.state for run in all_runs(store)] == ["dead", "waiting"]


WAYS: dict[str, Make] = {
    "alone": lambda store, *_: enqueue_many(store, 1),
    "alone and quietly": lambda store, *_: store.write(operations.enqueue, alike(1), notify=False),
    "alone with options": lambda store, *_: enqueue_many(store, 1, correlation_id="x"),
    "alike": lambda store, *_: enqueue_many(store, 3),
    "with a slot": lambda store, *_: enqueue(store, concurrency_key="c"),
    "keyed": lambda store, *_: store.write(
        operations.enqueue, [new_run(key="k"), new_run(key="l"), new_run()]
    ),
    "on a caller's connection": on_a_callers_connection,
    "by SQL": by_sql,
    "by a fire": by_a_fire,
    "by fires that wait": by_fires_that_wait,
    "by a herd": by_a_herd,
    "by an end that is retried": by_an_end_that_is_retried,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_is_found_by_its_id_however_it_was_made(
    store: Store, place: Place, clock: VirtualClock, way: str
) -> None:
    put_job(store)
    WAYS[way](store, place, clock)
    made = all_runs(store)
    assert made
    for run in made:
        assert store.read(operations.get_run, run.id) == run
        assert in_view(place, run.id) == [(run.seq,)]
        assert run.id in store.read(operations.run_ids, run.id[:13], limit=10)


@pytest.mark.parametrize("state", ["queued", "running", "succeeded"])
def test_an_enqueue_sent_again_makes_no_second_run(store: Store, state: str) -> None:
    told = new_run()
    store.write(operations.enqueue, [told])
    if state != "queued":
        run = claim_one(store)
        if state == "succeeded":
            settle(store, run)
    store.write(operations.enqueue, [told])
    assert states(store, [told.id]) == [state]
    assert len(all_runs(store)) == 1


def test_what_is_deleted_is_found_no_more(store: Store, place: Place, clock: VirtualClock) -> None:
    ids = enqueue_many(store, 3)
    for _ in ids[:2]:
        settle(store, claim_one(store))
    store.write(operations.delete_run, ids[0], None, ME)
    clock.advance("1s")
    assert (
        store.write(operations.prune_runs, "succeeded", age_seconds=0, keep_last=0, limit=10) == 1
    )
    for id in ids[:2]:
        with pytest.raises(Unknown, match=id):
            store.read(operations.get_run, id)
        assert in_view(place, id) == []
    assert store.read(operations.get_run, ids[2]).state == "queued"
    if place.engine == "postgres":
        assert place.execute("SELECT id::text FROM rota_data.run_ids") == [(ids[2],)]


def in_view(place: Place, id: str) -> list[tuple[int, ...]]:
    return place.execute(f"SELECT seq FROM {place.view('runs')} WHERE run_id = '{id}'")
