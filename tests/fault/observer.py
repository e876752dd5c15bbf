"""Looks at rows while processes are under fault, with the driver alone."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from typing import Any

import duckdb
import psycopg

from rota.executors import targets
from tests.fault.history import micros
from tests.fault.notes import Notebook

LOOK_SECONDS = 0.03
UNDER_WAY = (
    "SELECT count(*) FROM {prefix}runs WHERE state NOT IN ('succeeded', 'dead', 'cancelled')"
)


class Observer:
    """Watches cursors from outside, a few times a second, and writes down each change."""

    def __init__(self, database: str, notebook: Notebook) -> None:
        self.database, self.notebook = database, notebook
        self._seen: dict[str, int | None] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with suppress(sqlite3.Error, psycopg.Error, duckdb.Error):  # away, or not made yet
                connection, prefix = connect(self.database)
                try:
                    while not self._stopping.wait(LOOK_SECONDS):
                        self._look(connection, prefix)
                finally:
                    connection.close()
            self._stopping.wait(LOOK_SECONDS)

    def _look(self, connection: Any, prefix: str) -> None:
        found = connection.execute(f"SELECT name, next_fire_at FROM {prefix}schedules").fetchall()
        for name, moment in found:
            cursor = moment if moment is None or isinstance(moment, int) else micros(moment)
            if self._seen.get(name) != cursor:
                self._seen[name] = cursor
                self.notebook.write("cursor", schedule=name, cursor=cursor)


def connect(database: str) -> tuple[Any, str]:
    """A connection in autocommit, and how our tables are called there."""
    if database.startswith("sqlite"):
        path = database.removeprefix("sqlite:///")
        # Read only: an observer must not make the file.
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None), "_rota_"
    if database.startswith("duckdb"):  # from within the process that has the file
        return targets.connect(database), "_rota_data."
    return psycopg.connect(database, autocommit=True, connect_timeout=2), "rota_data."


def query(database: str, sql: str) -> Any:
    """The first value; the prefix of tables is {prefix}."""
    connection, prefix = connect(database)
    try:
        return connection.execute(sql.format(prefix=prefix)).fetchone()[0]
    finally:
        connection.close()
