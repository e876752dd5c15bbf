"""An app on each engine: one with real time and threads, one that the test drives by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import rota
from rota.storage.store import open_store
from rota.testing import Clock, Driver
from tests.api.support import PATIENCE, Driven, Watch
from tests.support.stores import STORE_FIXTURES, Stores

ENGINES = tuple(STORE_FIXTURES)


@pytest.fixture
def postgres_database(postgres_stores: Stores) -> Iterator[str]:
    """The address of an empty store on PostgreSQL."""
    with postgres_stores.emptied() as url:
        yield url


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def database(request: pytest.FixtureRequest, engine: str) -> Iterator[str]:
    """The address of an empty store."""
    stores: Stores = request.getfixturevalue(STORE_FIXTURES[engine])
    with stores.emptied() as url:
        yield url


@pytest.fixture
def make_app(database: str) -> Iterator[Callable[..., rota.Rota]]:
    """Apps on the test's store, as several processes would have them."""
    made: list[rota.Rota] = []

    def make(**settings: object) -> rota.Rota:
        app = rota.Rota(database, **settings)
        made.append(app)
        return app

    yield make
    for app in made:
        app.stop(grace="0s")


@pytest.fixture
def app(make_app: Callable[..., rota.Rota]) -> rota.Rota:
    """Not started: a test defines its jobs first."""
    return make_app()


@pytest.fixture
def watch(app: rota.Rota) -> Watch:
    return Watch(app)


@pytest.fixture
def awake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may keep this process waiting for seconds: that is no sleep, after which a
    worker gives up runs whose leases it could not renew."""
    monkeypatch.setattr("rota.flow.renew.LOOK_SECONDS", PATIENCE)


@pytest.fixture
def driven(database: str) -> Iterator[Driven]:
    """The same store under a clock of the test's own; nothing runs unless it is drained."""
    clock = Clock()
    store = open_store(database, clock=clock)
    store.migrate()
    app = rota.Rota(database, storage=store)
    yield Driven(app, store, clock, Driver(app, store, clock))
    app.close()
