"""One SELECT over the views, on a cursor of its own in a read-only transaction.

A DuckDB query can read files and Python's variables, so its own parser tells what the query is
made of, and everything but the views and harmless functions is refused before it runs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import duckdb

from rota.errors import Invalid, Unavailable
from rota.model.limits import SELECT_BYTES
from rota.model.result import BOOLEAN, INSTANT, INTEGER, JSON, NUMBER, TEXT, Column, Result
from rota.model.result import displayable_rows as shown
from rota.model.views import VIEWS, beyond_views, bounded, check_columns, without_end

_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree"})
# DuckDB's own functions may be called, but not those that act, wait, or tell of anything but the
# rows: settings hold keys of clouds, and a plan opens the files that its text names.
_REFUSED = frozenset({
    "current_setting", "getenv", "getvariable", "json_serialize_plan", "nextval", "currval",
    "setseed", "sleep_ms", "stats", "write_log", "current_query",
})  # fmt: skip
_OF_CATALOGUE = "pg_"
_HARMLESS = frozenset({"pg_typeof", "pg_size_pretty", "unnest", "unlist"})
_TYPES = {
    "VARCHAR": TEXT, "UUID": TEXT, "BOOLEAN": BOOLEAN, "DOUBLE": NUMBER, "FLOAT": NUMBER,
    "TIMESTAMP WITH TIME ZONE": INSTANT, "TIMESTAMP": INSTANT, "JSON": JSON,
}  # fmt: skip
AGAIN_SECONDS = 0.1
_ONLY = "only a single SELECT over Rota's views can be asked here"


def select(
    cursor: duckdb.DuckDBPyConnection, sql: str, *, schema: str, limit: int, seconds: float
) -> Result:
    """The first rows of a query. The cursor is not fit for anything else afterwards."""
    late, over = threading.Event(), threading.Event()

    def stop() -> None:
        """Again and again: an interrupt between two statements ends nothing."""
        late.set()
        while not over.is_set():
            with suppress(duckdb.Error):
                cursor.interrupt()
            over.wait(AGAIN_SECONDS)

    try:
        _check(cursor, sql, f"_{schema}")
        cursor.execute(f"SET search_path = '_{schema}'")
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        timer = threading.Timer(seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            described = _described(cursor, sql)
            check_columns(len(described))
            found = cursor.execute(_sized(sql, len(described), limit)).fetchall()
        finally:
            over.set()
            timer.cancel()
            timer.join()
    except duckdb.Error as fault:
        if late.is_set() or isinstance(fault, duckdb.InterruptException):
            raise Unavailable(
                f"the query took longer than {seconds:g} s and was stopped"
            ) from fault
        raise Invalid(f"DuckDB: {_line(fault)}") from fault
    columns = tuple(Column(column[0], _type(str(column[1]))) for column in described)
    rows, more = bounded(_each(found), limit)
    return Result(columns=columns, rows=shown(rows), more=more)


def _each(found: list[Any]) -> Iterator[tuple[list[Any], int]]:
    """Every row with its own bytes: the query tells those up to it."""
    before = 0
    for *cells, total in found:
        yield cells, total - before
        before = total


def _described(cursor: duckdb.DuckDBPyConnection, sql: str) -> list[Any]:
    try:
        return cursor.execute(f"DESCRIBE {sql}").fetchall()
    except duckdb.ParserException:  # as of DESCRIBE DESCRIBE
        inner = without_end(sql, "duckdb")
        return cursor.execute(f"DESCRIBE SELECT * FROM (\n{inner}\n)").fetchall()


def _sized(sql: str, count: int, limit: int) -> str:
    """The query with the bytes up to each row, and without the cells of the rows after those that
    fit: DuckDB holds an answer in memory before the first row of it can be fetched."""
    names = [f"c{place}" for place in range(count)]
    cells = [f"CASE WHEN total <= {SELECT_BYTES} THEN {name} END" for name in names]
    return (
        f"SELECT {', '.join(cells)}, total FROM (SELECT asked.*, "
        "sum(strlen(asked::VARCHAR)) OVER (ROWS UNBOUNDED PRECEDING) AS total "
        f"FROM (\n{without_end(sql, 'duckdb')}\n) AS asked({', '.join(names)})) LIMIT {limit + 1}"
    )


def _check(cursor: duckdb.DuckDBPyConnection, sql: str, schema: str) -> None:
    found = cursor.execute("SELECT system.main.json_serialize_sql($sql)", {"sql": sql}).fetchone()
    try:
        tree = json.loads(found[0]) if found else {}
    except RecursionError:
        raise Invalid("the query is nested too deeply; flatten it") from None
    if tree.get("error"):
        told = str(tree.get("error_message", "")).splitlines() or [""]
        raise Invalid(_ONLY if "Only SELECT" in told[0] else f"DuckDB: {told[0]}")
    if len(tree.get("statements", ())) != 1:
        raise Invalid(_ONLY)
    called: set[str] = set()
    try:
        _check_tree(tree["statements"], schema, frozenset(), called)
    except RecursionError:
        raise Invalid("the query is nested too deeply; flatten it") from None
    _check_functions(cursor, called)


def _check_functions(cursor: duckdb.DuckDBPyConnection, called: set[str]) -> None:
    """A macro of the user may read any table, and an unknown name makes DuckDB load extensions.
    Asked for by its full name: a macro can take the place of any function."""
    found = cursor.execute(
        "SELECT DISTINCT function_name, internal FROM system.main.duckdb_functions()"
    ).fetchall()
    own = {name.lower() for name, internal in found if internal}
    own -= {name.lower() for name, internal in found if not internal}
    for name in sorted(called - _HARMLESS):
        if name in _REFUSED or name.startswith(_OF_CATALOGUE) or name not in own:
            raise Invalid(f"the function {name} cannot be used here; use DuckDB's plain functions")


def _check_tree(node: Any, schema: str, given: frozenset[str], called: set[str]) -> None:
    """`given` are the names that a WITH has given here. It matters where: in another place the
    same name is a table, or a file."""
    if isinstance(node, list):
        for inner in node:
            _check_tree(inner, schema, given, called)
        return
    if not isinstance(node, dict):
        return
    done = {"cte_map"}
    for one in node.get("cte_map", {}).get("map", ()):
        _check_tree(one["value"], schema, given, called)
        given |= {one["key"].lower()}  # those after it may name it
    if "cte_name" in node:
        # Only a recursive one may name itself, and where it begins not even that.
        first = "left" if node.get("type") == "RECURSIVE_CTE_NODE" else "query"
        done.add(first)
        _check_tree(node.get(first), schema, given, called)
        given |= {node["cte_name"].lower()}
    _check_node(node, schema, given)
    if name := node.get("function_name"):
        called.add(name.lower())
    for part, inner in node.items():
        if part not in done:
            _check_tree(inner, schema, given, called)


def _check_node(node: dict[str, Any], schema: str, given: frozenset[str]) -> None:
    match node.get("type"):
        case "BASE_TABLE":
            name, where = node["table_name"].lower(), node["schema_name"].lower()
            view = name in VIEWS and where in ("", schema) and not node["catalog_name"]
            if not view and (where or node["catalog_name"] or name not in given):
                raise beyond_views(f"{where}.{name}" if where else name)
        case "TABLE_FUNCTION":
            if node["function"].get("function_name", "").lower() not in _FUNCTIONS:
                raise beyond_views(f"{node['function'].get('function_name', 'this')}(…)")
        case "SHOW_REF" if node.get("query") is None:
            raise Invalid(_ONLY)
        case _:
            pass


def _type(name: str) -> str:
    if name.startswith("DECIMAL"):
        return NUMBER
    return INTEGER if name.endswith("INT") or name == "INTEGER" else _TYPES.get(name, name.lower())


def _line(fault: duckdb.Error) -> str:
    return (str(fault).splitlines() or [type(fault).__name__])[0]
