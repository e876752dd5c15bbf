"""A store of each engine that processes can share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.storage.store import Store, open_store


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
