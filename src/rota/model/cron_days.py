"""The two day fields: days of the month and days of the week, with L, W and #.

The days they match depend on the month. So `in_month` takes the weekday of its first day (`first`,
Sunday is 0) and its `length` in days, and returns a mask whose bit n is day n.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rota.errors import Invalid
from rota.model.cron_fields import (
    DAY,
    SATURDAY,
    SUNDAY,
    SUNDAY_AS_7,
    WEEKDAY,
    parse_item,
    parse_value,
)

_BEFORE_END = 30
LAST = 0  # stands for n: `LW` among the `nW`, `xL` among the `x#n`
_SIX_WEEKS = sum(1 << 7 * week for week in range(6))


@dataclass(frozen=True, slots=True)
class Days:
    """Days of the month."""

    numbers: int  # a mask
    from_end: tuple[int, ...]  # n for each L-n, 0 for L
    working: tuple[int, ...]  # n for each nW, LAST for LW

    @classmethod
    def parse(cls, text: str) -> Days:
        numbers, from_end, working = 0, [], []
        for item in ("*" if text == "?" else text).split(","):
            if item == "L":
                from_end.append(0)
            elif item == "LW":
                working.append(LAST)
            elif match := re.fullmatch("L-([0-9]+)", item):
                if not 1 <= int(match[1]) <= _BEFORE_END:
                    raise Invalid(f"day {item}; use L-1 to L-{_BEFORE_END}")
                from_end.append(int(match[1]))
            elif match := re.fullmatch("([0-9]+)W", item):
                working.append(parse_value(DAY, match[1]))
            else:
                numbers |= parse_item(DAY, item)
        return cls(numbers, tuple(from_end), tuple(working))

    def in_month(self, first: int, length: int) -> int:
        mask = self.numbers
        for before_end in self.from_end:
            if before_end < length:
                mask |= 1 << length - before_end
        for number in self.working:
            day = length if number == LAST else number
            if day <= length:
                mask |= 1 << _nearest_working_day(day, first, length)
        return mask & _whole_month(length)


@dataclass(frozen=True, slots=True)
class Weekdays:
    """Days of the week."""

    every: int  # a mask
    numbered: tuple[tuple[int, int], ...]  # (x, n) for each x#n, (x, LAST) for xL

    @classmethod
    def parse(cls, text: str) -> Weekdays:
        every, numbered = 0, []
        for item in ("*" if text == "?" else text).split(","):
            if match := re.fullmatch("([0-9A-Z]+)#([0-9]+)", item):
                if match[2] not in ("1", "2", "3", "4", "5"):
                    raise Invalid(f"weekday {item}; use #1 to #5")
                numbered.append((parse_value(WEEKDAY, match[1]) % 7, int(match[2])))
            elif match := re.fullmatch("([0-9A-Z]+)L", item):
                numbered.append((parse_value(WEEKDAY, match[1]) % 7, LAST))
            else:
                every |= parse_item(WEEKDAY, item)
        if every >> SUNDAY_AS_7 & 1:
            every = every & ~(1 << SUNDAY_AS_7) | 1 << SUNDAY
        return cls(every, tuple(numbered))

    def in_month(self, first: int, length: int) -> int:
        mask = self.every * _SIX_WEEKS >> first << 1
        for weekday, number in self.numbered:
            day = 1 + (weekday - first) % 7
            weeks = (length - day) // 7 if number == LAST else number - 1
            mask |= 1 << day + 7 * weeks
        # The sixth week, and a fifth weekday, may lie past the end of the month.
        return mask & _whole_month(length)


def _whole_month(length: int) -> int:
    return (2 << length) - 2


def _nearest_working_day(day: int, first: int, length: int) -> int:
    """The day from Monday to Friday nearest to `day`, without leaving the month."""
    weekday = (first + day - 1) % 7
    if weekday == SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == SUNDAY:
        return day + 1 if day < length else day - 2
    return day
