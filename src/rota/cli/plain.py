"""Read a line whose options are all spelled out, without the parser.

To load cyclopts takes longer than most commands do. Where each option has its whole name and a
value that can mean one thing only, the signature of the function says all there is to know. Any
other line is left to cyclopts, to be understood or to be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

DIGITS = 18


def read_plain(function: Callable[..., Any], tokens: Sequence[str]) -> dict[str, Any] | None:
    """The arguments of the function; None where it takes cyclopts to know."""
    parameters = signature(function).parameters.values()
    if any(one.kind != one.KEYWORD_ONLY and one.default is Parameter.empty for one in parameters):
        return None
    hints = get_type_hints(function, include_extras=True)
    # By its name: where the value goes, as what, and which type it has.
    options: dict[str, tuple[dict[str, Any], str, type]] = {}
    arguments: dict[str, Any] = {}
    groups: dict[str, tuple[type, dict[str, Any]]] = {}
    for one in parameters:
        if one.kind != one.KEYWORD_ONLY:
            continue
        kind = _kind(hints[one.name])
        if is_dataclass(kind):
            groups[one.name] = kind, {}
            for name, hint in get_type_hints(kind, include_extras=True).items():
                options[_spelled(name)] = groups[one.name][1], name, _kind(hint)
        else:
            options[_spelled(one.name)] = arguments, one.name, kind
    rest = iter(tokens)
    for token in rest:
        told, name, kind = options.get(token, ({}, "", NoneType))
        value = True if kind is bool else _value(kind, next(rest, ""))
        if value is None or name in told:
            return None
        told[name] = value
    made = {name: group(**told) for name, (group, told) in groups.items() if told}
    return arguments | made


def _spelled(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _kind(hint: Any) -> type:
    """What a value is converted to; None's own type where that is not for us to know."""
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        if any(note.told.get("name", "*") != "*" for note in notes):
            return NoneType
    if isinstance(hint, type):
        return hint
    match get_args(hint):
        case (type() as kind, none) if none is NoneType and kind is not bool:
            return kind
        case _:
            return NoneType


def _value(kind: type, text: str) -> Any:
    """None where another reading is possible."""
    if not text or text.startswith("-"):
        return None
    if kind is int:
        return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS else None
    return kind(text) if kind in (str, Path) else None
