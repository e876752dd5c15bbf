"""The meaning of a cron expression, in English.

It describes what the expression matches, not its text: `0,15,30,45 * * * *` is every 15 minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from rota.model import cron_fields as fields
from rota.model.cron import Cron
from rota.model.cron_days import LAST, Days, Weekdays

_MOST_TIMES = 4  # times of day that are listed
_FEW = 3  # so many neighbours are `1 through 3`
_ORDINALS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", LAST: "last"}
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
# From Monday on, so that Friday through Sunday are neighbours.
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

Name = Callable[[int], str]


def cron_in_words(cron: Cron) -> str:
    parts = [*_time(cron), *_days(cron), *_months(cron), *_years(cron)]
    text = ", ".join(parts)
    return text[0].upper() + text[1:]


@dataclass(frozen=True, slots=True)
class _Values:
    """The values that a field matches, and the lowest and highest it may have."""

    values: Sequence[int]
    low: int
    high: int

    @classmethod
    def of(cls, field: fields.Field, mask: int) -> _Values:
        values = [value for value in range(field.low, field.high + 1) if mask >> value & 1]
        return cls(values, field.low, field.high)

    @property
    def is_all(self) -> bool:
        return len(self.values) == self.high - self.low + 1

    @property
    def stride(self) -> int:
        """The distance between neighbours if it is the same for all, else 0."""
        strides = {after - before for before, after in pairwise(self.values)}
        return strides.pop() if len(self.values) >= _FEW and len(strides) == 1 else 0

    @property
    def has_step(self) -> bool:
        """True for `*/5` and `2/5`: steps from the field's beginning to its end."""
        first, last, stride = self.values[0], self.values[-1], self.stride
        return stride > 1 and first - stride < self.low and last + stride > self.high

    @property
    def is_range(self) -> bool:
        return self.stride == 1

    def every(self, units: str, name: Name, cycle: str) -> str:
        """The text for steps: `every 5 minutes from minute 2`.

        An uneven step starts again in each cycle: `every 7 minutes, anew each hour`."""
        first = self.values[0]
        begin = f" from {name(first)}" if first > self.low else ""
        uneven = (self.high - self.low + 1) % self.stride
        return f"every {self.stride} {units}{begin}" + (f", anew each {cycle}" if uneven else "")

    def ranges(self) -> list[tuple[int, int]]:
        """(first, last) of each group of neighbours."""
        ranges: list[tuple[int, int]] = []
        for value in self.values:
            if ranges and ranges[-1][1] == value - 1:
                ranges[-1] = (ranges[-1][0], value)
            else:
                ranges.append((value, value))
        return ranges

    def listed(self, name: Name = str) -> str:
        parts: list[str] = []
        for first, last in self.ranges():
            if last - first + 1 >= _FEW:
                parts.append(f"{name(first)} through {name(last)}")
            else:
                parts += [name(value) for value in range(first, last + 1)]
        return _and(parts)


def _and(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


# The time of day


def _time(cron: Cron) -> list[str]:
    seconds = _Values.of(fields.SECOND, cron.seconds)
    minutes = _Values.of(fields.MINUTE, cron.minutes)
    hours = _Values.of(fields.HOUR, cron.hours)
    if (times := _times(hours, minutes, seconds)) is not None:
        return [times]
    parts = [] if seconds.values == [0] else [_seconds(seconds, minutes)]
    if minutes.is_all and not parts:
        parts.append("every minute")
    elif not minutes.is_all and (parts or minutes.values != [0]):
        parts.append(_minutes(minutes))
    if not parts:
        parts.append(_whole_hours(hours))
    elif not hours.is_all:
        parts.append(_during_hours(hours))
    return parts


def _times(hours: _Values, minutes: _Values, seconds: _Values) -> str | None:
    """`at 09:00 and 17:00`; None if there are more than a few times."""
    each = (hours, minutes, seconds)
    if any(values.has_step for values in each):
        return None
    times = list(product(*(values.values[: _MOST_TIMES + 1] for values in each)))
    if len(times) > _MOST_TIMES:
        return None
    parts = 2 if seconds.values == [0] else 3
    return f"at {_and([':'.join(f'{part:02}' for part in time[:parts]) for time in times])}"


def _seconds(seconds: _Values, minutes: _Values) -> str:
    if seconds.is_all:
        return "every second"
    if seconds.has_step:
        return seconds.every("seconds", lambda value: f"second {value}", "minute")
    return f"at second {seconds.listed()}" + (" of every minute" if minutes.is_all else "")


def _minutes(minutes: _Values) -> str:
    if minutes.has_step:
        return minutes.every("minutes", lambda value: f"minute {value}", "hour")
    return f"at {minutes.listed()} minute{'' if minutes.values == [1] else 's'} past the hour"


def _whole_hours(hours: _Values) -> str:
    if hours.is_all:
        return "every hour"
    if hours.has_step:
        return hours.every("hours", _clock, "day")
    if hours.stride:
        unit = "hour" if hours.is_range else f"{hours.stride} hours"
        return f"every {unit} from {_clock(hours.values[0])} through {_clock(hours.values[-1])}"
    return f"at {hours.listed(_clock)}"


def _during_hours(hours: _Values) -> str:
    """The hours, where minutes or seconds have a text of their own."""
    if hours.has_step:
        ordinal = {2: "2nd", 3: "3rd"}.get(hours.stride, f"{hours.stride}th")
        begin = f" from {_clock(hours.values[0])}" if hours.values[0] else ""
        return f"during every {ordinal} hour{begin}"
    spans = [f"between {first:02}:00 and {last:02}:59" for first, last in hours.ranges()]
    return _and(spans)


def _clock(hour: int) -> str:
    return f"{hour:02}:00"


# The day


def _days(cron: Cron) -> list[str]:
    month, week = _days_of_month(cron.days), _days_of_week(cron.weekdays)
    if month and week:
        return [month, f"{'if that is' if cron.both_days else 'or on'} {week}"]
    if not cron.both_days:  # either field is enough, and one of them matches every day
        return []
    if week:
        if cron.weekdays.numbered:
            return [f"on {week}"]
        return [week if _weekdays(cron.weekdays).is_range else f"only on {week}"]
    return [month] if month else []


def _days_of_month(days: Days) -> str | None:
    """The text of the days; None if every day matches."""
    numbers = _Values.of(fields.DAY, days.numbers)
    if numbers.is_all:
        return None
    parts = []
    if numbers.values and numbers.has_step:
        parts.append(numbers.every("days", lambda value: f"day {value}", "month"))
    elif numbers.values:
        noun = "day" if len(numbers.values) == 1 else "days"
        parts.append(f"on {noun} {numbers.listed()} of the month")
    for before in days.from_end:
        distance = f"{before} day{'' if before == 1 else 's'} before" if before else "on"
        parts.append(f"{distance} the last day of the month")
    for number in days.working:
        day = "last working day" if number == LAST else f"working day nearest to day {number}"
        parts.append(f"on the {day} of the month")
    return _and(parts)


def _days_of_week(weekdays: Weekdays) -> str | None:
    """The text of the days; None if every day matches."""
    every = _weekdays(weekdays)
    if every.is_all:
        return None
    parts = [every.listed(_WEEKDAYS.__getitem__)] if every.values else []
    parts += [
        f"the {_ORDINALS[number]} {_WEEKDAYS[(weekday - 1) % 7]} of the month"
        for weekday, number in weekdays.numbered
    ]
    return _and(parts)


def _weekdays(weekdays: Weekdays) -> _Values:
    return _Values([day for day in range(7) if weekdays.every >> (day + 1) % 7 & 1], 0, 6)


# The year


def _months(cron: Cron) -> list[str]:
    return _only_in(_Values.of(fields.MONTH, cron.months), lambda month: _MONTHS[month - 1])


def _years(cron: Cron) -> list[str]:
    years = _Values.of(fields.YEAR, cron.years)
    if years.stride > 1:
        return [f"every {years.stride} years from {years.values[0]} through {years.values[-1]}"]
    return _only_in(years, str)


def _only_in(values: _Values, name: Name) -> list[str]:
    if values.is_all:
        return []
    return [("" if values.is_range else "only in ") + values.listed(name)]
