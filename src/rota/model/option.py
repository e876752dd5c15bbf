"""How an option of a schedule is declared: once, as the field of `Schedule` that holds it.

The kind of an option knows which values it takes. Every surface derives its own form from the kind:
a flag, a field of a request, a column of a view, a line of the docs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rota.errors import Invalid
from rota.model.duration import parse_duration, parse_instant
from rota.model.limits import check_payload, check_whole
from rota.model.policies import choose
from rota.model.retry import Retry
from rota.model.zone import parse_zone

OPTION = "option"  # the key in the metadata of a field
_NAMED = re.compile(r"\{(\w+)(?:=(\w+))?\}")


class Kind:
    """The values that an option takes. None is allowed where the default is None.

    `word` names the kind to programs, `metavar` stands for a value in help and docs."""

    word = ""
    metavar = ""

    def check(self, value: Any, name: str) -> Any:
        """The value as a schedule holds it; Invalid if it is none of this kind."""
        raise NotImplementedError

    def from_stored(self, value: Any) -> Any:
        """What `check` takes, from the JSON that is stored."""
        return value


@dataclass(frozen=True)
class Text(Kind):
    word = "text"
    metavar: str = "TEXT"

    def check(self, value: Any, name: str) -> str:
        if not isinstance(value, str):
            raise Invalid(f"{name} {value!r} must be text")
        return value


@dataclass(frozen=True)
class Zone(Text):
    word = "zone"
    metavar: str = "ZONE"

    def check(self, value: Any, name: str) -> str:
        parse_zone(super().check(value, name))
        return str(value)


@dataclass(frozen=True)
class Choice(Kind):
    """One of some values. `spellings` has every spelling, with the value that it stands for."""

    word = "choice"
    metavar = "CHOICE"
    spellings: Mapping[str, str]

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.spellings.values()))

    def check(self, value: Any, name: str) -> str:
        return choose(value, self.spellings, name)


@dataclass(frozen=True)
class Whole(Kind):
    word = "whole number"
    metavar = "N"
    low: int
    high: int

    def check(self, value: Any, name: str) -> int:
        return check_whole(value, name, self.low, self.high)


class Duration(Kind):
    word = "duration"
    metavar = "DURATION"

    def check(self, value: Any, name: str) -> Any:
        return parse_duration(value, name, zero=True)


class Instant(Kind):
    word = "instant"
    metavar = "INSTANT"

    def check(self, value: Any, name: str) -> Any:
        return parse_instant(value, name)


class Flag(Kind):
    word = "flag"

    def check(self, value: Any, name: str) -> bool:
        if value not in (True, False):
            raise Invalid(f"{name} {value!r} must be true or false")
        return bool(value)


class Arguments(Kind):
    word = "arguments"
    metavar = "JSON"

    def check(self, value: Any, name: str) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise Invalid(f"{name} {value!r} must be a mapping of names to values")
        check_payload(dict(value))
        return value


class RetryPolicy(Kind):
    """A whole policy. Surfaces take its parts, as options of their own."""

    word = "retry policy"

    def check(self, value: Any, name: str) -> Retry:
        if not isinstance(value, Retry):
            raise Invalid(f"{name} {value!r} must be a retry policy")
        return value

    def from_stored(self, value: Any) -> Any:
        return None if value is None else Retry.from_dict(value)


@dataclass(frozen=True, kw_only=True)
class Option:
    """What a field declares beside its name and default.

    `moves_cursor`: the next fire depends on it. `in_plan`: what a fire does depends on it.
    `own_plan`: with another value than the default, no other schedule fires by the same plan.
    `in_view`: the view `schedules` has a column of it.
    """

    name: str = ""
    kind: Kind
    default: Any = None
    group: str
    help: str
    moves_cursor: bool = False
    in_plan: bool = True
    own_plan: bool = False
    in_view: bool = True

    @property
    def nullable(self) -> bool:
        return self.default is None

    def check(self, value: Any) -> Any:
        if value is None and self.nullable:
            return None
        return self.kind.check(value, self.name)

    def explained(self, spell: Callable[[str, str], str]) -> str:
        """Its help, where another option is named as a surface spells it, with its value or ''.

        In `help` that is {catch_up} or {catch_up=all}; {values} are those of a choice."""
        text = self.help
        if isinstance(self.kind, Choice):
            *others, last = self.kind.values
            text = text.replace("{values}", f"{', '.join(others)} or {last}")
        return _NAMED.sub(lambda name: spell(name[1], name[2] or ""), text)


def option(
    default: Any,
    kind: Kind,
    *,
    group: str,
    help: str,
    moves_cursor: bool = False,
    in_plan: bool = True,
    own_plan: bool = False,
    in_view: bool = True,
) -> Any:
    """The field of an option."""
    declared = Option(
        kind=kind,
        default=default,
        group=group,
        help=help,
        moves_cursor=moves_cursor,
        in_plan=in_plan,
        own_plan=own_plan,
        in_view=in_view,
    )
    metadata = {OPTION: declared}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)
