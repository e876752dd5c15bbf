"""Durations and instants: what is read, what is refused, and the way out in each message."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import Invalid
from rota.model.duration import (
    LATEST,
    LONGEST,
    format_duration,
    micros,
    parse_duration,
    parse_instant,
)

HOW = "use text like '90s', '30m', '1h30m' or '2d', or a number of seconds"

spans = st.timedeltas(min_value=timedelta(microseconds=1), max_value=LONGEST)


@given(spans)
def test_a_duration_reads_back_exactly(span: timedelta) -> None:
    assert parse_duration(format_duration(span), "every") == span


@given(spans)
def test_a_duration_in_words_has_no_zero_part(span: timedelta) -> None:
    counts = re.findall(r"[0-9]+", format_duration(span))
    assert counts
    assert all(not count.startswith("0") for count in counts)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90s", timedelta(seconds=90)),
        ("1h30m", timedelta(minutes=90)),
        ("1h 30m", None),
        ("2d", timedelta(days=2)),
        ("1w2d", timedelta(days=9)),
        ("250ms", timedelta(milliseconds=250)),
        ("7us", timedelta(microseconds=7)),
        ("1.5h", timedelta(minutes=90)),
        ("0.25s", timedelta(milliseconds=250)),
        ("  5m  ", timedelta(minutes=5)),
        ("5 m", timedelta(minutes=5)),
        (5, timedelta(seconds=5)),
        (0.5, timedelta(milliseconds=500)),
        (timedelta(days=1), timedelta(days=1)),
        ("3660d", LONGEST),
    ],
)
def test_the_ways_to_write_a_duration(text: object, span: timedelta | None) -> None:
    if span is None:
        with pytest.raises(Invalid, match="is not a duration"):
            parse_duration(text, "every")
    else:
        assert parse_duration(text, "every") == span


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(weeks=2), "14d"),
        (timedelta(days=1, microseconds=1), "1d1us"),
        (timedelta(milliseconds=1500), "1s500ms"),
    ],
)
def test_a_duration_is_written_in_its_shortest_form(span: timedelta, text: str) -> None:
    assert format_duration(span) == text


@pytest.mark.parametrize(
    "value",
    ["", " ", "5", "5x", "m5", "1m1h", "1h1h", "-5s", "5s-", "1e3s", "½h", "\uff15s", "1h30", ".5s",
     "1 h 3 0 m", "5s;", "s", "x" * 65, "∞", "NaN"],
)  # fmt: skip
def test_text_that_is_no_duration_is_refused_with_the_way_out(value: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_duration(value, "every")
    assert str(caught.value).startswith("every ")
    assert str(caught.value).endswith(HOW)


@pytest.mark.parametrize(
    "value",
    [None, True, False, b"5s", [], {}, Decimal(5), float("nan"), float("inf"), -float("inf"),
     10**400, -(10**400), 1e300, object],
)  # fmt: skip
def test_values_that_are_no_duration_are_refused_with_the_way_out(value: object) -> None:
    with pytest.raises(Invalid, match=r"is not a duration; use text like .* or a timedelta$"):
        parse_duration(value, "timeout")


@pytest.mark.parametrize("value", ["3661d", "99999999999999w", timedelta(days=4000)])
def test_a_duration_past_ten_years_is_refused(value: object) -> None:
    with pytest.raises(Invalid, match=r"^lease .* is longer than 3660d$"):
        parse_duration(value, "lease")


def test_parts_that_add_up_past_ten_years_are_refused() -> None:
    with pytest.raises(Invalid, match="is longer than 3660d"):
        parse_duration("522w3660d", "lease")


@pytest.mark.parametrize("value", ["0s", 0, 0.0, timedelta(0), "0.1us", "0h0m"])
def test_zero_is_a_duration_only_where_it_means_something(value: object) -> None:
    with pytest.raises(Invalid, match=r"^every .* must be above zero$"):
        parse_duration(value, "every")
    assert parse_duration(value, "jitter", zero=True) == timedelta(0)


@pytest.mark.parametrize("value", [-1, -0.5, timedelta(seconds=-1)])
def test_a_negative_duration_is_refused(value: object) -> None:
    with pytest.raises(Invalid, match=r"^jitter .* must be zero or more$"):
        parse_duration(value, "jitter", zero=True)


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        span = parse_duration(text, "every")
    except Invalid:
        return
    assert timedelta(0) < span <= LONGEST


# Instants


@given(
    st.datetimes(
        min_value=datetime(2, 1, 1), max_value=datetime(8998, 1, 1), timezones=st.just(UTC)
    ),
    st.integers(-14 * 60, 14 * 60),
)
def test_an_instant_is_the_same_in_every_offset(moment: datetime, minutes: int) -> None:
    there = moment.astimezone(timezone(timedelta(minutes=minutes)))
    assert parse_instant(there, "at") == moment
    read = parse_instant(there.isoformat(), "at")
    assert (read, read.tzinfo) == (moment, UTC)


@pytest.mark.parametrize(
    "text",
    ["2026-03-29T01:30:00Z", "2026-03-29T02:30:00+01:00", " 2026-03-29 01:30+00:00 ",
     "20260329T013000Z"],
)  # fmt: skip
def test_the_ways_to_write_an_instant(text: str) -> None:
    assert parse_instant(text, "at") == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize("value", ["2026-03-29T02:30:00", "2026-03-29", datetime(2026, 3, 29)])
def test_an_instant_without_an_offset_is_refused(value: object) -> None:
    with pytest.raises(Invalid, match=r"^at .* has no offset; add one, such as '\+01:00' or 'Z'$"):
        parse_instant(value, "at")


@pytest.mark.parametrize(
    "value",
    ["", "tomorrow", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", 1767225600, None,
     date(2026, 1, 1), b"2026-03-29T02:30:00Z", [], "2026-03-29T25:00:00Z"],
)  # fmt: skip
def test_what_is_no_instant_is_refused_with_the_way_out(value: object) -> None:
    with pytest.raises(Invalid, match=r"^at .* is not an instant; use ISO 8601 with an offset"):
        parse_instant(value, "at")


def test_an_instant_before_the_calendar_begins_is_refused() -> None:
    before = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
    with pytest.raises(Invalid, match=r"^at .* is outside the calendar$"):
        parse_instant(before, "at")


def test_the_last_year_is_one_that_every_engine_can_store() -> None:
    last = LATEST - timedelta(microseconds=1)
    assert parse_instant(last, "ends_at") == last
    with pytest.raises(Invalid, match=r"^ends_at .* is later than the year 8999$"):
        parse_instant(LATEST, "ends_at")


@pytest.mark.parametrize(
    ("moment", "count"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1),
        (datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=UTC), 1_774_747_800_000_001),
        (datetime(9999, 1, 1, tzinfo=UTC), 253_370_764_800_000_000),
    ],
)
def test_microseconds_are_exact(moment: datetime, count: int) -> None:
    assert micros(moment) == count
