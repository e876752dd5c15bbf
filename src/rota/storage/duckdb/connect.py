"""Cursors and callers' connections of DuckDB."""

from __future__ import annotations

from typing import Any

import duckdb

from rota.duckdb_instances import Instance
from rota.errors import Invalid, WrongConnection


def open_cursor(instance: Instance) -> duckdb.DuckDBPyConnection:
    """A cursor that returns instants in UTC, whatever the machine's time zone is."""
    cursor: duckdb.DuckDBPyConnection = instance.cursor()
    cursor.execute("SET TimeZone = 'UTC'")
    return cursor


def check_name(cursor: duckdb.DuckDBPyConnection, path: str, schema: str) -> None:
    """DuckDB calls a database like its file: a schema of the same name would be ambiguous."""
    found = cursor.execute("SELECT current_database()").fetchone()
    name = found[0] if found else ""
    if name.lower() in (f"_{schema}", f"_{schema}_data"):
        raise Invalid(
            f"{path}: DuckDB would call this database {name!r}, like the schema that Rota makes "
            "in it; give the file another name"
        )


def raw_connection(connection: Any) -> duckdb.DuckDBPyConnection:
    """The DuckDB connection inside a SQLAlchemy one, or the connection itself."""
    raw = connection
    for name in ("connection", "driver_connection"):
        if not isinstance(raw, duckdb.DuckDBPyConnection) and hasattr(raw, name):
            inner = getattr(raw, name)
            raw = inner() if callable(inner) else inner
    if not isinstance(raw, duckdb.DuckDBPyConnection):
        raise WrongConnection(
            f"a {type(connection).__name__} cannot carry an enqueue into a DuckDB store; "
            "pass a duckdb connection to the same file, opened in this process"
        )
    return raw


def in_transaction(connection: duckdb.DuckDBPyConnection) -> bool:
    """True if two statements are in the same transaction; DuckDB does not tell otherwise."""
    first, second = (connection.execute("SELECT txid_current()").fetchone() for _ in range(2))
    return first == second
