"""Escape a value for each kind of SQL quote, and refuse values that cannot be escaped.

Errors are text to follow "the value of NAME"; {0} is the name. They never contain the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from rota.model.limits import VARIABLE_LENGTH
from rota.model.sql_lexer import WIDE_BLANK

_NUMBER_OR_NAME: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[A-Za-z_][A-Za-z0-9_]*"
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HEX: Final = re.compile(r"[0-9A-Fa-f]*")
# An open backslash sequence, which the first characters of a value would become a part of.
_OPEN_ESCAPE: Final = re.compile(
    r"(?<!\\)(?:\\\\)*\\(?:[0-7]{0,2}|x[0-9A-Fa-f]?|u[0-9A-Fa-f]{0,3}|U[0-9A-Fa-f]{0,7})\Z"
)
# Escapes of a value by kind of quote. Other kinds refuse values instead.
_ESCAPES: Final[dict[str, Callable[[str], str]]] = {
    "string": lambda value: value.replace("'", "''"),
    "escaped": lambda value: value.replace("\\", "\\\\").replace("'", "''"),
    "identifier": lambda value: value.replace('"', '""'),
    "backtick": lambda value: value.replace("`", "``"),
}


def escape(value: str, kind: str) -> str:
    """The value as it is written inside a quote of this kind."""
    return _ESCAPES.get(kind, str)(value)


def unfit(value: str) -> str:
    """The reason why no SQL text can contain a value, or empty text."""
    if "\0" in value:
        return "holds a NUL character; encode it, for example as hex"
    if len(value) > VARIABLE_LENGTH:
        return (
            f"has {len(value):,} characters; the limit is {VARIABLE_LENGTH:,}. "
            "Load large data from a file or a table"
        )
    if _SURROGATE.search(value):
        return "is not valid UTF-8; encode it, for example as hex"
    return ""


def misplaced(value: str, kind: str, quote: str, before: str, dialect: str) -> str:
    """The reason why a value cannot be in this kind of quote, or empty text; {0} is its name."""
    match kind:
        case "variable" if not _NUMBER_OR_NAME.fullmatch(value):
            return (
                "is neither a number nor a plain name, so it cannot stand without quotes; write "
                "'${{{0}}}', or ${{{0}:raw}} to put it in as SQL"
            )
        case "escaped" if _OPEN_ESCAPE.search(before):
            return "follows a backslash, which would take its first characters; double it: \\\\"
        case "bits" if not _HEX.fullmatch(value):
            return "is not hexadecimal, as its quote demands; write '${{{0}}}' for text"
        case "bracket" if "]" in value:
            return 'holds ], which [ ] cannot; write "${{{0}}}"'
        # DuckDB replaces wide blanks before it reads quotes, except in plain ones.
        case "escaped" | "dollar" if dialect == "duckdb" and WIDE_BLANK.search(value):
            return "holds a blank that DuckDB would change in such a quote; write '${{{0}}}'"
        case "unicode" | "unicode_identifier":
            return "stands in a U& quote, where it cannot be escaped; use a plain quote"
        case "dollar" if dollar_parts(quote)[0] in value:
            return f"holds {dollar_parts(quote)[0]}, which ends its quote; use another tag"
        case _:
            return ""


def dollar_parts(written: str) -> tuple[str, str]:
    """The tag of a dollar quote, such as $$ or $body$, and its content."""
    tag = written[: written.index("$", 1) + 1]
    return tag, written[len(tag) : -len(tag)]
