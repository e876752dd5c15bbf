"""Fire plans: every due occurrence is planned once, the cursor moves forward, counts are right."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.model import schedule as schedule_module
from rota.model.cron import Cron
from rota.model.limits import MISSED_COUNT
from rota.model.plan import FirePlan, count_range, plan_fire, plan_resume
from rota.model.run import occurrence_id
from rota.model.schedule import WAITING_FOR_RUN, Schedule

CASES = json.loads((Path(__file__).parents[1] / "data" / "cron_cases.json").read_text())["cases"]
CURSOR_CASES = [case for case in CASES if case["semantics"] == "cursor"]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
TICK = timedelta(microseconds=1)


def every(span: str = "1m", cursor: datetime | None = NOON, **told: Any) -> Schedule:
    return Schedule(
        **{"name": "s", "id": 1, "job": "j", "kind": "every", "expr": span, **told},
        next_fire_at=cursor,
    )


def cron(expr: str, cursor: datetime | None = NOON, **told: Any) -> Schedule:
    return every(expr, cursor, kind="cron", **told)


def occurrences(schedule: Schedule, until: datetime) -> Iterator[datetime]:
    """The calendar itself, from the cursor on."""
    following = schedule.next_fire_at
    while following is not None and following <= until:
        yield following
        following = schedule.next_after(following)


def planned(plan: FirePlan) -> list[datetime]:
    return [run.occurrence for run in plan.runs]


def told_of(plan: FirePlan, until: datetime) -> list[datetime]:
    """All occurrences that the plan answers for: runs, and those inside its stretches."""
    known = list(occurrences(plan.schedule, until))
    passed = [
        moment
        for stretch in plan.ranges
        for moment in known
        if stretch.first <= moment <= stretch.last
    ]
    return sorted(planned(plan) + passed)


# The verified cases


@pytest.mark.parametrize("case", CURSOR_CASES, ids=[case["note"] for case in CURSOR_CASES])
def test_ticks_enqueue_the_verified_occurrences(case: dict[str, Any]) -> None:
    zone, made = ZoneInfo(case["tz"]), []
    schedule = cron(
        case["expr"],
        None,
        timezone=case["tz"],
        catch_up=case["policy"],
        catch_up_limit=case.get("limit", 100),
    )
    cursor = schedule.first_fire(datetime.fromisoformat(case["after"]))
    for text in case["now"]:
        now = datetime.fromisoformat(text)
        if cursor is not None and cursor <= now:
            plan = plan_fire(replace(schedule, next_fire_at=cursor), now)
            assert plan.broken is None
            made += [at.astimezone(zone).isoformat() for at in planned(plan)]
            cursor = plan.next_fire_at
    assert made == case["expect"]


def test_there_are_seven_cursor_cases() -> None:
    assert len(CURSOR_CASES) == 7


# Properties

EXPRESSIONS = (
    "* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "*/20 * * * * *", "0 0 L * *",
    "15,45 1-3 * * 1-5", "0 12 1 1 *",
)  # fmt: skip
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")


@st.composite
def due(draw: st.DrawFn) -> tuple[Schedule, datetime]:
    """A schedule whose cursor has come, and a tick at most a few hundred occurrences later."""
    told: dict[str, Any] = {
        "catch_up": draw(st.sampled_from(["one", "none", "all"])),
        "catch_up_limit": draw(st.integers(1, 50)),
        "misfire_grace": draw(st.sampled_from(["0s", "60s", "1h", "1d"])),
    }
    begin = draw(
        st.datetimes(datetime(2024, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))
    ).replace(microsecond=0)
    if draw(st.booleans()):
        interval = draw(st.timedeltas(timedelta(seconds=1), timedelta(days=2)))
        schedule = every(f"{interval // TICK}us", begin, **told)
        span = 300 * interval
    else:
        schedule = cron(
            draw(st.sampled_from(EXPRESSIONS)),
            None,
            timezone=draw(st.sampled_from(ZONES)),
            dst=draw(st.sampled_from(["vixie", "literal", "skip_once"])),
            **told,
        )
        schedule = replace(schedule, next_fire_at=schedule.next_after(begin))
        assert schedule.next_fire_at is not None
        later = schedule.next_after(schedule.next_fire_at)
        assert later is not None
        span = 100 * max(later - schedule.next_fire_at, 30 * SECOND)
    now = schedule.next_fire_at + draw(st.floats(0, 1)) * min(span, timedelta(days=400))
    if draw(st.integers(0, 4)) == 0:
        window = now - schedule.next_fire_at + HOUR
        schedule = replace(schedule, ends_at=schedule.next_fire_at + draw(st.floats(0, 1)) * window)
    return schedule, now


@given(due())
def test_the_cursor_always_moves_forward(case: tuple[Schedule, datetime]) -> None:
    schedule, now = case
    plan = plan_fire(schedule, now)
    assert plan.broken is None
    assert plan.cursor == schedule.next_fire_at
    if plan.next_fire_at is not None:
        assert plan.next_fire_at > plan.cursor
        full = len(plan.runs) == schedule.catch_up_limit
        assert plan.next_fire_at > now or (schedule.catch_up in ("all", "none") and full)


@given(due())
def test_a_plan_answers_for_exactly_the_occurrences_it_passes(
    case: tuple[Schedule, datetime],
) -> None:
    schedule, now = case
    plan = plan_fire(schedule, now)
    passed = [
        moment
        for moment in occurrences(schedule, now)
        if plan.next_fire_at is None or moment < plan.next_fire_at
    ]
    assert told_of(plan, now) == passed
    for stretch in plan.ranges:
        inside = [moment for moment in passed if stretch.first <= moment <= stretch.last]
        assert (inside[0], inside[-1], len(inside)) == (stretch.first, stretch.last, stretch.count)


@given(due())
def test_ticks_drain_every_occurrence_once(case: tuple[Schedule, datetime]) -> None:
    schedule, now = case
    wanted = list(itertools.islice(occurrences(schedule, now), 2_000))
    answered: list[datetime] = []
    cursor = schedule.next_fire_at
    while cursor is not None and cursor <= now:
        plan = plan_fire(replace(schedule, next_fire_at=cursor), now)
        answered += told_of(plan, now)
        cursor = plan.next_fire_at
    assert answered == wanted


@given(due())
def test_each_policy_keeps_its_promise(case: tuple[Schedule, datetime]) -> None:
    schedule, now = case
    plan, wanted = plan_fire(schedule, now), list(occurrences(schedule, now))
    fresh = [moment for moment in wanted if moment >= now - schedule.misfire_grace]
    match schedule.catch_up:
        case "one":
            assert planned(plan) == wanted[:1]
            assert plan.runs[0].missed_count == len(wanted)
            assert {stretch.outcome for stretch in plan.ranges} <= {"coalesced"}
        case "all":
            assert planned(plan) == wanted[: schedule.catch_up_limit]
            assert {run.missed_count for run in plan.runs} == {1}
            assert plan.ranges == ()
        case "none":
            assert planned(plan) == fresh[: schedule.catch_up_limit]
            assert {stretch.outcome for stretch in plan.ranges} <= {"missed"}


@given(due())
def test_the_same_tick_makes_the_same_plan(case: tuple[Schedule, datetime]) -> None:
    schedule, now = case
    assert plan_fire(schedule, now) == plan_fire(replace(schedule), now)


@given(due(), st.timedeltas(timedelta(0), HOUR), st.timedeltas(timedelta(0), HOUR))
def test_runs_are_due_within_spread_and_jitter(
    case: tuple[Schedule, datetime], spread: timedelta, jitter: timedelta
) -> None:
    schedule, now = case
    plan = plan_fire(replace(schedule, spread=spread, jitter=jitter), now)
    for run in plan.runs:
        assert run.run_id == occurrence_id(schedule.id, run.occurrence)
        assert run.occurrence <= run.due_at <= run.occurrence + spread + jitter


# By example


def test_a_punctual_tick_makes_one_run_and_nothing_else() -> None:
    for catch_up in ("one", "none", "all"):
        plan = plan_fire(every(catch_up=catch_up), NOON + SECOND)
        assert (planned(plan), plan.ranges) == ([NOON], ())
        assert plan.next_fire_at == NOON + MINUTE
        assert plan.runs[0].missed_count == 1


def test_one_stands_for_all_that_were_missed() -> None:
    plan = plan_fire(every(), NOON + 10 * MINUTE + SECOND)
    assert planned(plan) == [NOON]
    assert plan.runs[0].missed_count == 11
    (stretch,) = plan.ranges
    assert (stretch.first, stretch.last) == (NOON + MINUTE, NOON + 10 * MINUTE)
    assert (stretch.count, stretch.outcome) == (10, "coalesced")
    assert plan.next_fire_at == NOON + 11 * MINUTE


def test_none_records_what_is_older_than_its_grace() -> None:
    plan = plan_fire(every(catch_up="none"), NOON + 10 * MINUTE + SECOND)
    assert planned(plan) == [NOON + 10 * MINUTE]
    (stretch,) = plan.ranges
    assert (stretch.first, stretch.last) == (NOON, NOON + 9 * MINUTE)
    assert (stretch.count, stretch.outcome) == (10, "missed")
    assert stretch.reason == "later than misfire_grace"


def test_none_may_find_nothing_to_fire() -> None:
    plan = plan_fire(every("1h", catch_up="none"), NOON + 90 * MINUTE)
    assert planned(plan) == []
    assert [stretch.count for stretch in plan.ranges] == [2]
    assert plan.next_fire_at == NOON + 2 * HOUR


def test_exactly_at_the_grace_still_fires() -> None:
    schedule = every("1h", catch_up="none")
    assert planned(plan_fire(schedule, NOON + MINUTE)) == [NOON]
    assert planned(plan_fire(schedule, NOON + MINUTE + TICK)) == []


def test_a_once_fires_once_and_is_finished() -> None:
    once = every(NOON.isoformat(), kind="once")
    plan = plan_fire(once, NOON + HOUR)
    assert (planned(plan), plan.next_fire_at, plan.ranges) == ([NOON], None, ())
    late = plan_fire(replace(once, catch_up="none"), NOON + HOUR)
    assert (planned(late), late.next_fire_at) == ([], None)
    assert [stretch.outcome for stretch in late.ranges] == ["missed"]


@pytest.mark.parametrize("catch_up", ["one", "none", "all"])
def test_a_delay_schedule_fires_once_and_waits_for_its_run(catch_up: str) -> None:
    plan = plan_fire(every(anchor="delay", catch_up=catch_up), NOON + 5 * HOUR)
    assert (planned(plan), plan.next_fire_at) == ([NOON], WAITING_FOR_RUN)
    assert plan.ranges == ()


def test_nothing_is_planned_past_ends_at() -> None:
    bounded = every(ends_at=NOON + 5 * MINUTE)
    one = plan_fire(bounded, NOON + HOUR)
    assert (one.next_fire_at, one.runs[0].missed_count) == (None, 6)
    everything = plan_fire(replace(bounded, catch_up="all"), NOON + HOUR)
    assert planned(everything) == [NOON + n * MINUTE for n in range(6)]
    assert everything.next_fire_at is None


class Stuck(Schedule):
    """A calendar that does not move on."""

    def next_after(self, after: datetime) -> datetime | None:
        return self.next_fire_at


@pytest.mark.parametrize("catch_up", ["one", "all"])
def test_a_calendar_that_does_not_move_on_is_broken_and_makes_nothing(catch_up: str) -> None:
    stuck = Stuck(
        name="s", id=1, job="j", kind="cron", expr="* * * * *", next_fire_at=NOON, catch_up=catch_up
    )
    plan = plan_fire(stuck, NOON + HOUR)
    assert plan.broken == (
        "the occurrence after 2026-03-01T12:00:00+00:00 would be 2026-03-01T12:00:00+00:00"
    )
    assert (plan.runs, plan.ranges, plan.next_fire_at) == ((), (), None)


# More than is counted


@pytest.mark.parametrize(
    ("late", "count"), [(9_998, 9_998), (9_999, 9_999), (10_000, None), (10_001, None)]
)
@pytest.mark.parametrize("fraction", [timedelta(0), TICK, SECOND - TICK])
def test_counts_are_exact_up_to_ten_thousand(
    late: int, count: int | None, fraction: timedelta
) -> None:
    now = NOON + late * SECOND + fraction
    plan = plan_fire(cron("* * * * * *"), now)
    (stretch,) = plan.ranges
    assert (stretch.count, stretch.last) == (count, NOON + late * SECOND)
    assert plan.runs[0].missed_count == (MISSED_COUNT + 1 if count is None else count + 1)
    assert plan.next_fire_at == NOON + (late + 1) * SECOND


@pytest.mark.parametrize(("zone", "most"), [("UTC", 8_770), ("Europe/Berlin", 20_000)])
def test_a_year_of_seconds_is_counted_with_few_looks(
    zone: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule, looks, next_after = cron("* * * * * *", timezone=zone), 0, Cron.next_after

    def looking(self: Cron, *told: Any) -> datetime | None:
        nonlocal looks
        looks += 1
        assert looks < most
        return next_after(self, *told)

    monkeypatch.setattr(Cron, "next_after", looking)
    remembered = schedule_module._cron_next.cache_info()
    year = timedelta(days=365)
    assert count_range(schedule, NOON, NOON + year) == 365 * 86_400 + 1
    assert schedule_module._cron_next.cache_info() == remembered, "what fire needs is forgotten"


@pytest.mark.parametrize(("kind", "count"), [("every", 11), ("once", 1)])
def test_stretches_of_other_kinds_are_counted_too(kind: str, count: int) -> None:
    last = NOON + 10 * MINUTE if kind == "every" else NOON
    told = every(expr="1m" if kind == "every" else NOON.isoformat(), kind=kind)
    assert count_range(told, NOON, last) == count


@pytest.mark.parametrize(
    ("expr", "last"),
    [
        ("* * * * * *", datetime(2076, 3, 1, 12, tzinfo=UTC)),
        ("*/7 * * * * *", datetime(2076, 3, 1, 12, tzinfo=UTC)),
        ("* * * 1 1 *", datetime(2076, 1, 1, 23, 59, 59, tzinfo=UTC)),
    ],
)
@pytest.mark.parametrize("catch_up", ["one", "none"])
def test_fifty_years_of_seconds_are_planned_with_few_looks(
    expr: str, last: datetime, catch_up: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count()
    ask = schedule_module._cron_next.__wrapped__

    def counting(*args: Any) -> datetime | None:
        next(looks)
        return ask(*args)

    monkeypatch.setattr(schedule_module, "_cron_next", counting)
    cursor = datetime(2026, 1, 1, tzinfo=UTC)
    now = datetime(2076, 3, 1, 12, 0, 0, 500_000, tzinfo=UTC)
    plan = plan_fire(cron(expr, cursor, catch_up=catch_up, misfire_grace="0s"), now)
    assert next(looks) < MISSED_COUNT + 200
    (stretch,) = plan.ranges
    assert (stretch.count, stretch.last) == (None, last)


@settings(max_examples=20)
@given(st.integers(10_000, 40_000), st.integers(0, 999_999))
def test_the_last_one_is_found_however_many_there_are(late: int, micros: int) -> None:
    plan = plan_fire(cron("*/2 * * * * *"), NOON + late * 2 * SECOND + micros * TICK)
    assert plan.ranges[0].last == NOON + late * 2 * SECOND


# Resume


def test_a_resume_before_the_next_occurrence_changes_nothing() -> None:
    assert plan_resume(every(), NOON - SECOND) == (NOON, None)
    assert plan_resume(every(cursor=None), NOON) == (None, None)
    assert plan_resume(every(cursor=WAITING_FOR_RUN), NOON) == (WAITING_FOR_RUN, None)


@pytest.mark.parametrize(
    ("later", "count"), [(timedelta(0), 1), (59 * SECOND, 1), (MINUTE, 2), (HOUR, 61)]
)
@pytest.mark.parametrize("schedule", [every(), cron("* * * * *")])
def test_a_resume_records_what_was_missed_and_fires_none_of_it(
    schedule: Schedule, later: timedelta, count: int
) -> None:
    cursor, missed = plan_resume(schedule, NOON + later)
    assert cursor == NOON + count * MINUTE
    assert missed is not None
    assert (missed.first, missed.last) == (NOON, NOON + (count - 1) * MINUTE)
    assert (missed.count, missed.outcome) == (count, "missed")
    assert missed.reason == "the schedule was paused or disabled"


def test_a_resume_counts_exactly_up_to_ten_thousand() -> None:
    schedule = cron("* * * * * *")
    for late, count in ((9_999, 10_000), (10_000, None)):
        _, missed = plan_resume(schedule, NOON + late * SECOND)
        assert missed is not None
        assert (missed.count, missed.last) == (count, NOON + late * SECOND)


def test_a_once_that_was_paused_past_its_time_is_missed_and_finished() -> None:
    once = every(NOON.isoformat(), kind="once")
    cursor, missed = plan_resume(once, NOON + HOUR)
    assert cursor is None
    assert missed is not None
    assert (missed.first, missed.last, missed.count) == (NOON, NOON, 1)


def test_a_resume_after_ends_at_is_the_end() -> None:
    cursor, missed = plan_resume(every(ends_at=NOON + 5 * MINUTE), NOON + HOUR)
    assert cursor is None
    assert missed is not None
    assert missed.count == 6
