"""The fields of a cron expression: text in, bit masks out.

Bit n of a mask says that the value n matches. Errors raised here hold only the end of the
sentence, such as `minute 61; use 0-59`; `Cron.parse` adds the beginning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from rota.errors import Invalid

TEXT_LENGTH = 256
FIRST_YEAR, LAST_YEAR = 1970, 2099

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]

# Text that may be a field, also a misspelt one: numbers, three letters, MONDAY.
_NAMES = f"[A-Z]{{1,3}}L?|(?:{'|'.join(_WEEKDAYS)})[A-Z]*"
_FIELD = re.compile(rf"(?!/[A-Z])(?:[0-9*?,/#-]|(?<![A-Z])(?:{_NAMES})(?![A-Z]))+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    low: int
    high: int
    size: int  # how many values differ, and so the largest step
    names: Mapping[str, int] = field(default_factory=dict)

    @property
    def allowed(self) -> str:
        named = list(self.names)
        return f"{self.low}-{self.high}" + (f" or {named[0]}-{named[-1]}" if named else "")


SECOND = Field("second", 0, 59, 60)
MINUTE = Field("minute", 0, 59, 60)
HOUR = Field("hour", 0, 23, 24)
DAY = Field("day", 1, 31, 31)
MONTH = Field("month", 1, 12, 12, {name: n for n, name in enumerate(_MONTHS, 1)})
# Sunday is 0 and 7.
WEEKDAY = Field("weekday", 0, 7, 7, {name: n for n, name in enumerate(_WEEKDAYS)})
YEAR = Field("year", FIRST_YEAR, LAST_YEAR, LAST_YEAR - FIRST_YEAR + 1)

SUNDAY, SATURDAY, SUNDAY_AS_7 = 0, 6, 7


def split_fields(text: str) -> list[str]:
    """Seven fields in upper case, seconds first and year last; a macro is expanded."""
    if not text.isascii():
        strange = next(character for character in text if not character.isascii())
        raise Invalid(f"the character {strange!r}; use plain digits and letters")
    expression = text.strip().lower()
    if expression.startswith("@every"):
        raise Invalid("@every; an interval is not cron, use every = '5m'")
    _refuse_command(text.split())
    if expression.startswith("@"):
        if expression not in MACROS:
            close = get_close_matches(expression, MACROS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"use {', '.join(MACROS)}"
            raise Invalid(f"the unknown macro {expression}; {hint}")
        expression = MACROS[expression]
    fields = expression.upper().split()
    match len(fields):
        case 5:
            return ["0", *fields, "*"]
        case 6:
            return [*fields, "*"]
        case 7:
            return fields
        case count:
            raise Invalid(
                f"{count} fields; use 5, 6 (seconds first) or 7 (seconds first, year last)"
            )


def _refuse_command(items: list[str]) -> None:
    """Refuse a line of a crontab: its command would be read as further fields."""
    fields = 1 if items and items[0].startswith("@") else 5
    if any(not _FIELD.fullmatch(item) for item in items[fields:]):
        timing, command = " ".join(items[:fields]), " ".join(items[fields:])
        raise Invalid(
            f"a command behind its fields, {command!r}; keep {timing!r} (a sixth field would mean "
            "that seconds come first), and put the command into the job's `command`"
        )


def parse_mask(kind: Field, text: str) -> int:
    """The mask of a list of values, ranges and steps."""
    mask = 0
    for item in text.split(","):
        mask |= parse_item(kind, item)
    return mask


def parse_item(kind: Field, item: str) -> int:
    """The mask of `*`, `5` or `1-5`, each with an optional `/step`; `5/20` is `5-59/20`."""
    if not item:
        raise Invalid(f"an empty {kind.name} in a list; remove the extra comma")
    span, slash, step_text = item.partition("/")
    if not span:
        raise Invalid(f"{kind.name} {item}; write what comes before the step, such as *{item}")
    first, dash, last = span.partition("-")
    if span == "*":
        low, high = kind.low, kind.high
    elif dash and first and last:
        low, high = parse_value(kind, first), parse_value(kind, last)
        # FRI-SUN can only mean the Sunday that follows.
        if kind is WEEKDAY and last == "SUN" and low > high:
            high = SUNDAY_AS_7
    else:
        low = parse_value(kind, span)
        high = kind.high if slash else low
    if low > high:
        raise Invalid(f"{kind.name} range {span}; use {kind.allowed}, the smaller value first")
    step = _parse_step(kind, step_text) if slash else 1
    mask = 0
    for value in range(low, high + 1, step):
        mask |= 1 << value
    return mask


def parse_value(kind: Field, text: str) -> int:
    if text in kind.names:
        return kind.names[text]
    # isdecimal and not int() alone, which also reads "1_0", "+5" and " 5".
    if not text.isdecimal() or not kind.low <= int(text) <= kind.high:
        raise Invalid(f"{kind.name} {text}; use {kind.allowed}")
    return int(text)


def _parse_step(kind: Field, text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= kind.size:
        raise Invalid(f"{kind.name} step {text or 'missing'}; use 1-{kind.size}")
    return int(text)
