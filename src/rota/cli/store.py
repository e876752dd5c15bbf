"""Open the store that the flags and settings name. Nothing here creates or changes one.

Reading builds its control without the app: loading executors would double the time to an answer.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rota.cli.options import Where
from rota.config import Settings, load_settings
from rota.errors import WrongSchema
from rota.flow.control import Control
from rota.storage.protocol import Actor
from rota.storage.store import Store, open_store


@contextmanager
def reading(where: Where) -> Iterator[Control]:
    """A control to look with."""
    with _existing(where) as (_, store):
        yield Control(store, actor=actor(), hearer_of=lambda job: None)


@contextmanager
def operating(where: Where) -> Iterator[Control]:
    """A control to act with: it knows the executors, which may have a say in how runs end."""
    from rota.app import Rota

    with _existing(where) as (settings, store):
        app = Rota(storage=store)
        app.settings = settings
        yield app.control_as(actor())


def settings_of(where: Where) -> Settings:
    return load_settings({"database": where.database}, file=where.config)


def store_file(url: str) -> Path | None:
    """The file of a SQLite or DuckDB store; None for a server or a store in memory."""
    match url.partition("://")[0]:
        case "sqlite":
            from rota.storage.sqlite.connect import path_from_url
        case "duckdb":
            from rota.duckdb_instances import path_from_url
        case _:
            return None
    path = path_from_url(url)
    return None if path.startswith(":memory:") else Path(path)


def actor() -> Actor:
    try:
        return Actor(by=getpass.getuser(), via="cli")
    except (KeyError, OSError):  # no entry for this user, as in many containers
        return Actor(by="unknown", via="cli")


@contextmanager
def _existing(where: Where) -> Iterator[tuple[Settings, Store]]:
    settings = settings_of(where)
    file = store_file(settings.database)
    # Connecting would create the file, so look first.
    if file is not None and (not file.exists() or file.stat().st_size == 0):
        raise WrongSchema(
            f"no store at {file}; start one with `rota up MODULE:APP`, "
            "or point --database elsewhere"
        )
    store = open_store(settings.database, schema=settings.schema)
    try:
        store.check_schema()
        yield settings, store
    finally:
        store.close()
