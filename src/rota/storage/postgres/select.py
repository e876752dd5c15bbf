"""One SELECT over the views, in a read-only transaction of a session that ends with it.

DECLARE CURSOR accepts a query and nothing else, and only as many rows travel as are asked for. The
plan says which tables would be read: those behind the views, or the query is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from rota.errors import Invalid, RotaError, Unavailable
from rota.model.result import BOOLEAN, INSTANT, INTEGER, JSON, NUMBER, TEXT, Column, Result
from rota.model.result import shown_rows as shown
from rota.model.views import beyond_views, refuse_names
from rota.storage.postgres.connect import Address
from rota.storage.postgres.faults import translate

# What can act, or read something else than tables, from within a SELECT.
_ACTING = (
    "pg_", "lo_", "dblink", "set_config", "current_setting", "query_to_xml", "table_to_xml",
    "schema_to_xml", "database_to_xml", "cursor_to_xml", "nextval", "setval", "txid_",
    "information_schema",
)  # fmt: skip
_TYPES = {
    "text": TEXT, "varchar": TEXT, "bpchar": TEXT, "name": TEXT, "uuid": TEXT,
    "int2": INTEGER, "int4": INTEGER, "int8": INTEGER, "bool": BOOLEAN,
    "float4": NUMBER, "float8": NUMBER, "numeric": NUMBER,
    "timestamptz": INSTANT, "timestamp": INSTANT, "json": JSON, "jsonb": JSON,
}  # fmt: skip
_REFUSED = {"25006", "0A000"}  # read-only transaction; a cursor of something that is no query
_CANCELLED = "57014"


def select(address: Address, query: str, *, schema: str, limit: int, seconds: float) -> Result:
    """The first rows of a query."""
    refuse_names(query, "postgres", (f"{schema}_data",), "is private")
    refuse_names(query, "postgres", _ACTING, "cannot be used here")
    connection = address.connect(ours=False)
    try:
        return _select(connection, query, schema, limit, seconds)
    except psycopg.Error as fault:
        raise _told(fault, address, seconds) from fault
    finally:
        connection.close()


def _select(
    connection: psycopg.Connection[Any], query: str, schema: str, limit: int, seconds: float
) -> Result:
    # All of it ends with the transaction: behind a pooler the session is somebody else's next.
    connection.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
    connection.execute("SET LOCAL timezone = 'UTC'")
    connection.execute(f"SET LOCAL statement_timeout = {int(seconds * 1000)}")
    connection.execute(f'SET LOCAL search_path = "{schema}"')
    # In binary, because then the server takes one statement only.
    connection.cursor(binary=True).execute(f"DECLARE rows NO SCROLL CURSOR FOR {query}")
    plan = connection.execute(f"EXPLAIN (FORMAT JSON, VERBOSE) {query}").fetchone()
    for owner, table in _relations(plan[0] if plan else []):
        if owner != f"{schema}_data":
            raise beyond_views(f"{owner}.{table}")
    cursor = connection.execute(f"FETCH {limit + 1} FROM rows")
    rows, described = cursor.fetchall(), cursor.description or ()
    columns = tuple(
        Column(column.name, _TYPES.get(column.type_display, column.type_display))
        for column in described
    )
    return Result(columns=columns, rows=shown(rows[:limit]), more=len(rows) > limit)


def _relations(node: Any) -> Iterator[tuple[str, str]]:
    """(schema, table) of everything that a plan reads."""
    if isinstance(node, list):
        for one in node:
            yield from _relations(one)
    elif isinstance(node, dict):
        if "Relation Name" in node:
            yield node.get("Schema", ""), node["Relation Name"]
        for inner in node.values():
            if isinstance(inner, dict | list):
                yield from _relations(inner)


def _told(fault: psycopg.Error, address: Address, seconds: float) -> RotaError:
    if fault.sqlstate == _CANCELLED:
        return Unavailable(f"the query took longer than {seconds:g} s and was stopped")
    if fault.sqlstate in _REFUSED:
        return Invalid("only a single SELECT over Rota's views can be asked here")
    code = fault.sqlstate or ""
    # Its own mistakes (syntax, names, values, rights); the rest is the server's.
    if code[:2] in ("42", "22", "21", "34", "2B", "54", "53", "23"):
        return Invalid(f"PostgreSQL: {fault.diag.message_primary or str(fault).splitlines()[0]}")
    return translate(fault, address.shown, address.role)
