"""Stores in memory: those of tests and trials keep the same promises in one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rota.storage import operations
from rota.storage.store import Store, open_store
from tests.conformance.support import (
    VirtualClock,
    all_runs,
    claim,
    enqueue_many,
    put_job,
    put_schedule,
    settle,
    tick,
    together,
)


@pytest.fixture(params=["sqlite:///:memory:", "duckdb:///:memory:"])
def url(request: pytest.FixtureRequest) -> str:
    address: str = request.param
    return address


@pytest.fixture
def store(url: str, clock: VirtualClock) -> Iterator[Store]:
    opened = open_store(url, clock=clock)
    opened.migrate()
    put_job(opened)
    yield opened
    opened.close()


def test_the_whole_path_works(store: Store, clock: VirtualClock) -> None:
    put_schedule(store, overlap="queue")
    clock.advance("10s")
    assert tick(store) == 1
    (run,) = claim(store)
    settle(store, run)
    clock.advance("1s")
    assert store.write(operations.prune_runs, "succeeded", age_seconds=0, keep_last=0, limit=9) == 1
    assert all_runs(store) == []


def test_threads_share_it(store: Store) -> None:
    together(*[lambda: enqueue_many(store, 25)] * 8)
    claimed = together(*[lambda: claim(store, 30)] * 8)
    seqs = [run.seq for runs in claimed for run in runs]
    assert len(seqs) == len(set(seqs)) == 200


def test_each_is_a_world_of_its_own(store: Store, url: str, clock: VirtualClock) -> None:
    other = open_store(url, clock=clock)
    other.migrate()
    enqueue_many(other, 3)
    assert all_runs(store) == []
    assert (
        other.read(operations.meta)["installation"] != store.read(operations.meta)["installation"]
    )
    other.close()


def test_a_failed_write_leaves_nothing(store: Store) -> None:
    with pytest.raises(Exception, match=r"."):
        enqueue_many(store, 3, priority="not a number")
    assert all_runs(store) == []


def test_nobody_else_can_wake_it(store: Store) -> None:
    store.listen(lambda: None)()
