"""Cron: the wall clock readings that an expression matches, and the instants they occur at.

Two steps are separate. `_first_match` works on the calendar only: bit masks, no zone.
`next_after` turns a reading into an instant and handles clock changes.

One convention may surprise: a wall clock reading is a datetime whose tzinfo is UTC.
So `reading = instant + offset` and `instant = reading - offset`, without any conversion.
"""

from __future__ import annotations

from calendar import isleap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from rota.errors import Invalid
from rota.model import cron_fields as fields
from rota.model.cron_days import Days, Weekdays
from rota.model.cron_fields import FIRST_YEAR, LAST_YEAR, TEXT_LENGTH
from rota.model.zone import change_between, offset_at, parse_zone

__all__ = ["Cron", "parse_zone"]

_SECOND = timedelta(seconds=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
# Since 1970 no zone changed its clocks twice within six days, and none set them back by a day.
# So two equal offsets at most this far apart mean that nothing changed in between.
_STRETCH = timedelta(days=2)
# As in Debian's cron: a smaller jump is daylight saving, a larger one is a correction.
_LARGEST_MOVE = timedelta(hours=3)
_EARLIEST = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC) - _STRETCH
_LATEST = datetime(LAST_YEAR, 12, 31, tzinfo=UTC) + _STRETCH
_NEVER = datetime(LAST_YEAR + 2, 1, 1, tzinfo=UTC)  # a reading later than any match

_MONTH_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_NONE = -1


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression. Bit n of a mask says that the value n matches."""

    text: str
    seconds: int
    minutes: int
    hours: int
    days: Days
    months: int
    weekdays: Weekdays
    years: int
    both_days: bool  # both day of month and day of week must match; else one is enough
    fixed: bool  # second, minute and hour all name values: the entry is tied to the wall clock

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Read 5, 6 or 7 fields or a macro; `Invalid` says what is wrong and what to write."""
        if len(text) > TEXT_LENGTH:
            raise Invalid(f"cron text has {len(text)} characters; use at most {TEXT_LENGTH}")
        try:
            second, minute, hour, day, month, weekday, year = fields.split_fields(text)
            return cls(
                text=text,
                seconds=fields.parse_mask(fields.SECOND, second),
                minutes=fields.parse_mask(fields.MINUTE, minute),
                hours=fields.parse_mask(fields.HOUR, hour),
                days=Days.parse(day),
                months=fields.parse_mask(fields.MONTH, month),
                weekdays=Weekdays.parse(weekday),
                years=fields.parse_mask(fields.YEAR, year),
                both_days=day[0] in "*?" or weekday[0] in "*?",
                fixed="*" not in (second[0], minute[0], hour[0]),
            )
        except Invalid as problem:
            raise Invalid(f"cron {text!r} has {problem}") from None

    def next_after(self, after: datetime, zone: tzinfo, dst: str = "vixie") -> datetime | None:
        """The first occurrence strictly after `after`, in UTC; None if there is none up to 2099."""
        once, moves = self._clock_rules(dst)
        if after >= _LATEST:
            return None
        here = max(after, _EARLIEST).astimezone(UTC)
        if here.microsecond:
            here = here.replace(microsecond=0)
        offset = offset_at(zone, here)
        start = here + offset + _SECOND
        if once:
            start = max(start, _repeats_until(zone, here, offset))

        reading = self._first_match(start)
        while True:
            # `reading` is the next match if the clock keeps its offset until then.
            instant = reading - offset
            ahead = min(instant, here + _STRETCH)
            next_offset = offset_at(zone, ahead)
            if next_offset == offset and ahead == instant:
                return None if reading == _NEVER else instant
            if next_offset == offset:
                # No clock change so far: continue shortly before the reading.
                here = max(ahead, instant - _STRETCH)
                offset = offset_at(zone, here)
                continue
            # The clock changes before the reading, and continues from `resumed`.
            here = change_between(zone, here, ahead)
            resumed = here + next_offset
            in_gap = reading < resumed
            if in_gap and moves and next_offset - offset < _LARGEST_MOVE:
                return here
            # A clock that is set back repeats readings. With `once` the repeated ones do not count.
            reading = self._first_match(max(reading, resumed) if once else resumed)
            offset = next_offset

    def count(self, after: datetime, until: datetime, zone: tzinfo, dst: str = "vixie") -> int:
        """The number of occurrences after `after` and up to `until`.

        Counts by the hour; occurrence by occurrence only around clock changes."""
        once, _ = self._clock_rules(dst)
        # After a clock is set back, repeated readings do not count.
        repeated = _DAY if once else timedelta(0)
        count, occurrence = 0, self.next_after(after, zone, dst)
        while occurrence is not None and occurrence <= until:
            offset = offset_at(zone, occurrence)
            reading = occurrence + offset
            end = reading.replace(minute=0, second=0) + _HOUR - offset
            steady = offset_at(zone, occurrence - repeated) == offset == offset_at(zone, end)
            if steady and end <= until:
                later = (self.minutes >> reading.minute + 1).bit_count()
                count += (self.seconds >> reading.second).bit_count()
                count += later * self.seconds.bit_count()
                occurrence = end - _SECOND
            else:
                count += 1
            occurrence = self.next_after(occurrence, zone, dst)
        return count

    def note(self, at: datetime, zone: tzinfo, dst: str = "vixie") -> str | None:
        """The effect of a clock change on the occurrence `at`, in words; None without one."""
        once, moves = self._clock_rules(dst)
        before, offset = offset_at(zone, at - _SECOND), offset_at(zone, at)
        reading = at.astimezone(UTC) + offset
        if moves and before < offset < before + _LARGEST_MOVE:
            missing = self._first_match(reading - offset + before)
            if missing < reading:
                day = "this day" if missing.date() == reading.date() else "the day before"
                return (
                    f"{_clock(missing)} does not exist on {day} (clocks go forward); "
                    f"runs at {_clock(reading)}"
                )
        local = at.astimezone(zone)
        if local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset():
            which = "the first" if once else "both"
            return f"{_clock(reading)} happens twice on this day; runs at {which}"
        return None

    def _clock_rules(self, dst: str) -> tuple[bool, bool]:
        """(a repeated reading counts once, a reading in a gap moves to its end)."""
        match dst:
            case "vixie":
                return self.fixed, self.fixed
            case "literal":
                return False, False
            case "skip_once":
                return True, False
            case _:
                raise Invalid(f"dst {dst!r} is unknown; use vixie, literal or skip_once")

    def _first_match(self, start: datetime) -> datetime:
        """The first matching wall clock reading from `start` on, without regard to any zone."""
        today = (start.year, start.month, start.day)
        day = self._first_day(*today)
        if day == today:
            time = self._first_time(start.hour, start.minute, start.second)
            if time is not None:
                return datetime(*today, *time, tzinfo=UTC)
            day = self._first_day(start.year, start.month, start.day + 1)
        if day is None:
            return _NEVER
        time = _lowest_bit(self.hours), _lowest_bit(self.minutes), _lowest_bit(self.seconds)
        return datetime(*day, *time, tzinfo=UTC)

    def _first_time(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        """The first matching time of the day at or after this one."""
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1:
                value = _bit_from(self.seconds, second)
                if value != _NONE:
                    return hour, minute, value
            value = _bit_from(self.minutes, minute + 1)
            if value != _NONE:
                return hour, value, _lowest_bit(self.seconds)
        value = _bit_from(self.hours, hour + 1)
        if value != _NONE:
            return value, _lowest_bit(self.minutes), _lowest_bit(self.seconds)
        return None

    def _first_day(self, year: int, month: int, day: int) -> tuple[int, int, int] | None:
        """The first matching date at or after this one. Checks each month up to LAST_YEAR once."""
        for y in _bits_from(self.years, year):
            for m in _bits_from(self.months, month if y == year else 1):
                d = _bit_from(self._days_of(y, m), day if (y, m) == (year, month) else 1)
                if d != _NONE:
                    return y, m, d
        return None

    def _days_of(self, year: int, month: int) -> int:
        """The matching days of a month; bit n is day n."""
        first = date(year, month, 1).isoweekday() % 7
        length = 29 if month == 2 and isleap(year) else _MONTH_LENGTHS[month]
        by_number = self.days.in_month(first, length)
        by_weekday = self.weekdays.in_month(first, length)
        return by_number & by_weekday if self.both_days else by_number | by_weekday


def _repeats_until(zone: tzinfo, here: datetime, offset: timedelta) -> datetime:
    """The latest reading of the wall clock before it was set back, if within the last day."""
    earlier = offset_at(zone, here - _DAY)
    if earlier <= offset:
        return here + offset
    return change_between(zone, here - _DAY, here) + earlier


def _clock(reading: datetime) -> str:
    return reading.strftime("%H:%M:%S" if reading.second else "%H:%M")


def _bit_from(mask: int, start: int) -> int:
    """The lowest set bit from `start` on, or _NONE."""
    rest = mask >> start
    return start + (rest & -rest).bit_length() - 1 if rest else _NONE


def _lowest_bit(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _bits_from(mask: int, start: int) -> Iterator[int]:
    while (bit := _bit_from(mask, start)) != _NONE:
        yield bit
        start = bit + 1
