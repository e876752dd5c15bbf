"""Open the store that the flags and settings name. Nothing here creates or changes one.

Reading builds its control without the app: loading executors would double the time to an answer.
A DuckDB file can be open in one process: if that is another one, it is asked through its door.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli.options import Where
from rota.cli.suggest import suggesting
from rota.config import FILE, Settings, load_settings
from rota.errors import Unavailable, WrongSchema
from rota.flow.control import Control
from rota.storage.operations.audit import Actor
from rota.storage.store import BUSY_LOOK_SECONDS, BUSY_SECONDS, Store, open_store

if TYPE_CHECKING:
    from rota.door.client import RemoteControl


@contextmanager
def reading(where: Where) -> Iterator[Control]:
    """A control to look with."""
    with existing(where) as (settings, found):
        control = (
            found
            if isinstance(found, Control)
            else Control(found, actor=actor(), termination_hook_of=lambda job: None)
        )
        with suggesting(control, settings.jobs_folder):
            yield control


@contextmanager
def operating(where: Where) -> Iterator[Control]:
    """A control to act with: it knows the executors, which may have a say in how runs end."""
    with existing(where) as (settings, found):
        control = found if isinstance(found, Control) else _control(found, settings)
        with suggesting(control, settings.jobs_folder):
            yield control


def _control(store: Store, settings: Settings) -> Control:
    from rota.app import Rota

    app = Rota(storage=store)
    app.settings = settings
    return app.control_as(actor())


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


def nobody_else_can_run(where: Where, control: Control) -> bool:
    """True while this command itself has a DuckDB file open: to wait for a run would be in vain."""
    return settings_of(where).database.startswith("duckdb:") and not is_remote(control)


def is_remote(control: Control) -> bool:
    """True if another process has the store, and does what it is asked."""
    from rota.door.client import RemoteControl

    return isinstance(control, RemoteControl)


def door_to(settings: Settings) -> RemoteControl | None:
    """The process that has this DuckDB store and runs; None if there is none."""
    file = store_file(settings.database) if settings.database.startswith("duckdb:") else None
    if file is None:
        return None
    from rota.door.address import socket_path
    from rota.door.client import remote_control

    return remote_control(socket_path(file, settings.schema), actor())


@contextmanager
def existing(where: Where) -> Iterator[tuple[Settings, Store | RemoteControl]]:
    """The store that is there, or the process that has it; never made by asking."""
    settings = settings_of(where)
    file = store_file(settings.database)
    # Connecting would create the file, so look first.
    if file is not None and (not file.exists() or file.stat().st_size == 0):
        raise WrongSchema(
            f"no store at {file}; start one with `rota up [MODULE:APP]`, "
            f"or point --database elsewhere{_elsewhere(where, file)}"
        )
    found = open_or_ask(settings)
    try:
        if isinstance(found, Store):
            found.check_schema()
        yield settings, found
    finally:
        found.close()


def _elsewhere(where: Where, file: Path) -> str:
    """Settings and a relative path count from this folder: perhaps it is the wrong one."""
    if where.config is not None or file.is_absolute() or Path(FILE).exists():
        return ""
    return f" (this folder, {Path.cwd()}, has no {FILE})"


def open_or_ask(settings: Settings) -> Store | RemoteControl:
    """The store, or the process that has it. One that starts or stops has the file and no door for
    a moment, and so has a command: then look again."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        asked = door_to(settings)
        if asked is not None:
            return asked
        try:
            return open_store(settings.database, schema=settings.schema)
        except Unavailable as fault:
            if not fault.in_use or time.monotonic() > until:
                raise
        time.sleep(BUSY_LOOK_SECONDS)
