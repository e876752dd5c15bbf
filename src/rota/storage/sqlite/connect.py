"""Addresses, files and callers' connections of SQLite."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from typing import Any

from rota.errors import Invalid, WrongConnection
from rota.storage.sqlite.faults import BUSY_SECONDS, is_busy

BUSY_PAUSE_SECONDS = 0.01


def use_wal(connection: sqlite3.Connection) -> None:
    """Let readers and the writer go on beside each other, for all connections to come."""
    # Setting it needs a lock of its own; asking first avoids that on every later open.
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    give_up_at = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as fault:
            # Of two that open a new file at once, one is told so without having waited.
            if not is_busy(fault) or time.monotonic() > give_up_at:
                raise
        time.sleep(BUSY_PAUSE_SECONDS)


def read_meta(connection: sqlite3.Connection, prefix: str) -> dict[str, str]:
    """What the store says of itself; nothing where there is no store."""
    table = f"{prefix}meta"
    sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    if connection.execute(sql, (table,)).fetchone() is None:
        return {}
    return dict(connection.execute(f"SELECT key, value FROM {table}").fetchall())


def split_statements(sql: str) -> Iterator[str]:
    """Statements of a script, by SQLite's own idea of where one ends."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


def raw_connection(connection: Any) -> sqlite3.Connection:
    """The sqlite3 connection inside a SQLAlchemy one, or the connection itself."""
    raw = connection
    if hasattr(raw, "connection") and callable(raw.connection):  # an ORM Session
        raw = raw.connection()
    if hasattr(raw, "connection"):  # a SQLAlchemy Connection
        raw = raw.connection
    if hasattr(raw, "driver_connection"):  # its pool's wrapper
        raw = raw.driver_connection
    if not isinstance(raw, sqlite3.Connection):
        raise WrongConnection(
            f"a {type(connection).__name__} cannot carry an enqueue into a SQLite store; "
            "pass a sqlite3 or SQLAlchemy connection"
        )
    return raw


def path_from_url(url: str) -> str:
    """sqlite:///relative.db, sqlite:////absolute.db or sqlite:///:memory:."""
    path = url.removeprefix("sqlite://").removeprefix("/")
    if not path or "?" in path:
        raise Invalid(f"database {url!r} names no file; use sqlite:///rota.db")
    return path
