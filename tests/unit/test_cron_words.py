"""A cron expression in words: the sentence people read, and that no two meanings share one."""

from __future__ import annotations

import operator
import random
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from rota.model.cron import Cron
from rota.model.cron_fields import MACROS
from rota.model.cron_words import cron_in_words
from tests.unit.test_cron_random import make_expression

EXPRESSIONS = 4_000

SAID = [
    # Times of day
    ("30 2 * * *", "At 02:30"),
    ("0 9,17 * * *", "At 09:00 and 17:00"),
    ("0,30 9 * * *", "At 09:00 and 09:30"),
    ("5 4 3 * * *", "At 03:04:05"),
    ("15 10 * * ?", "At 10:15"),
    ("0 0,6,7,8,20 * * *", "At 00:00, 06:00 through 08:00 and 20:00"),
    # Steps, however they are written
    ("* * * * *", "Every minute"),
    ("*/5 * * * *", "Every 5 minutes"),
    ("0,15,30,45 * * * *", "Every 15 minutes"),
    ("5/20 * * * *", "Every 20 minutes from minute 5"),
    ("*/7 3 * * *", "Every 7 minutes, anew each hour, between 03:00 and 03:59"),
    ("*/25 * * * *", "Every 25 minutes, anew each hour"),
    ("0 1/11 * * *", "Every 11 hours from 01:00, anew each day"),
    ("*/7 * * * * *", "Every 7 seconds, anew each minute"),
    (
        "*/10 3,5 * * *",
        "Every 10 minutes, between 03:00 and 03:59 and between 05:00 and 05:59",
    ),
    ("*/5 */2 * * *", "Every 5 minutes, during every 2nd hour"),
    ("*/5 1/3 * * *", "Every 5 minutes, during every 3rd hour from 01:00"),
    ("0 * * * *", "Every hour"),
    ("0 */2 * * *", "Every 2 hours"),
    ("0 1-23/2 * * *", "Every 2 hours from 01:00"),
    ("0 8-18 * * *", "Every hour from 08:00 through 18:00"),
    ("0 8-18/2 * * *", "Every 2 hours from 08:00 through 18:00"),
    # Past the hour
    ("1 * * * *", "At 1 minute past the hour"),
    ("30 */4 * * *", "At 30 minutes past the hour, during every 4th hour"),
    ("10-20 * * * *", "At 10 through 20 minutes past the hour"),
    ("0,20,21,22,40 * * * *", "At 0, 20 through 22 and 40 minutes past the hour"),
    # Seconds
    ("* * * * * *", "Every second"),
    ("*/10 * * * * *", "Every 10 seconds"),
    ("30 * * * * *", "At second 30 of every minute"),
    ("15 */5 * * * *", "At second 15, every 5 minutes"),
    ("*/10 0 * * * *", "Every 10 seconds, at 0 minutes past the hour"),
    # Days
    ("0 9 * * 1-5", "At 09:00, Monday through Friday"),
    ("0 9 * * FRI-SUN", "At 09:00, Friday through Sunday"),
    ("0 9 * * 1,3,5", "At 09:00, only on Monday, Wednesday and Friday"),
    ("0 9 * * MON#1", "At 09:00, on the first Monday of the month"),
    ("0 9 ? * 1#2,5L",
     "At 09:00, on the second Monday of the month and the last Friday of the month"),
    ("0 0 1 * *", "At 00:00, on day 1 of the month"),
    ("0 0 1,15 * *", "At 00:00, on days 1 and 15 of the month"),
    ("0 0 L * *", "At 00:00, on the last day of the month"),
    ("0 0 L-1 * *", "At 00:00, 1 day before the last day of the month"),
    ("0 0 L-3 * *", "At 00:00, 3 days before the last day of the month"),
    ("0 0 LW * *", "At 00:00, on the last working day of the month"),
    ("0 0 15W * *", "At 00:00, on the working day nearest to day 15 of the month"),
    ("0 0 1,L * *", "At 00:00, on day 1 of the month and on the last day of the month"),
    # Both day fields: either is enough, unless one begins with a star
    ("0 0 13 * 5", "At 00:00, on day 13 of the month, or on Friday"),
    ("0 0 */2 * 1", "At 00:00, every 2 days, anew each month, if that is Monday"),
    ("0 0 1-7 * */7", "At 00:00, on days 1 through 7 of the month, if that is Sunday"),
    ("0 0 13 * 0-6", "At 00:00"),
    # Months and years
    ("0 0 29 2 *", "At 00:00, on day 29 of the month, only in February"),
    ("0 0 1 */3 *", "At 00:00, on day 1 of the month, only in January, April, July and October"),
    ("0 0 1 JAN-MAR *", "At 00:00, on day 1 of the month, January through March"),
    ("0 0 12 * * ? 2027-2030", "At 12:00, 2027 through 2030"),
    ("0 0 12 * * ? 2027,2029", "At 12:00, only in 2027 and 2029"),
    ("0 0 12 * * ? 2027/2", "At 12:00, every 2 years from 2027 through 2099"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), SAID)
def test_it_says_what_it_means(text: str, words: str) -> None:
    assert cron_in_words(Cron.parse(text)) == words


@pytest.mark.parametrize("macro", MACROS)
def test_a_macro_is_said_like_its_fields(macro: str) -> None:
    assert cron_in_words(Cron.parse(macro)) == cron_in_words(Cron.parse(MACROS[macro]))


def test_what_differs_is_said_differently() -> None:
    choice, meanings = random.Random(7), dict[str, object]()
    now, zone = datetime(2026, 1, 1, tzinfo=UTC), ZoneInfo("UTC")
    for _ in range(EXPRESSIONS):
        cron = Cron.parse(make_expression(choice, now, zone))
        words, meant = cron_in_words(cron), meaning(cron)
        assert meanings.setdefault(words, meant) == meant, (cron.text, words)
    assert len(meanings) > EXPRESSIONS / 2


def meaning(cron: Cron) -> object:
    """The readings of the clock, and the days of a month of each kind."""
    join = operator.and_ if cron.both_days else operator.or_
    days = [
        join(cron.days.in_month(first, length), cron.weekdays.in_month(first, length))
        for first in range(7)
        for length in range(28, 32)
    ]
    return cron.seconds, cron.minutes, cron.hours, days, cron.months, cron.years
