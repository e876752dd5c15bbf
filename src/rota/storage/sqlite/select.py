"""One SELECT over the views, on a connection of its own that can change nothing.

Three fences: `query_only`, an authorizer that lets nothing pass but reading, and no name of a
private table in the text, because the authorizer cannot tell who asks for one: a view or the user.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rota.errors import Invalid, Unavailable
from rota.model.limits import SELECT_COLUMNS, SELECT_ROW_BYTES
from rota.model.result import BOOLEAN, INTEGER, NUMBER, TEXT, Column, Result, displayable_rows
from rota.model.views import VIEWS, beyond_views, bounded, refuse_names

STEPS_BETWEEN_LOOKS = 10_000

_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE}
# Which others there are depends on how SQLite was built, and what was loaded into it: some read
# files, and fts3_tokenizer takes an address in memory.
_PLAIN = """
    -> ->> abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling char coalesce concat
    concat_ws cos cosh count cume_dist current_date current_time current_timestamp date datetime
    degrees dense_rank exp first_value floor format glob group_concat hex if ifnull iif instr json
    json_array json_array_insert json_array_length json_error_position json_extract
    json_group_array json_group_object json_insert json_object json_patch json_pretty json_quote
    json_remove json_replace json_set json_type json_valid jsonb jsonb_array jsonb_array_insert
    jsonb_extract jsonb_group_array jsonb_group_object jsonb_insert jsonb_object jsonb_patch
    jsonb_remove jsonb_replace jsonb_set julianday lag last_value lead length like likelihood
    likely ln log log10 log2 lower ltrim max median min mod nth_value ntile nullif octet_length
    percent_rank percentile percentile_cont percentile_disc pi pow power printf quote radians
    random randomblob rank replace round row_number rtrim sign sin sinh soundex sqlite_version sqrt
    strftime string_agg substr substring subtype sum tan tanh time timediff total trim trunc typeof
    unhex unicode unistr unistr_quote unixepoch unlikely upper zeroblob
"""
_FUNCTIONS = frozenset(_PLAIN.split())
_VIRTUAL = frozenset({"json_each", "json_tree"})
_TYPES = {bool: BOOLEAN, int: INTEGER, float: NUMBER, str: TEXT, bytes: "blob"}


def select(
    connection: sqlite3.Connection, sql: str, *, schema: str, limit: int, seconds: float
) -> Result:
    """The first rows of a query. The connection stays as it was, but for temporary views."""
    private = f"_{schema}_"
    refuse_names(sql, "sqlite", (private, "sqlite_", "pragma_"), "is private")
    _name_views(connection, schema)
    foreign = _foreign_tables(connection, schema)
    refused: list[str] = []
    until = time.monotonic() + seconds
    longest = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, SELECT_ROW_BYTES)
    widest = connection.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, SELECT_COLUMNS)
    connection.execute("PRAGMA query_only = ON")
    connection.set_authorizer(_allowing(foreign, refused))
    connection.set_progress_handler(lambda: time.monotonic() > until, STEPS_BETWEEN_LOOKS)
    try:
        cursor = connection.execute(sql)
        if cursor.description is None:
            raise Invalid("only a SELECT can be asked here")
        rows, more = bounded(((row, _size(row)) for row in cursor), limit)
        names = [column[0] for column in cursor.description]
        cursor.close()
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as fault:
        raise _told(fault, refused, seconds) from fault
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_authorizer(None)
        connection.execute("PRAGMA query_only = OFF")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
        connection.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, widest)
    shown = displayable_rows(rows)
    columns = tuple(
        Column(name, _type(row[place] for row in shown)) for place, name in enumerate(names)
    )
    return Result(columns=columns, rows=shown, more=more)


def _size(row: tuple[Any, ...]) -> int:
    cells = (cell.encode() if isinstance(cell, str) else cell for cell in row)
    return sum(len(cell) if isinstance(cell, bytes) else 8 for cell in cells)


def _name_views(connection: sqlite3.Connection, schema: str) -> None:
    """The views by their bare names, where the user has no table of that name: it would be hidden
    from this connection alone, and cannot be read here anyway."""
    for view in VIEWS:
        connection.execute(
            f"CREATE TEMP VIEW IF NOT EXISTS {view} AS SELECT * FROM main.{schema}_{view}"
        )


def _foreign_tables(connection: sqlite3.Connection, schema: str) -> frozenset[str]:
    """Everything of this file that is not Rota's, and tables that SQLite makes up."""
    found = connection.execute(
        "SELECT name FROM main.sqlite_master WHERE type IN ('table', 'view')"
    )
    names = {name.lower() for (name,) in found if not name.lower().startswith(f"_{schema}_")}
    names -= {f"{schema}_{view}" for view in VIEWS}
    virtual = {name.lower() for (name,) in connection.execute("PRAGMA module_list")}
    return frozenset(names | virtual - _VIRTUAL)


def _allowing(
    foreign: frozenset[str], refused: list[str]
) -> Callable[[int, str | None, str | None, str | None, str | None], int]:
    def decide(
        action: int, one: str | None, two: str | None, database: str | None, _: str | None
    ) -> int:
        if action in _READING:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            if (two or "").lower() in _FUNCTIONS:
                return sqlite3.SQLITE_OK
            refused.append(f"the function {two}")
            return sqlite3.SQLITE_DENY
        name = (one or "").lower()
        # A table-valued function such as json_each asks for the rows of the catalogue in general.
        of_catalogue = name == "sqlite_master" and (two == "ROWID" or action == 23)
        if action == sqlite3.SQLITE_READ or of_catalogue:
            # Without a database: a table of which no column is read, only counted.
            hidden = database != "temp" and name in foreign
            if of_catalogue or not (hidden or name.startswith(("sqlite_", "pragma_"))):
                return sqlite3.SQLITE_OK
            refused.append(one or "")
        return sqlite3.SQLITE_DENY

    return decide


def _told(fault: Exception, refused: list[str], seconds: float) -> Exception:
    text = str(fault)
    if refused and refused[0].startswith("the function "):
        return Invalid(f"{refused[0]} cannot be used here; use SQLite's plain functions")
    if refused:
        return beyond_views(refused[0])
    if "not authorized" in text or "readonly" in text or "You can only execute one" in text:
        return Invalid("only a single SELECT over Rota's views can be asked here")
    if "interrupted" in text:
        return Unavailable(f"the query took longer than {seconds:g} s and was stopped")
    return Invalid(f"SQLite: {text}")


def _type(values: object) -> str:
    """SQLite's columns have no types, its values have."""
    with suppress(TypeError):
        kinds = {type(value) for value in values if value is not None}  # type: ignore[attr-defined]
        if len(kinds) == 1:
            return _TYPES.get(kinds.pop(), TEXT)
        if kinds == {int, float}:
            return NUMBER
    return TEXT
