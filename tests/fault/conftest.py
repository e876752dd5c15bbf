"""A store of each engine that processes can share, and a bench for campaigns."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.storage.store import Store, open_store
from tests.fault.bench import Bench
from tests.fault.zygote import Zygote


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'rota.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    opened = open_store(database)
    opened.migrate()
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A warmed parent for processes under test; one for all tests."""
    with Zygote(tmp_path_factory.mktemp("zygote") / "output.log") as opened:
        yield opened


@pytest.fixture
def file_bench(zygote: Zygote, tmp_path: Path) -> Bench:
    """For the engines whose store is a file."""
    return Bench(zygote, tmp_path, None)


@pytest.fixture
def postgres_bench(zygote: Zygote, tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    return Bench(zygote, tmp_path, request.getfixturevalue("postgres_server"))


@pytest.fixture
def durable_bench(zygote: Zygote, tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    """With a PostgreSQL that may be crashed."""
    return Bench(zygote, tmp_path, request.getfixturevalue("postgres_cluster"))
