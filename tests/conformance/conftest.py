"""An empty store for each test, on each engine, under a clock that the test owns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from rota.storage.store import Store
from tests.conformance.support import (
    PATIENCE,
    PLACE_TYPES,
    DuckdbPlace,
    Place,
    PlainPostgresPlace,
    PostgresPlace,
    SqlitePlace,
    VirtualClock,
    put_job,
)
from tests.support.stores import Stores

ENGINES = tuple(PLACE_TYPES)
PLACES = (*ENGINES, "postgres-plain")  # each has a fixture: sqlite_place


@pytest.fixture(autouse=True)
def no_real_wait_counts() -> Iterator[None]:
    """Leases run out in virtual time: that a busy machine kept a write waiting says nothing of
    them, and nobody here waits for a lock for ever."""
    with pytest.MonkeyPatch.context() as patch:
        for engine in ("sqlite", "duckdb"):
            patch.setattr(f"rota.storage.{engine}.engine.LONG_WAIT_SECONDS", float("inf"))
        for module in ("engine", "connect"):
            patch.setattr(f"rota.storage.sqlite.{module}.BUSY_SECONDS", PATIENCE)
        yield


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@contextmanager
def store_of(request: pytest.FixtureRequest, stores: Stores) -> Iterator[str]:
    """Emptied, unless the test is marked to need one that no other test has used."""
    own = request.node.get_closest_marker("own_store") is not None
    with stores.migrated() if own else stores.emptied() as url:
        yield url


@pytest.fixture
def sqlite_place(
    request: pytest.FixtureRequest, sqlite_stores: Stores, clock: VirtualClock
) -> Iterator[Place]:
    with store_of(request, sqlite_stores) as url, closing(SqlitePlace(url, clock)) as place:
        yield place


@pytest.fixture
def postgres_place(
    request: pytest.FixtureRequest, postgres_stores: Stores, clock: VirtualClock
) -> Iterator[Place]:
    with store_of(request, postgres_stores) as url, closing(PostgresPlace(url, clock)) as place:
        yield place


@pytest.fixture
def postgres_plain_place(
    request: pytest.FixtureRequest, postgres_stores: Stores, clock: VirtualClock
) -> Iterator[Place]:
    """Without fast paths."""
    if (marker := request.node.get_closest_marker("not_plain")) is not None:
        pytest.skip(marker.args[0])
    with (
        store_of(request, postgres_stores) as url,
        closing(PlainPostgresPlace(url, clock)) as place,
    ):
        yield place


@pytest.fixture
def duckdb_place(
    request: pytest.FixtureRequest, duckdb_stores: Stores, clock: VirtualClock
) -> Iterator[Place]:
    with store_of(request, duckdb_stores) as url, closing(DuckdbPlace(url, clock)) as place:
        yield place


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    """A migrated database with nothing in it."""
    found: Place = request.getfixturevalue(f"{request.param.replace('-', '_')}_place")
    return found


@pytest.fixture
def store(place: Place) -> Store:
    """A store that knows the job `job` and the queue `default`."""
    opened = place.open()
    put_job(opened)
    return opened
