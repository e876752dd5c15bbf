"""Durations (`90s`, `1h30m`, `2d`) and instants (ISO 8601 with an offset)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from rota.errors import Invalid

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|m|h|d|w)", re.ASCII)
_UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_ORDER = list(reversed(_UNITS))
LONGEST = timedelta(days=3_660)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)

_TEXTS = "use text like '90s', '30m', '1h30m' or '2d'"
# Text comes from a file, a statement or a command, where there is no timedelta.
_HOW_TEXT = f"{_TEXTS}, or a number of seconds"
_HOW = f"{_TEXTS}, a number of seconds, or a timedelta"


def parse_duration(value: object, field: str, *, zero: bool = False) -> timedelta:
    """A duration above zero (or from zero, if `zero`), at most ten years."""
    span = _to_span(value, field)
    if span > LONGEST:
        raise Invalid(f"{field} {value!r} is longer than {format_duration(LONGEST)}")
    if span < timedelta(0) or (not zero and span == timedelta(0)):
        raise Invalid(f"{field} {value!r} must be {'zero or more' if zero else 'above zero'}")
    return span


def _to_span(value: object, field: str) -> timedelta:
    match value:
        case timedelta():
            return value
        case bool():
            raise Invalid(f"{field} {value!r} is not a duration; {_HOW}")
        case int() | float():
            # Compare first: a large whole number cannot be converted to a float.
            if not abs(value) <= LONGEST.total_seconds():
                raise Invalid(f"{field} {value!r} is not a duration; {_HOW}")
            return timedelta(seconds=value)
        case str():
            return _parse_text(value, field)
        case _:
            raise Invalid(f"{field} {value!r} is not a duration; {_HOW}")


def _parse_text(text: str, field: str) -> timedelta:
    total, position, units = timedelta(0), 0, []
    stripped = text.strip()
    if len(stripped) > 64:
        raise Invalid(f"{field} is not a duration; {_HOW_TEXT}")
    while match := _PART.match(stripped, position):
        number, unit = match.groups()
        if float(number) * _UNITS[unit].total_seconds() > LONGEST.total_seconds():
            raise Invalid(f"{field} {text!r} is longer than {format_duration(LONGEST)}")
        total += float(number) * _UNITS[unit]
        units.append(unit)
        position = match.end()
    in_order = sorted(set(units), key=_ORDER.index) == units
    if not units or position != len(stripped) or not in_order:
        raise Invalid(f"{field} {text!r} is not a duration; {_HOW_TEXT}")
    return total


def format_duration(span: timedelta) -> str:
    """The shortest text that `parse_duration` reads back exactly."""
    rest, parts = span, []
    for unit in _ORDER[1:]:  # weeks read worse than days
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_instant(value: object, field: str) -> datetime:
    """An instant as UTC. Refused without an offset: its meaning would depend on the machine."""
    moment = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            moment = None
    if not isinstance(moment, datetime):
        raise Invalid(
            f"{field} {value!r} is not an instant; use ISO 8601 with an offset, "
            "such as '2026-03-29T02:30:00+01:00'"
        )
    if moment.tzinfo is None:
        raise Invalid(f"{field} {value!r} has no offset; add one, such as '+01:00' or 'Z'")
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        raise Invalid(f"{field} {value!r} is outside the calendar") from None
    if moment >= LATEST:
        raise Invalid(f"{field} {value!r} is later than the year {LATEST.year - 1}")
    return moment


def micros(moment: datetime) -> int:
    """Whole microseconds since 1970, exact for any instant."""
    return (moment - EPOCH) // _UNITS["us"]


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
