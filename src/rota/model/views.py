"""The public views, and the check of queries over them.

On every engine a query may read the views only, not Rota's private tables nor other tables of the
same database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from rota.errors import Invalid
from rota.model.limits import SELECT_BYTES, SELECT_COLUMNS, SELECT_ROW_BYTES
from rota.model.sql_lexer import lex

VIEWS: Final = (
    "jobs", "job_queue", "job_runs", "schedules", "occurrences", "runs", "attempts", "steps",
    "events", "workers", "queues", "dead", "schedule_changes",
)  # fmt: skip

VIEWS_LISTED: Final = ", ".join(VIEWS)
# Errors of the engines about a missing table.
_MISSING: Final = re.compile(r"no such table|(relation|table) .*does not exist", re.IGNORECASE)
# Errors about a missing column: SQLite; PostgreSQL and DuckDB; DuckDB with a table name.
_NO_COLUMN: Final = re.compile(
    r"no such column: (?:\w+\.)?(\w+)"
    r'|column "?(?:\w+\.)?(\w+)"? (?:does not exist|not found)'
    r'|have a column named "(\w+)"'
)

_PLAIN: Final = ("word", "string", "identifier", "backtick", "bracket")


def refuse_names(sql: str, dialect: str, prefixes: tuple[str, ...], why: str) -> None:
    """Refuse a query with a name that begins with one of these prefixes, quoted or not."""
    for token in lex(sql, dialect):
        if token.kind == "unicode_identifier":
            raise Invalid('names as U&"…" are not understood here; write them out')
        if token.kind not in _PLAIN:
            continue
        piece = sql[token.start : token.end]
        name = (piece if token.kind == "word" else piece[1:-1]).lower()
        if name.startswith(prefixes):
            raise Invalid(f"{piece} {why}; query the views: {VIEWS_LISTED}")


def beyond_views(what: str) -> Invalid:
    return Invalid(f"{what} is not one of Rota's views; they are {VIEWS_LISTED}")


def names_no_view(error: str) -> bool:
    """True if an engine's error is about a missing table and does not list the views yet."""
    return VIEWS_LISTED not in error and _MISSING.search(error) is not None


def unknown_column(error: str) -> str | None:
    """The missing column that an engine's error names."""
    match = _NO_COLUMN.search(error)
    return None if match is None else next(name for name in match.groups() if name)


def views_in(sql: str) -> list[str]:
    """The views whose names occur in a query."""
    names = set(re.findall(r"\w+", sql.lower()))
    return [view for view in VIEWS if view in names]


def without_end(sql: str, dialect: str) -> str:
    """The query without a final semicolon, so that it can be put in parentheses."""
    tokens = [token for token in lex(sql, dialect) if token.kind != "comment"]
    if tokens and tokens[-1].kind == "semicolon":
        return sql[: tokens[-1].start] + sql[tokens[-1].end :]
    return sql


def check_columns(count: int) -> None:
    if not 0 < count <= SELECT_COLUMNS:
        raise Invalid(f"the query gives {count:,} columns; it must give 1 to {SELECT_COLUMNS}")


def bounded(sized: Iterable[tuple[Any, int]], limit: int) -> tuple[list[Any], bool]:
    """(first rows within the limits, whether there were more), from pairs of row and size."""
    rows: list[Any] = []
    left = SELECT_BYTES
    for row, size in sized:
        if size > SELECT_ROW_BYTES:
            raise too_large()
        left -= size
        if len(rows) == limit or left < 0:
            return rows, True
        rows.append(row)
    return rows, False


def too_large() -> Invalid:
    return Invalid(
        f"a row of the answer takes more than {SELECT_ROW_BYTES:,} bytes; select fewer columns, "
        "or the beginning of long ones"
    )
