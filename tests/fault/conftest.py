"""A store of each engine that processes can share, and a bench for campaigns."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.storage.store import Store, open_store
from tests.fault.bench import Bench
from tests.fault.zygote import Zygote
from tests.support.postgres import memory_folder


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is some: who is killed loses nothing of what it wrote, and no lease
    of a second waits for a disk."""
    with memory_folder(tmp_path) as folder:
        yield folder


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, quick_folder: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{quick_folder / 'rota.db'}"
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
def file_bench(zygote: Zygote, quick_folder: Path) -> Bench:
    """For the engines whose store is a file."""
    return Bench(zygote, quick_folder, None)


@pytest.fixture
def postgres_bench(zygote: Zygote, quick_folder: Path, request: pytest.FixtureRequest) -> Bench:
    return Bench(zygote, quick_folder, request.getfixturevalue("postgres_server"))


@pytest.fixture
def durable_bench(zygote: Zygote, tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    """With a PostgreSQL that may be crashed."""
    return Bench(zygote, tmp_path, request.getfixturevalue("postgres_cluster"))
