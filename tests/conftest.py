"""Fixtures for every folder of tests, and an environment that no shell's settings reach."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.postgres import Cluster, Server, open_server

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


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asynchronous tests run on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A PostgreSQL to make databases in; not to be stopped."""
    with open_server() as server:
        yield server


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
