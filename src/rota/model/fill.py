"""`${NAME}` in texts that are no SQL: an element of a command, a header, an address.

A value goes in once and is never looked at again. Where it goes may have rules of its own: they
are given as `put`. Messages never show a value: it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rota.errors import Invalid
from rota.model import interpolate
from rota.model.environment import RUN_VARIABLES
from rota.model.limits import VARIABLE_LENGTH
from rota.model.redact import is_secret_name
from rota.model.sql_lexer import LITERAL, VARIABLE

_PIECE: Final = re.compile(f"({VARIABLE})|({LITERAL})|(\\$\\{{)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable where it stands in a text."""

    name: str
    default: str | None = None
    start: int = 0


Put = Callable[[Variable, str], str]


def readable(name: str) -> bool:
    return interpolate.readable(name, RUN_VARIABLES)


def parts(text: str) -> Iterator[str | Variable]:
    """Plain text and variables in order; refused if a `${` is neither a variable nor `$${`."""
    position = 0
    for found in _PIECE.finditer(text):
        yield text[position : found.start()]
        position = found.end()
        if found[1]:
            yield _variable(found[1], found.start())
        elif found[2]:
            yield "${"
        else:
            raise Invalid(
                f"{text[found.start() : found.start() + 20]!r} is not a variable; write ${{NAME}} "
                "in capitals, or $${ for a plain ${"
            )
    yield text[position:]


def variables(text: str) -> list[Variable]:
    return [part for part in parts(text) if isinstance(part, Variable)]


def texts_in(value: Any) -> Iterator[str]:
    """Every text in a JSON value, names included."""
    match value:
        case str():
            yield value
        case Mapping():
            for name, inner in value.items():
                yield name
                yield from texts_in(inner)
        case list() | tuple():
            for inner in value:
                yield from texts_in(inner)


def value_of(variable: Variable, values: Mapping[str, str]) -> str | None:
    """Its value, else its default; None if there is neither, or it may not be read."""
    if not readable(variable.name):
        return None
    value = values.get(variable.name)
    return variable.default if variable.default is not None and not value else value


def refuse_missing(texts: Iterable[str], values: Mapping[str, str]) -> None:
    """Name all that is missing at once."""
    used = [one for text in texts for one in variables(text)]
    missing = dict.fromkeys(one.name for one in used if value_of(one, values) is None)
    if missing:
        raise Invalid(missing_message(missing))


def missing_message(names: Collection[str]) -> str:
    return interpolate.missing_message(names, RUN_VARIABLES, "by a job")


def secrets_in(texts: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """The values of all variables whose names mark a secret."""
    used = [one for text in texts for one in variables(text) if is_secret_name(one.name)]
    return [value for one in used if (value := value_of(one, values))]


def fill(text: str, values: Mapping[str, str], put: Put = lambda variable, value: value) -> str:
    """The text with every variable replaced."""
    made = []
    for part in parts(text):
        if isinstance(part, str):
            made.append(part)
            continue
        value = value_of(part, values)
        if value is None:
            raise Invalid(missing_message([part.name]))
        if len(value) > VARIABLE_LENGTH:
            raise Invalid(
                f"the value of {part.name} has {len(value):,} characters; the limit is "
                f"{VARIABLE_LENGTH:,}"
            )
        made.append(put(part, value))
    return "".join(made)


def _variable(written: str, start: int) -> Variable:
    name, colon, option = written[2:-1].partition(":")
    if colon and not option.startswith("-"):
        raise Invalid(
            f"{written} is not a variable; write ${{{name}}} or ${{{name}:-default}}, or $${{ for "
            "a plain ${"
        )
    return Variable(name=name, default=option[1:] if colon else None, start=start)
