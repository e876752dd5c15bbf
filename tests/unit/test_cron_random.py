"""Cron against two other opinions on random input: a slow evaluator of our own, and cronsim.

Most input lies around clock changes: there the rules differ. A failure prints its seed and triple.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError

from rota.model.cron import Cron
from tests.unit import cron_reference

TRIPLES = 20_000
PARTS = 8  # so that a failure is found early and tests can run side by side
CRONSIM_PAIRS = 5_000
COUNTS = 400
CHANGES_UNTIL = 2040
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)

ZONES = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/Monrovia",
    "America/Caracas",
    "America/Danmarkshavn",
    "America/Havana",
    "America/New_York",
    "America/Noronha",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Antarctica/Vostok",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Europe/Moscow",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kwajalein",
    "UTC",
]
RULES = ["vixie", "vixie", "literal", "skip_once"]


@cache
def changes(name: str) -> list[datetime]:
    """The hours in which the zone's clock is changed."""
    zone, found = ZoneInfo(name), []
    moment = datetime(1970, 1, 2, tzinfo=UTC)
    while moment.year < CHANGES_UNTIL:
        following = moment + DAY
        if moment.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
            hours = (moment + n * HOUR for n in range(1, 25))
            before = moment.astimezone(zone).utcoffset()
            found.append(next(h for h in hours if h.astimezone(zone).utcoffset() != before))
        moment = following
    return found


def make_instant(choice: random.Random, zone: str) -> datetime:
    """Mostly from a day and a half before a clock change until a few hours after it."""
    if changes(zone) and choice.random() < 0.8:
        hours = choice.choice([-36, -24, -8, -3, -2, -1, -1, 0, 1])
        return choice.choice(changes(zone)) + hours * HOUR + choice.randrange(3_600) * SECOND
    seconds = choice.randrange(130 * 365 * 86_400)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=seconds % 3)


def make_field(choice: random.Random, low: int, high: int, usual: list[int]) -> str:
    """A star, a step, values, ranges or a list, with a leaning to the `usual` values."""

    def value() -> int:
        return choice.choice(usual) if choice.random() < 0.7 else choice.randint(low, high)

    def item() -> str:
        first, second = sorted((value(), value()))
        step = choice.randint(1, max(1, (high - low) // 2))
        kinds = [f"{value()}", f"{first}-{second}", f"{first}-{high}/{step}", f"{first}/{step}"]
        return choice.choices(kinds, [6, 2, 1, 1])[0]

    kinds = ["*", f"*/{choice.randint(1, high - low)}", item(), f"{item()},{item()}"]
    return choice.choices(kinds, [1, 1, 6, 2])[0]


def make_day(choice: random.Random) -> str:
    specials = ["L", f"L-{choice.randint(1, 30)}", f"{choice.randint(1, 31)}W", "LW", "?"]
    plain = make_field(choice, 1, 31, [1, 29, 30, 31])
    kinds = ["*", plain, choice.choice(specials), f"{choice.choice(specials[:4])},{plain}"]
    return choice.choices(kinds, [15, 3, 3, 1])[0]


def make_weekday(choice: random.Random) -> str:
    names = ["SUN", "mon", "Tue", "WED", "thu", "FRI", "SAT", "0", "5", "7"]
    one = choice.choice(names)
    specials = [f"{one}#{choice.randint(1, 5)}", f"{one}L", one, "?", "mon-fri", "FRI-SUN"]
    plain = make_field(choice, 0, 7, [0, 1, 7])
    if plain.startswith("*/"):
        plain = f"*/{choice.randint(1, 7)}"
    return choice.choices(["*", plain, choice.choice(specials)], [9, 2, 3])[0]


def make_expression(choice: random.Random, after: datetime, zone: ZoneInfo) -> str:
    """The hours lean to those the wall clock shows at, or leaves out by, the next clock change."""
    near = min((c for c in changes(zone.key) if c + HOUR > after), default=after)
    hours = [(near + n * HOUR).astimezone(zone).hour for n in (-2, -1, 0, 0)]
    hours += [(hours[1] + 1) % 24, (hours[1] + 1) % 24]
    minute = make_field(choice, 0, 59, [0, 1, 15, 30, 59])
    hour = make_field(choice, 0, 23, hours)
    month = choice.choices(["*", make_field(choice, 1, 12, [2, near.month])], [6, 1])[0]
    fields = [minute, hour, make_day(choice), month, make_weekday(choice)]
    width = choice.choice([5, 5, 6, 6, 7])
    if width > 5:
        fields.insert(0, make_field(choice, 0, 59, [0, 0, 30, 59]))
    if width == 7:
        year = min(near.year + choice.choice([0, 0, 0, 1, 4]), 2099)
        fields.append(choice.choice(["*", "*", f"{year}", f"{year}-2099/3", f"1970-{year}"]))
    return " ".join(fields)


@pytest.mark.parametrize("seed", range(PARTS))
def test_random_triples_agree_with_the_slow_evaluator(seed: int) -> None:
    choice = random.Random(seed)
    for _ in range(TRIPLES // PARTS):
        name, dst = choice.choice(ZONES), choice.choice(RULES)
        after, zone = make_instant(choice, name), ZoneInfo(name)
        text = make_expression(choice, after, zone)
        ours = Cron.parse(text).next_after(after, zone, dst)
        theirs = cron_reference.next_after(text, after, zone, dst)
        assert ours == theirs, f"seed {seed}: {text!r}, {after!r}, {name}, {dst}"


@pytest.mark.parametrize("seed", range(PARTS))
def test_a_count_is_what_a_walk_finds(seed: int) -> None:
    choice = random.Random(seed)
    for _ in range(COUNTS // PARTS):
        name, dst = choice.choice(ZONES), choice.choice(RULES)
        after, zone = make_instant(choice, name), ZoneInfo(name)
        text = make_expression(choice, after, zone)
        if choice.random() < 0.5:  # most of all: expressions with many occurrences in an hour
            fields = choice.choice(["0", "*/20", "7,59"]), choice.choice(["*", "0-59", "*/7"])
            text = " ".join([*fields, choice.choice(["*", "0-23", "1-3"]), "* * *"])
        until, cron = after + choice.randrange(36 * 3_600) * SECOND, Cron.parse(text)
        walked, moment = 0, cron.next_after(after, zone, dst)
        while moment is not None and moment <= until:
            walked, moment = walked + 1, cron.next_after(moment, zone, dst)
        told = f"seed {seed}: {text!r}, {after!r}, {until!r}, {name}, {dst}"
        assert cron.count(after, until, zone, dst) == walked, told


def make_common_expression(choice: random.Random) -> str:
    """Only what cronsim reads in the same way."""
    minute = make_field(choice, 0, 59, [0, 30])
    hour = make_field(choice, 0, 23, [0, 12])
    day = choice.choice(["*", "*", "L", "LW", make_field(choice, 1, 31, [1, 15, 28])])
    month = choice.choice(["*", "*", make_field(choice, 1, 12, [2, 6])])
    one = choice.randint(0, 7)
    numbered = f"{one}#{choice.randint(1, 5)}"
    weekday = choice.choice(["*", "*", numbered, f"{one}L", make_field(choice, 0, 6, [1, 5])])
    return " ".join([minute, hour, day, month, weekday])


def test_cronsim_agrees_far_from_clock_changes() -> None:
    choice, compared = random.Random(99), 0
    while compared < CRONSIM_PAIRS:
        zone = ZoneInfo(choice.choice(["UTC", "Asia/Kathmandu", "America/Phoenix", "Asia/Tokyo"]))
        after = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(seconds=choice.randrange(10**9))
        text = make_common_expression(choice)
        try:
            theirs = next(CronSim(text, after.astimezone(zone)))
        except (CronSimError, StopIteration):
            continue
        ours = Cron.parse(text).next_after(after, zone)
        assert ours == theirs, f"{text!r}, {after!r}, {zone}"
        compared += 1
