"""`${NAME}` in texts other than SQL: an element of a command, a header, an address.

A value is put in once and is not searched for variables. `put` applies the rules of the text around
it. Messages never contain a value: it may be a secret.
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
    """A variable at its position in a text."""

    name: str
    default: str | None = None
    start: int = 0


Put = Callable[[Variable, str], str]


def readable(name: str) -> bool:
    return interpolate.readable(name, RUN_VARIABLES)


def parts(text: str) -> Iterator[str | Variable]:
    """Plain text and variables in order; refused if a `${` is neither a variable nor `$${`."""
    position = 0
    for match in _PIECE.finditer(text):
        yield text[position : match.start()]
        position = match.end()
        if match[1]:
            yield _variable(match[1], match.start())
        elif match[2]:
            yield "${"
        else:
            raise Invalid(
                f"{text[match.start() : match.start() + 20]!r} is not a variable; write ${{NAME}} "
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
    """The value, else the default; None without either, or if the name may not be read."""
    if not readable(variable.name):
        return None
    value = values.get(variable.name)
    return variable.default if variable.default is not None and not value else value


def refuse_missing(texts: Iterable[str], values: Mapping[str, str]) -> None:
    """Invalid, naming all variables that have neither a value nor a default."""
    used = [variable for text in texts for variable in variables(text)]
    missing = dict.fromkeys(
        variable.name for variable in used if value_of(variable, values) is None
    )
    if missing:
        raise Invalid(missing_message(missing))


def missing_message(names: Collection[str]) -> str:
    return interpolate.missing_message(names, RUN_VARIABLES, "by a job")


def secrets_in(texts: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """The values of all variables whose names mark a secret."""
    used = [
        variable for text in texts for variable in variables(text) if is_secret_name(variable.name)
    ]
    return [value for variable in used if (value := value_of(variable, values))]


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
