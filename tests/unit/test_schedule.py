"""A schedule: what is refused, where its cursor begins and goes, and what an edit keeps."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import Invalid
from rota.model.retry import Retry
from rota.model.schedule import DEFINITION, WAITING_FOR_RUN, Schedule, edited

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
TICK = timedelta(microseconds=1)
# Of the names "nightly" and "a": they must be the same in every process and every version.
SPREAD = timedelta(seconds=593, microseconds=887147)
JITTER = timedelta(seconds=2848, microseconds=947374)


def schedule(**told: Any) -> Schedule:
    return Schedule(**{"name": "nightly", "job": "job", "kind": "every", "expr": "1h", **told})


def cron(expr: str, **told: Any) -> Schedule:
    return schedule(kind="cron", expr=expr, **told)


def once(moment: datetime, **told: Any) -> Schedule:
    return schedule(kind="once", expr=moment.isoformat(), **told)


# Construction

BAD = [
    ({"kind": "weekly"}, "kind 'weekly' is unknown; use cron, every, once"),
    ({"expr": 5}, "expr 5 must be text"),
    ({"expr": "soon"}, "every 'soon' is not a duration; use text like"),
    ({"expr": "0s"}, "every '0s' must be above zero"),
    ({"kind": "cron", "expr": "61 * * * *"}, r"cron '61 \* \* \* \*' has minute 61; use 0-59"),
    ({"kind": "cron", "expr": "0 0 30 2 *"}, r"cron '0 0 30 2 \*' never occurs; check day and"),
    ({"kind": "once", "expr": "tomorrow"}, "at 'tomorrow' is not an instant; use ISO 8601"),
    ({"kind": "once", "expr": "2026-01-01T00:00"}, "at '2026-01-01T00:00' has no offset"),
    ({"timezone": "Europe/Berlni"}, "timezone 'Europe/Berlni' is unknown; did you mean 'Europe/B"),
    ({"timezone": 5}, "timezone 5 must be text"),
    ({"dst": "summer"}, "dst 'summer' is unknown; use vixie, literal, skip_once"),
    ({"anchor": "start"}, "anchor 'start' is unknown; use rate, delay"),
    ({"overlap": "qeue"}, "overlap 'qeue' is unknown; use queue, wait, .*did you mean 'queue'"),
    ({"on_error": "explode"}, "on_error 'explode' is unknown; use next, reschedule"),
    ({"catch_up": "some"}, "catch_up 'some' is unknown; use one, none, all"),
    ({"catch_up_limit": 0}, "catch_up_limit 0 must be a whole number from 1 to 10000"),
    ({"queue_max": -1}, "queue_max -1 must be a whole number from 0"),
    ({"pause_after": 0}, "pause_after 0 must be a whole number from 1"),
    ({"priority": 1.5}, "priority 1.5 must be a whole number"),
    ({"misfire_grace": "x"}, "misfire_grace 'x' is not a duration"),
    ({"jitter": -1}, "jitter -1 must be zero or more"),
    ({"spread": "x"}, "spread 'x' is not a duration"),
    ({"first_run": "noon"}, "first_run 'noon' is not an instant"),
    ({"starts_at": datetime(2026, 1, 1)}, "starts_at .* has no offset"),
    ({"ends_at": 5}, "ends_at 5 is not an instant"),
    ({"starts_at": NOON, "ends_at": NOON - HOUR}, "ends_at is before starts_at"),
    ({"args": [1]}, r"args \[1\] must be a mapping of names to values"),
    ({"args": {"a": object()}}, "args holds a object, which is not JSON"),
    ({"args": {"a": float("nan")}}, "args holds nan, which JSON cannot carry"),
    ({"retry": 3}, "retry 3 must be a retry policy"),
]


@pytest.mark.parametrize(("told", "message"), BAD)
def test_each_bad_field_is_named_with_the_way_out(told: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=f"^schedule 'nightly': {message}"):
        schedule(**told)


@pytest.mark.parametrize("field", ["name", "job"])
def test_names_are_checked_first(field: str) -> None:
    with pytest.raises(Invalid, match=r"'two words' is not a valid name"):
        schedule(**{field: "two words"})


def test_values_are_brought_into_one_form() -> None:
    made = schedule(
        overlap="NO_WAIT", on_error="retry_sched", jitter="90s", starts_at="2026-01-01T01:00+01:00"
    )
    assert (made.overlap, made.on_error) == ("allow", "next")
    assert made.jitter == timedelta(seconds=90)
    assert made.starts_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_what_is_said_nowhere_is_safe() -> None:
    made = schedule()
    assert (made.timezone, made.dst, made.anchor) == ("UTC", "vixie", "rate")
    assert (made.overlap, made.on_error, made.catch_up) == ("wait", "next", "one")
    assert (made.catch_up_limit, made.misfire_grace) == (100, MINUTE)
    assert (made.jitter, made.spread, made.queue_max) == (timedelta(0), timedelta(0), None)


# The next occurrence


def test_every_keeps_the_phase_of_its_cursor() -> None:
    made = schedule(next_fire_at=NOON)
    assert made.next_after(NOON - TICK) == NOON
    assert made.next_after(NOON) == NOON + HOUR
    assert made.next_after(NOON + HOUR - TICK) == NOON + HOUR
    assert made.next_after(NOON + 100 * HOUR + MINUTE) == NOON + 101 * HOUR


def test_every_without_a_cursor_counts_from_where_it_is_asked() -> None:
    assert schedule().next_after(NOON) == NOON + HOUR
    assert schedule(next_fire_at=WAITING_FOR_RUN).next_after(NOON) == NOON + HOUR


@given(st.integers(1, 10**12), st.integers(0, 10**13))
def test_every_gives_the_first_slot_after(interval: int, later: int) -> None:
    made = schedule(expr=f"{interval}us", next_fire_at=NOON)
    after = NOON + later * TICK
    following = made.next_after(after)
    assert following is not None
    assert after < following <= after + interval * TICK
    assert (following - NOON) % (interval * TICK) == timedelta(0)


def test_once_is_there_until_its_time() -> None:
    assert once(NOON).next_after(NOON - TICK) == NOON
    assert once(NOON).next_after(NOON) is None


def test_cron_follows_its_zone() -> None:
    made = cron("30 2 * * *", timezone="Europe/Berlin")
    gap = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert made.next_after(gap) == datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
    literal = cron("30 2 * * *", timezone="Europe/Berlin", dst="literal")
    assert literal.next_after(gap) == datetime(2026, 3, 30, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize("made", [cron("0 * * * *"), schedule(next_fire_at=NOON)])
def test_nothing_occurs_before_starts_at_or_after_ends_at(made: Schedule) -> None:
    bounded = replace(made, starts_at=NOON + 3 * HOUR, ends_at=NOON + 5 * HOUR)
    assert bounded.next_after(NOON - 50 * HOUR) == NOON + 3 * HOUR
    assert bounded.next_after(NOON + 3 * HOUR) == NOON + 4 * HOUR
    assert bounded.next_after(NOON + 4 * HOUR) == NOON + 5 * HOUR
    assert bounded.next_after(NOON + 5 * HOUR) is None


# The first fire


@pytest.mark.parametrize(
    ("made", "first"),
    [
        (schedule(), NOON + HOUR),
        (schedule(anchor="delay"), NOON + HOUR),
        (schedule(starts_at=NOON + 5 * HOUR), NOON + 5 * HOUR),
        (schedule(starts_at=NOON - HOUR), NOON + HOUR),
        (schedule(first_run=NOON + MINUTE), NOON + MINUTE),
        (schedule(first_run=NOON), NOON),
        (schedule(ends_at=NOON + HOUR), NOON + HOUR),
        (schedule(ends_at=NOON + MINUTE), None),
        (schedule(first_run=NOON + HOUR, ends_at=NOON + MINUTE), None),
        (cron("0 * * * *"), NOON + HOUR),
        (cron("0 * * * *", starts_at=NOON + 3 * HOUR), NOON + 3 * HOUR),
        (cron("0 * * * *", first_run=NOON + MINUTE), NOON + MINUTE),
        (cron("0 * * * *", ends_at=NOON + MINUTE), None),
        (cron("0 0 0 1 1 ? 2020"), None),
        (once(NOON + HOUR), NOON + HOUR),
        (once(NOON - HOUR), NOON - HOUR),
    ],
)
def test_where_the_cursor_of_a_new_schedule_stands(made: Schedule, first: datetime | None) -> None:
    assert made.first_fire(NOON) == first


# Editing

KEPT: dict[str, Any] = {
    "id": 7, "created_at": NOON - HOUR, "last_fired_at": NOON - MINUTE, "paused": True,
    "paused_by": "me", "paused_at": NOON, "paused_reason": "incident", "state": "paused by me",
}  # fmt: skip


def test_an_edit_keeps_identity_and_what_the_operator_set() -> None:
    old = schedule(next_fire_at=NOON + MINUTE, **KEPT)
    for new in (
        schedule(priority=5),
        schedule(expr="5m"),
        cron("0 * * * *"),
        schedule(enabled=False),
    ):
        saved = edited(old, new, NOON)
        assert {name: getattr(saved, name) for name in KEPT} == KEPT
        assert saved.definition() == new.definition()


@pytest.mark.parametrize(
    "change",
    [{"overlap": "skip"}, {"args": {"a": 1}}, {"priority": 3}, {"catch_up": "all"},
     {"retry": Retry(max_attempts=9)}, {"owner": "me"}, {"enabled": False}, {"jitter": "5s"},
     {"job": "other"}],
)  # fmt: skip
@pytest.mark.parametrize("cursor", [NOON + MINUTE, NOON - 5 * HOUR, None, WAITING_FOR_RUN])
def test_an_edit_that_is_not_about_time_leaves_the_cursor(
    change: dict[str, Any], cursor: datetime | None
) -> None:
    old = schedule(next_fire_at=cursor)
    assert edited(old, schedule(**change), NOON).next_fire_at == cursor


@pytest.mark.parametrize(
    ("change", "cursor"),
    [
        ({"expr": "2h"}, NOON + 2 * HOUR),
        ({"kind": "cron", "expr": "30 * * * *"}, NOON + 30 * MINUTE),
        ({"anchor": "delay"}, NOON + HOUR),
        ({"timezone": "Europe/Berlin"}, NOON + HOUR),
        ({"first_run": NOON + MINUTE}, NOON + MINUTE),
        ({"first_run": NOON - 10 * MINUTE}, NOON + 50 * MINUTE),
        ({"starts_at": NOON + 9 * HOUR}, NOON + 9 * HOUR),
        ({"ends_at": NOON + MINUTE}, None),
        ({"kind": "once", "expr": (NOON + HOUR).isoformat()}, NOON + HOUR),
        ({"kind": "once", "expr": (NOON - HOUR).isoformat()}, None),
        ({"kind": "once", "expr": NOON.isoformat()}, None),
    ],
)
@pytest.mark.parametrize("before", [NOON - 100 * HOUR, NOON + MINUTE, None])
def test_an_edit_of_the_timing_begins_anew_and_never_in_the_past(
    change: dict[str, Any], cursor: datetime | None, before: datetime | None
) -> None:
    old = schedule(next_fire_at=before)
    assert edited(old, schedule(**change), NOON).next_fire_at == cursor


@pytest.mark.parametrize(
    ("change", "cursor"), [({"priority": 5}, NOON + HOUR), ({"expr": "2h"}, NOON + 2 * HOUR)]
)
def test_an_edit_mends_a_broken_schedule(change: dict[str, Any], cursor: datetime) -> None:
    broken = schedule(error="cannot be planned", state="cannot be planned")
    mended = edited(broken, schedule(**change), NOON)
    assert (mended.error, mended.state) == (None, None)
    assert mended.next_fire_at == cursor


def test_the_same_definition_is_recognised_however_it_is_written() -> None:
    one = schedule(jitter="90s", overlap="start", starts_at="2026-01-01T00:00Z", args={"a": (1, 2)})
    other = schedule(
        jitter=90, overlap="allow", starts_at="2026-01-01T01:00:00+01:00", args={"a": [1, 2]}
    )
    assert one.definition() == other.definition()
    assert set(one.definition()) == set(DEFINITION)


# Slots, spread and jitter


def test_runs_of_a_schedule_share_a_slot_unless_they_may_overlap() -> None:
    assert schedule(id=7).slot == "schedule 7"
    assert schedule(id=7, overlap_key="job x").slot == "job x"
    assert schedule(id=7, overlap="allow", overlap_key="job x").slot is None


def test_only_every_with_the_delay_anchor_waits_for_its_run() -> None:
    assert schedule(anchor="delay").delays
    assert not schedule().delays
    assert not cron("0 * * * *", anchor="delay").delays


@given(st.text(max_size=40), st.timedeltas(timedelta(0), timedelta(days=1)))
def test_spread_and_jitter_stay_within_their_windows(run_id: str, window: timedelta) -> None:
    assert timedelta(0) <= schedule(jitter=window).offset(run_id) <= window
    assert timedelta(0) <= schedule(spread=window).offset(run_id) <= window
    both = schedule(jitter=window, spread=window)
    assert both.offset(run_id) == both.offset(run_id) <= 2 * window


def test_spread_is_the_schedules_own_and_jitter_the_runs_own() -> None:
    spread = schedule(spread="1h")
    assert spread.offset("a") == spread.offset("b") == SPREAD
    assert spread.offset("a") != schedule(name="weekly", spread="1h").offset("a")
    jitter = schedule(jitter="1h")
    assert jitter.offset("a") == JITTER
    assert jitter.offset("a") != jitter.offset("b")
    assert schedule().offset("a") == timedelta(0)


def test_spread_uses_its_whole_window() -> None:
    offsets = sorted(schedule(name=f"s{n}", spread="100s").offset("x") for n in range(500))
    tenths = [int(offset.total_seconds() // 10) for offset in offsets]
    assert set(tenths) == set(range(10))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (schedule(), "every 1h"),
        (cron("0 3 * * *", timezone="Europe/Berlin"), "cron 0 3 * * * Europe/Berlin"),
        (once(NOON), "once 2026-03-01T12:00:00+00:00"),
    ],
)
def test_a_schedule_says_what_it_is(made: Schedule, words: str) -> None:
    assert made.described() == words


# What code or a file said


def test_a_registration_says_only_what_is_not_the_default() -> None:
    """So an option that a later version brings makes no difference to what is stored."""
    assert schedule().registration() == '{"expr":"1h","job":"job","kind":"every"}'
    told = schedule(enabled=False, args={"b": 1, "a": [2]}, jitter="90s", timezone="UTC")
    assert told.registration() == (
        '{"args":{"a":[2],"b":1},"enabled":false,"expr":"1h","jitter":"1m30s","job":"job",'
        '"kind":"every"}'
    )


def test_edits_are_what_differs_with_what_was_said() -> None:
    said = schedule(queue_max=3).as_registered()
    assert said.operator_changes() == {}
    edited_one = replace(said, expr="10m", queue_max=None, priority=2)
    assert edited_one.operator_changes() == {"expr": "1h", "queue_max": 3, "priority": None}
    assert schedule().operator_changes() == {}


@pytest.mark.parametrize("name", sorted(set(DEFINITION) - {"name"}))
def test_every_option_is_part_of_a_registration(name: str) -> None:
    other: dict[str, Any] = {
        "job": "other", "kind": "cron", "expr": "2h", "timezone": "Europe/Berlin", "dst": "literal",
        "anchor": "delay", "first_run": NOON, "starts_at": NOON, "ends_at": NOON,
        "overlap": "allow", "overlap_key": "k", "queue_max": 3, "on_error": "pause",
        "pause_after": 2, "catch_up": "all", "catch_up_limit": 7, "misfire_grace": "2m",
        "jitter": "5s", "spread": "1m", "args": {"n": 1}, "priority": 3,
        "retry": Retry(max_attempts=9), "owner": "me", "enabled": False,
    }  # fmt: skip
    told = {name: other[name]} | ({"expr": "0 3 * * *"} if name == "kind" else {})
    changed = replace(schedule().as_registered(), **told)
    assert changed.registration() != schedule().registration()
    assert set(changed.operator_changes()) == set(told)
