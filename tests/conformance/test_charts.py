"""What charts are drawn from: exact counts, durations, and schedules in any order."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.flow.charts import percentile
from rota.flow.control import Control
from rota.storage import operations
from rota.storage.store import Store
from tests.conformance.support import (
    ME,
    VirtualClock,
    claim,
    claim_one,
    enqueue,
    put_job,
    put_schedule,
    settle,
    tick,
)


def finish(store: Store, clock: VirtualClock, *, job: str = "job", took: str = "3s") -> None:
    enqueue(store, job=job)
    (run,) = claim(store, 1, jobs=[job])
    clock.advance(took)
    settle(store, run)


def find(store: Store, **told: Any) -> list[str]:
    asked: dict[str, Any] = {
        "words": None, "job": None, "status": None, "sort": "name", "after_key": -(2**62),
        "after": "", "limit": 10,
    }  # fmt: skip
    return [one.name for _, one in store.read(operations.find_schedules, **{**asked, **told})]


def test_every_end_is_in_its_bucket(store: Store, clock: VirtualClock) -> None:
    begin = clock()
    finish(store, clock)
    clock.advance("10m")
    finish(store, clock)
    finish(store, clock)
    store.write(operations.cancel_run, enqueue(store), None, ME)
    found = store.read(operations.ended_in_buckets, begin, clock.after("1s"), seconds=60)
    counts = {(row["state"], row["bucket"]): row["runs"] for row in found}
    assert counts == {("succeeded", 0): 1, ("succeeded", 10): 2, ("cancelled", 10): 1}


def test_what_ended_before_and_after_is_not_counted(store: Store, clock: VirtualClock) -> None:
    finish(store, clock)
    begin = clock.after("1s")
    assert store.read(operations.ended_in_buckets, begin, clock.after("1h"), seconds=60) == []
    assert (
        store.read(operations.ended_in_buckets, begin - timedelta(hours=1), clock(), seconds=60)
        == []
    )


def test_each_job_has_its_cells_with_the_time_it_took(store: Store, clock: VirtualClock) -> None:
    put_job(store, "other")
    begin = clock()
    finish(store, clock, took="3s")
    finish(store, clock, took="4s")
    finish(store, clock, job="other", took="1m")
    found = store.read(
        operations.ended_by_job_in_buckets, begin, clock.after("1s"), seconds=30, limit=10
    )
    cells = [(row["job"], row["bucket"], row["runs"], float(row["seconds"])) for row in found]
    assert sorted(cells) == [("job", 0, 2, 7.0), ("other", 2, 1, 60.0)]
    assert (
        len(
            store.read(
                operations.ended_by_job_in_buckets, begin, clock.after("1s"), seconds=30, limit=1
            )
        )
        == 1
    )


def test_fires_tell_when_they_were_due_and_made(store: Store, clock: VirtualClock) -> None:
    put_schedule(store, "s", expr="1m")
    enqueue(store)  # of no schedule
    clock.advance("1m2s")
    tick(store)
    (row,) = store.read(operations.recent_fires, limit=10)
    assert row["created_at"] - row["occurrence"] == timedelta(seconds=2)


def test_durations_of_a_schedule_are_those_of_its_runs(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store, "s", expr="1m")
    clock.advance("1m")
    tick(store)
    run = claim_one(store)
    clock.advance("5s")
    settle(store, run)
    (row,) = store.read(operations.durations_of_schedule, schedule.id, limit=10)
    assert (row["state"], row["finished_at"] - row["started_at"]) == (
        "succeeded", timedelta(seconds=5),
    )  # fmt: skip


def test_schedules_are_found_by_words_in_name_or_job(store: Store) -> None:
    put_job(store, "Billing")
    put_schedule(store, "nightly/a_b", expr="1h")
    put_schedule(store, "invoices", job="Billing", expr="1h")
    assert find(store, words="night") == ["nightly/a_b"]
    assert find(store, words="billing") == ["invoices"]
    assert find(store, words="a%b") == find(store, words="axb") == []
    assert find(store, job="Billing") == ["invoices"]


def test_schedules_are_sorted_by_their_next_and_last_fire(
    store: Store, clock: VirtualClock
) -> None:
    put_schedule(store, "slow", expr="2h")
    put_schedule(store, "fast", expr="1h")
    put_schedule(store, "halted", expr="1m")
    store.write(operations.pause_schedule, "halted", None, ME)
    assert find(store) == ["fast", "halted", "slow"]
    assert find(store, sort="next") == ["fast", "slow", "halted"]
    clock.advance("2h")
    tick(store)
    clock.advance("1h")
    tick(store)
    assert find(store, sort="last")[0] == "fast"
    assert find(store, status="PAUSED") == ["halted"]
    assert find(store, status="ACTIVE", sort="next") == ["fast", "slow"]


@pytest.mark.parametrize("sort", ["name", "next", "last"])
def test_pages_of_schedules_join_up(store: Store, clock: VirtualClock, sort: str) -> None:
    for number in range(7):
        put_schedule(store, f"s{number}", expr="1h" if number % 2 else "2h")
    clock.advance("1h")
    tick(store)
    seen: list[str] = []
    key, name = -(2**62), ""
    while True:
        page = store.read(
            operations.find_schedules,
            words=None,
            job=None,
            status=None,
            sort=sort,
            after_key=key,
            after=name,
            limit=2,
        )
        if not page:
            break
        seen += [one.name for _, one in page]
        key, name = page[-1][0], page[-1][1].name
    assert seen == find(store, sort=sort)
    assert sorted(seen) == [f"s{number}" for number in range(7)]


def test_a_percentile_is_the_smallest_that_so_many_do_not_exceed() -> None:
    twenty = [float(value) for value in range(1, 21)]
    assert [percentile(twenty, share) for share in (0.5, 0.95, 0.99)] == [10.0, 19.0, 20.0]
    assert [percentile([1.0, 2.0], 0.5), percentile([3.0], 0.95), percentile([], 0.5)] == [
        1,
        3,
        None,
    ]


def test_slots_in_use_are_never_more_than_there_are(store: Store) -> None:
    """What is claimed ahead is in none; a worker that is stopping has those of its runs."""
    look = Control(store, actor=ME, termination_hook_of=lambda job: None)

    def beat(slots: int) -> None:
        store.write(operations.put_worker, {
            "id": "worker", "host": "box", "pid": 7, "version": "0.1", "tzdata": "2025a",
            "origin": None, "jobs": '["job"]', "queues": "[]", "slots": slots, "stuck": 1,
        })  # fmt: skip

    def in_use() -> tuple[int, int]:
        told = look.activity(timedelta(hours=1), buckets=1)["slots"]
        return told["running"], told["slots"]

    beat(4)
    for runs, busy in ((2, 2), (5, 3)):
        for _ in range(runs):
            enqueue(store)
        claim(store, runs)
        assert in_use() == (busy, 4)
    beat(0)
    assert in_use() == (7, 7)
