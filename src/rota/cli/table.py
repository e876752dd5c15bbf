"""The table of a command's options, from the signature of its function; and back to a call.

A positional-only parameter is an argument, `*words` one that takes what is left, a keyword-only
parameter is an option. One of a dataclass (`Where`) is a group: each of its fields is an option.
What `takes` has given arrives in `**options`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from rota.cli.options import FILES, TAKEN, Option

METAVARS: dict[type, str] = {int: "INT"}


@dataclass(frozen=True, slots=True)
class Table:
    function: Callable[..., Any]
    options: tuple[Option, ...]
    groups: Mapping[str, type]

    def arguments(self, values: Mapping[Option, Any]) -> tuple[list[Any], dict[str, Any]]:
        """What to call the function with: what is not among the values is its default."""
        by_key: dict[str, Any] = {}
        in_groups: dict[str, dict[str, Any]] = {}
        for option, value in values.items():
            if option.field:
                in_groups.setdefault(option.key, {})[option.field] = value
            else:
                by_key[option.key] = value
        by_key |= {key: self.groups[key](**told) for key, told in in_groups.items()}
        positional: list[Any] = []
        for parameter in signature(self.function).parameters.values():
            if parameter.kind == Parameter.VAR_POSITIONAL:
                positional += by_key.pop(parameter.name, ())
            elif parameter.kind == Parameter.POSITIONAL_ONLY:
                positional.append(by_key.pop(parameter.name, parameter.default))
        return positional, by_key


def table_of(function: Callable[..., Any]) -> Table:
    """Arguments first, then options, then groups, each in the order of the signature."""
    hints = get_type_hints(function, include_extras=True)
    arguments: list[Option] = []
    options: list[Option] = []
    grouped: list[Option] = []
    groups: dict[str, type] = {}
    for parameter in signature(function).parameters.values():
        hint, key = hints[parameter.name], parameter.name
        if parameter.kind == Parameter.VAR_KEYWORD:
            options += [_named(option, key) for key, option in _taken(function).items()]
        elif is_dataclass(hint):
            assert isinstance(hint, type)
            groups[key] = hint
            of_fields = get_type_hints(hint, include_extras=True)
            grouped += [
                replace(
                    _named(_declared(of_fields[field.name]), field.name), key=key, field=field.name
                )
                for field in fields(hint)
            ]
        elif parameter.kind == Parameter.KEYWORD_ONLY:
            options.append(_named(_declared(hint), key))
        else:
            arguments.append(_argument(_declared(hint), parameter))
    return Table(function, (*arguments, *options, *grouped), groups)


def usage(command: str, options: tuple[Option, ...]) -> str:
    """`rota show X [OPTIONS]`"""
    words = [f"rota {command}"]
    for option in options:
        if not option.names:
            word = option.metavar + ("…" if option.many else "")
            words.append(word if option.required else f"[{word}]")
    return " ".join([*words, "[OPTIONS]"])


def spelled(option: Option) -> str:
    """`--tz, --timezone ZONE`, as help shows it."""
    names = ", ".join([*option.names, *filter(None, [option.off])])
    return f"{names} {option.metavar}".strip()


def _taken(function: Callable[..., Any]) -> Mapping[str, Option]:
    taken: Mapping[str, Option] = vars(function)[TAKEN]
    return taken


def _named(option: Option, key: str) -> Option:
    metavar = "" if option.kind is bool else option.metavar or METAVARS.get(option.kind, "TEXT")
    names = option.names or (f"--{key.replace('_', '-')}",)
    return replace(option, key=key, names=names, metavar=metavar)


def _argument(option: Option, parameter: Parameter) -> Option:
    many = parameter.kind == Parameter.VAR_POSITIONAL
    required = not many and parameter.default is Parameter.empty
    return replace(option, key=parameter.name, many=many, required=required)


def _declared(hint: Any) -> Option:
    """The option in `Annotated[int | None, Option(…)]`, with the type of its value."""
    kind, option = get_args(hint)
    assert isinstance(option, Option), f"{hint} is no annotated option"
    many = False
    while not isinstance(kind, type) or get_args(kind):
        many = many or get_origin(kind) is list
        kind = next(one for one in get_args(kind) if one is not NoneType)
    values = option.values or (FILES if kind is Path else ())
    return replace(option, kind=kind, many=many, values=values)
