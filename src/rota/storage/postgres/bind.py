"""Values as PostgreSQL reads them: everything is sent as text whose type the statement names.

So a statement has one shape whatever is bound: a number that grows, or a column that is all NULL
in one batch, does not make the server prepare it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any


def bind(value: object) -> str | None:
    """One parameter; a list becomes an array."""
    match value:
        case None:
            return None
        case list() | tuple():
            return array(value)
        case str():
            return _storable(value)
        case _:
            return _PLAIN[type(value)](value)


def array(values: Sequence[Any]) -> str:
    """An array literal: `{1,NULL,"text"}`."""
    types = set(map(type, values))
    if len(types) != 1:
        return "{" + ",".join([_ELEMENT[type(value)](value) for value in values]) + "}"
    (only,) = types
    if only is str:
        return "{" + _texts(values) + "}"
    return "{" + ",".join(map(_ELEMENT[only], values)) + "}"


def _texts(values: Sequence[str]) -> str:
    """Quoted in one go, if nothing in any of them needs more than quotes around it."""
    joined = '","'.join(values)
    plain = "\\" not in joined and "\0" not in joined
    if plain and joined.count('"') == 2 * (len(values) - 1):
        return f'"{joined}"'
    return ",".join(map(_quoted, values))


def _storable(text: str) -> str:
    # The one character that PostgreSQL cannot store. An error message that holds it must not keep
    # its run from being settled.
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


def _quoted(text: str) -> str:
    return '"' + _storable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


# By exact type: bool is an int, and its text is another one.
_PLAIN: dict[type, Callable[..., str]] = {
    bool: lambda value: "t" if value else "f",
    int: int.__repr__,
    float: float.__repr__,
    datetime: datetime.isoformat,
    bytes: lambda value: "\\x" + value.hex(),
}
_ELEMENT: dict[type, Callable[..., str]] = {
    **_PLAIN,
    type(None): lambda _: "NULL",
    str: _quoted,
}
