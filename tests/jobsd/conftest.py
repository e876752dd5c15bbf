"""A folder of the test's own, and apps on a SQLite store that serve it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rota
from rota.jobsd import folder as folders
from tests.jobsd.support import PATIENCE, Jobs, Served


@pytest.fixture(autouse=True)
def known_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python files say, however slow the machine is that imports them."""
    monkeypatch.setattr(folders, "START_SECONDS", PATIENCE)


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path / "jobs.d")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Apps that serve a folder, on one store, as several processes would have them."""
    made: list[rota.Rota] = []

    def make(jobs: Jobs, **settings: object) -> Served:
        database = settings.pop("database", f"sqlite:///{tmp_path / 'rota.db'}")
        app = rota.Rota(str(database), jobs_dir=str(jobs.root), **settings)
        made.append(app)
        return Served(app, jobs)

    yield make
    for app in made:
        app.stop(grace="0s")


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that several machines could share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'rota.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def served(jobs: Jobs, serve: Callable[..., Served]) -> Served:
    """Nothing is loaded yet: a test writes its files first."""
    return serve(jobs)
