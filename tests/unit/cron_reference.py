"""A slow second opinion on cron, for tests only. It shares no code and no idea with `rota`.

It reads the rules as words and plays a person who watches a wall clock: real time goes on step by
step, and at each step the clock on the wall is looked at. A step is as long as surely nothing
can match, and is halved when the clock was changed within it, down to the very second.
"""

from __future__ import annotations

import calendar
import itertools
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache

LAST_YEAR = 2099
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
MONTHS = {name.upper(): number for number, name in enumerate(calendar.month_abbr) if number}
# date.weekday() counts Monday as 0; cron counts Sunday as 0 and 7.
WEEKDAYS = {"SUN": 0, "MON": 1, "TUE": 2, "WED": 3, "THU": 4, "FRI": 5, "SAT": 6}

DayTest = Callable[[date], bool]


class Watcher:
    """One expression, spelled out as sets of values and as questions about a date."""

    def __init__(self, text: str) -> None:
        parts = text.upper().split()
        if len(parts) == 5:
            parts.insert(0, "0")
        if len(parts) == 6:
            parts.append("*")
        second, minute, hour, day, month, weekday, year = parts
        self.seconds = values(second, range(60))
        self.minutes = values(minute, range(60))
        self.hours = values(hour, range(24))
        self.months = values(month, range(1, 13), MONTHS)
        self.years = values(year, range(1970, LAST_YEAR + 1))
        self.day_tests = [day_test(item) for item in day.split(",")]
        self.weekday_tests = [weekday_test(item) for item in weekday.split(",")]
        self.both = day.startswith(("*", "?")) or weekday.startswith(("*", "?"))
        self.wild = any(part.startswith("*") for part in (second, minute, hour))
        self.known_days: dict[date, bool] = {}

    def day_matches(self, day: date) -> bool:
        if day not in self.known_days:
            self.known_days[day] = self._ask_day(day)
        return self.known_days[day]

    def _ask_day(self, day: date) -> bool:
        if day.year not in self.years or day.month not in self.months:
            return False
        answers = [any(test(day) for test in self.day_tests)]
        answers.append(any(test(day) for test in self.weekday_tests))
        return all(answers) if self.both else any(answers)

    def matches(self, wall: datetime) -> bool:
        return (
            wall.second in self.seconds
            and wall.minute in self.minutes
            and wall.hour in self.hours
            and self.day_matches(wall.date())
        )

    def matches_between(self, start: datetime, end: datetime) -> bool:
        """Whether a wall time from `start` until before `end` matches."""
        for number in range((end.date() - start.date()).days + 1):
            day = start.date() + number * DAY
            if not self.day_matches(day):
                continue
            for hour, minute, second in itertools.product(self.hours, self.minutes, self.seconds):
                if start <= datetime.combine(day, time(hour, minute, second)) < end:
                    return True
        return False

    def quiet(self, wall: datetime) -> timedelta:
        """How long surely nothing matches after `wall`, if the clock is left alone."""
        if not self.day_matches(wall.date()):
            return datetime.combine(wall.date() + DAY, time()) - wall
        if wall.hour not in self.hours:
            return timedelta(hours=1) - timedelta(minutes=wall.minute, seconds=wall.second)
        if wall.minute not in self.minutes:
            return timedelta(minutes=1) - timedelta(seconds=wall.second)
        return SECOND

    def next_day(self, day: date) -> date | None:
        """The next matching date after `day`."""
        while day.year <= LAST_YEAR:
            day += DAY
            if self.day_matches(day):
                return day
        return None


def next_after(text: str, after: datetime, zone: tzinfo, dst: str) -> datetime | None:
    """The first occurrence strictly after `after`."""
    watcher = Watcher(text)
    tied = dst == "vixie" and not watcher.wild
    once = tied or dst == "skip_once"
    moment = after.astimezone(UTC).replace(microsecond=0)
    while True:
        wall = look(moment, zone)
        if wall.year > LAST_YEAR + 1:
            return None
        if far := far_away(watcher, moment, zone):
            moment = far
            continue
        step = watcher.quiet(wall)
        while step > SECOND and look(moment + step, zone) != wall + step:
            step = timedelta(seconds=step // SECOND // 2)
        moment += step
        seen = look(moment, zone)
        jump = seen - (wall + step)
        moves = tied and timedelta(0) < jump < timedelta(hours=3)
        if moves and watcher.matches_between(wall + step, seen):
            return moment
        again = moment.astimezone(zone).fold == 1
        if watcher.matches(seen) and not (once and again):
            return moment


def look(moment: datetime, zone: tzinfo) -> datetime:
    """What the clock on the wall shows."""
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def far_away(watcher: Watcher, moment: datetime, zone: tzinfo) -> datetime | None:
    """Shortly before the next matching day, if that is far and the clock is left alone for now."""
    wall = look(moment, zone)
    if watcher.day_matches(wall.date()) or look(moment + 2 * DAY, zone) != wall + 2 * DAY:
        return None
    day = watcher.next_day(wall.date()) or date(LAST_YEAR + 3, 1, 1)
    if day - wall.date() < 5 * DAY:
        return None
    return datetime.combine(day, time(), tzinfo=UTC) - 2 * DAY


def values(text: str, every: range, names: dict[str, int] | None = None) -> set[int]:
    """The values of a list of `*`, single values and ranges, each with a step or without."""
    return set().union(*(item_values(item, every, names or {}) for item in text.split(",")))


def item_values(item: str, every: range, names: dict[str, int]) -> set[int]:
    span, _, step = item.partition("/")
    words = [str(names.get(word, word)) for word in span.split("-")]
    if span == "*":
        first, last = every[0], every[-1]
    elif len(words) == 2:
        first, last = int(words[0]), int(words[1])
    else:
        first = int(span if span.isdigit() else words[0])
        last = every[-1] if step else first
    if span.endswith("-SUN") and last < first:
        last += 7
    between = (value for value in every if first <= value <= last)
    return {value for value in between if (value - first) % int(step or 1) == 0}


def day_test(item: str) -> DayTest:
    """One item of the day-of-month field, as a question about a date."""
    if item == "?":
        return lambda day: True
    if item == "LW":
        return lambda day: day == max(filter(is_working, days_of_month(day)))
    if item.startswith("L"):
        before_end = int(item[2:] or 0)
        return lambda day: day + before_end * DAY == days_of_month(day)[-1]
    if item.endswith("W"):
        return lambda day: day == nearest_working_day(day, int(item[:-1]))
    numbers = values(item, range(1, 32))
    return lambda day: day.day in numbers


def weekday_test(item: str) -> DayTest:
    """One item of the day-of-week field, as a question about a date."""
    if item == "?":
        return lambda day: True
    if "#" in item:
        name, number = item.split("#")
        return lambda day: day in same_weekday(day, name)[int(number) - 1 : int(number)]
    if item.endswith("L"):
        return lambda day: day in same_weekday(day, item[:-1])[-1:]
    numbers = {value % 7 for value in values(item, range(8), WEEKDAYS)}
    return lambda day: day.isoweekday() % 7 in numbers


def days_of_month(day: date) -> list[date]:
    return all_days(day.year, day.month)


@cache
def all_days(year: int, month: int) -> list[date]:
    dates = calendar.Calendar().itermonthdates(year, month)
    return [day for day in dates if day.month == month]


def same_weekday(day: date, name: str) -> list[date]:
    """All days in the month of `day` with this weekday."""
    wanted = WEEKDAYS[name] if name in WEEKDAYS else int(name) % 7
    return [d for d in days_of_month(day) if d.isoweekday() % 7 == wanted]


def is_working(day: date) -> bool:
    return day.weekday() not in (calendar.SATURDAY, calendar.SUNDAY)


def nearest_working_day(day: date, number: int) -> date | None:
    """The working day of the month of `day` with the least distance to its day `number`."""
    month = days_of_month(day)
    if number > len(month):
        return None
    return min(filter(is_working, month), key=lambda d: abs(d.day - number))
