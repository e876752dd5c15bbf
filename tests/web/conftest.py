from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres import Server
from tests.web.support import ENGINES, Site, serving


@pytest.fixture(params=ENGINES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty store, on each engine."""
    if request.param != "postgres":
        yield f"{request.param}:///{tmp_path}/rota.db"
        return
    server: Server = request.getfixturevalue("postgres_server")
    with server.database() as url:
        yield url


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """On SQLite, with nobody who works."""
    with serving(tmp_path) as made:
        yield made


@pytest.fixture
def working(tmp_path: Path, database: str) -> Iterator[Site]:
    """On each engine, with a worker."""
    with serving(tmp_path, database, parts=("scheduler", "worker", "web")) as made:
        yield made
