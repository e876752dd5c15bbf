"""The views that people read, and what a query over them may name.

On every engine a query sees the views and nothing else: Rota's tables are private, and other
tables of the same database are none of its business.
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
# What the engines say of a table that is not there.
_MISSING: Final = re.compile(r"no such table|(relation|table) .*does not exist", re.IGNORECASE)
# The same of a column: SQLite; PostgreSQL and DuckDB; DuckDB where a table is named, too.
_NO_COLUMN: Final = re.compile(
    r"no such column: (?:\w+\.)?(\w+)"
    r'|column "?(?:\w+\.)?(\w+)"? (?:does not exist|not found)'
    r'|have a column named "(\w+)"'
)

_PLAIN: Final = ("word", "string", "identifier", "backtick", "bracket")


def refuse_names(sql: str, dialect: str, prefixes: tuple[str, ...], why: str) -> None:
    """Refuse a query that names anything that begins like this, quoted or not."""
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
    """True if an engine says that a table is not there, and not yet what is."""
    return VIEWS_LISTED not in error and _MISSING.search(error) is not None


def unknown_column(error: str) -> str | None:
    """The column that an engine says is not there."""
    found = _NO_COLUMN.search(error)
    return None if found is None else next(name for name in found.groups() if name)


def views_in(sql: str) -> list[str]:
    """The views whose names stand in a query."""
    words = set(re.findall(r"\w+", sql.lower()))
    return [view for view in VIEWS if view in words]


def without_end(sql: str, dialect: str) -> str:
    """The query without a semicolon at its end, which could not stand in brackets."""
    tokens = [token for token in lex(sql, dialect) if token.kind != "comment"]
    if tokens and tokens[-1].kind == "semicolon":
        return sql[: tokens[-1].start] + sql[tokens[-1].end :]
    return sql


def check_columns(count: int) -> None:
    if not 0 < count <= SELECT_COLUMNS:
        raise Invalid(f"the query gives {count:,} columns; it must give 1 to {SELECT_COLUMNS}")


def bounded(sized: Iterable[tuple[Any, int]], limit: int) -> tuple[list[Any], bool]:
    """The first rows, of which each comes with its bytes; and whether there were more."""
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
