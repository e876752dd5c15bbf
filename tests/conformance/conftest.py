"""A fresh store for each test, on each engine, under a clock that the test owns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from rota.storage.store import Store, open_store
from tests.conformance.support import (
    PATIENCE,
    DuckdbPlace,
    Place,
    PostgresPlace,
    SqlitePlace,
    VirtualClock,
    put_job,
)
from tests.support.postgres import Server, memory_folder

ENGINES = ("sqlite", "postgres", "duckdb")


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


@pytest.fixture
def sqlite_place(tmp_path: Path, clock: VirtualClock) -> Iterator[Place]:
    # A thousand commits that wait for a busy disk would take longer than a test may.
    with memory_folder(tmp_path) as folder:
        place = SqlitePlace(f"sqlite:///{folder}/rota.db", clock)
        place.open().migrate()
        yield place
        place.close()


@pytest.fixture(scope="session")
def migrated_database(postgres_server: Server) -> Iterator[str]:
    """The database that every test's own is copied from: cheaper than to migrate each."""
    with postgres_server.database() as url:
        store = open_store(url)
        store.migrate()
        store.close()
        yield url


@pytest.fixture
def postgres_place(
    postgres_server: Server, migrated_database: str, clock: VirtualClock
) -> Iterator[Place]:
    with postgres_server.database(template=migrated_database) as url:
        place = PostgresPlace(url, clock)
        yield place
        place.close()


@pytest.fixture
def duckdb_place(clock: VirtualClock) -> Iterator[Place]:
    place = DuckdbPlace(f"duckdb:///:memory:{uuid4().hex}", clock)
    place.open().migrate()
    yield place
    place.close()


@pytest.fixture(params=ENGINES)
def place(request: pytest.FixtureRequest) -> Place:
    """A migrated database with nothing in it."""
    found: Place = request.getfixturevalue(f"{request.param}_place")
    return found


@pytest.fixture
def store(place: Place) -> Store:
    """A store that knows the job `job` and the queue `default`."""
    opened = place.open()
    put_job(opened)
    return opened
