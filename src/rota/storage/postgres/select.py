"""One SELECT over the views, in a read-only transaction of a session that ends with it.

DECLARE CURSOR accepts a query and nothing else, and only as many rows travel as are asked for.
Before, the query is judged by what the server understands of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from rota.errors import Invalid, RotaError, Unavailable
from rota.model.limits import SELECT_ROW_BYTES
from rota.model.result import BOOLEAN, INSTANT, INTEGER, JSON, NUMBER, TEXT, Column, Result
from rota.model.result import displayable_rows as shown
from rota.model.views import bounded, check_columns, refuse_names, without_end
from rota.storage.postgres.connect import Address
from rota.storage.postgres.faults import translate
from rota.storage.postgres.judge import judge

ROWS_AT_ONCE = 50

# What can act, or read something else than tables, from within a SELECT: a first fence, which says
# so in plain words. The one that holds is in judge.py.
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
    connection.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ WRITE")
    connection.execute("SET LOCAL timezone = 'UTC'")
    connection.execute(f"SET LOCAL statement_timeout = {int(seconds * 1000)}")
    connection.execute(f'SET LOCAL search_path = "{schema}", pg_temp')
    judge(connection, query, schema)
    connection.execute("SET TRANSACTION READ ONLY")
    # In binary, because then the server takes one statement only.
    connection.cursor(binary=True).execute(f"DECLARE named NO SCROLL CURSOR FOR {query}")
    described = connection.execute("FETCH 0 FROM named").description or ()
    check_columns(len(described))
    columns = tuple(
        Column(column.name, _TYPES.get(column.type_display, column.type_display))
        for column in described
    )
    connection.cursor(binary=True).execute(_sized(query, len(columns)))
    rows, more = bounded(_fetch(connection), limit)
    return Result(columns=columns, rows=shown(rows), more=more)


def _sized(query: str, count: int) -> str:
    """The query with the size of each row, and without the cells of rows that are too large: not
    one of them may travel."""
    names = [f"c{place}" for place in range(count)]
    cells = [f"CASE WHEN size <= {SELECT_ROW_BYTES} THEN {name} END" for name in names]
    return (
        f"DECLARE rows NO SCROLL CURSOR FOR SELECT {', '.join(cells)}, size "
        "FROM (SELECT asked.*, octet_length(asked::text) AS size "
        f"FROM (\n{without_end(query, 'postgres')}\n) AS asked({', '.join(names)}) "
        "OFFSET 0) AS sized"  # so that the size is told once a row, not for every cell
    )


def _fetch(connection: psycopg.Connection[Any]) -> Iterator[tuple[list[Any], int]]:
    """Every row with its bytes, fetched in batches that grow."""
    at_once = 1
    while found := connection.execute(f"FETCH {at_once} FROM rows").fetchall():
        at_once = min(2 * at_once, ROWS_AT_ONCE)
        for *row, size in found:
            yield row, size


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
