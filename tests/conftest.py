"""Fixtures for every folder of tests, and an environment that no shell's settings reach."""

import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.postgres import Cluster, Server, memory_folder, open_server
from tests.support.stores import DuckdbStores, FileStores, PostgresStores

# Two busy processors make any deadline a lie; `make test` tries the same examples every time.
TIMELESS: dict[str, Any] = {
    "deadline": None, "suppress_health_check": [HealthCheck.too_slow],
}  # fmt: skip
settings.register_profile("default-repeatable", **TIMELESS, derandomize=True)
settings.register_profile("long", **TIMELESS, max_examples=2_000)
settings.load_profile("default-repeatable")

for name in list(os.environ):
    if name.startswith("PG") or (name.startswith("ROTA_") and not name.startswith("ROTA_TEST_")):
        del os.environ[name]


def parameters(item: pytest.Item) -> list[object]:
    callspec = getattr(item, "callspec", None)
    return [] if callspec is None else list(callspec.params.values())


PLAIN_MODULES = {
    "test_admit", "test_claim", "test_enqueue", "test_enqueue_on", "test_fire",
    "test_fire_claims", "test_groups", "test_held", "test_on_error", "test_points",
    "test_promote", "test_rescue", "test_settle", "test_together", "test_transitions",
}  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is long
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave DuckDB to the long tests where a surface repeats on each engine what conformance has
    proved on DuckDB. Only modules with a test that is marked `each_engine` are thinned out, so
    none loses the engine as a whole."""
    thinned = {item.path for item in items if item.get_closest_marker("each_engine")}
    for item in items:
        everywhere = item.path not in thinned or item.get_closest_marker("each_engine")
        if not everywhere and "duckdb" in parameters(item):
            item.add_marker("long")
        # What concerns none of the operations that a fast path replaces is the same without it.
        if "postgres-plain" in parameters(item) and item.path.stem not in PLAIN_MODULES:
            item.add_marker("long")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asynchronous tests run on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A PostgreSQL to make databases in; not to be stopped."""
    with open_server() as server:
        yield server


@pytest.fixture(scope="session")
def sqlite_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileStores]:
    # A thousand commits that wait for a busy disk would take longer than a test may.
    with memory_folder(tmp_path_factory.mktemp("sqlite")) as folder:
        yield FileStores(folder, "sqlite")


@pytest.fixture(scope="session")
def postgres_stores(postgres_server: Server) -> Iterator[PostgresStores]:
    with closing(PostgresStores(postgres_server)) as stores:
        yield stores


@pytest.fixture(scope="session")
def duckdb_stores() -> Iterator[DuckdbStores]:
    """In memory."""
    with closing(DuckdbStores()) as stores:
        yield stores


@pytest.fixture(scope="session")
def duckdb_file_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileStores]:
    """For programs that open the file themselves."""
    with memory_folder(tmp_path_factory.mktemp("duckdb")) as folder:
        yield FileStores(folder, "duckdb")


@pytest.fixture
def postgres_url(postgres_server: Server) -> Iterator[str]:
    """The address of an empty database that is this test's own."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture(scope="session")
def durable_cluster() -> Iterator[Cluster]:
    """The cluster behind `postgres_cluster`: creating one takes a second, starting it much less."""
    with Cluster(fsync=True) as cluster:
        yield cluster


@pytest.fixture
def postgres_cluster(durable_cluster: Cluster) -> Iterator[Cluster]:
    """A running private PostgreSQL, with fsync, that the test may stop, crash and start again."""
    durable_cluster.start()
    yield durable_cluster
    durable_cluster.start()
