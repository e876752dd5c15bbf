"""Plan a fire: the occurrences of a due schedule that become runs, and the next cursor.

Pure, and made outside the transaction. Overlap is decided inside it, from slots and held rows:
whether a run starts, waits or is skipped because another one is still running.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec

from rota.model.limits import MISSED_COUNT
from rota.model.run import occurrence_id
from rota.model.schedule import WAITING_FOR_RUN, Calendar, Schedule


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence that becomes a run, unless overlap forbids it."""

    occurrence: datetime
    run_id: str
    due_at: datetime
    missed_count: int = 1
    trace: str | None = None


class OccurrenceRange(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbouring occurrences without a run; `count` None: more than MISSED_COUNT."""

    first: datetime
    last: datetime
    count: int | None
    outcome: str
    reason: str


class FirePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The fire of one schedule. It applies only if the row still has this cursor and revision."""

    schedule: Schedule
    cursor: datetime
    next_fire_at: datetime | None
    runs: tuple[PlannedRun, ...] = ()
    ranges: tuple[OccurrenceRange, ...] = ()
    broken: str | None = None

    @property
    def group_key(self) -> tuple[datetime, str] | None:
        """Equal for plans that differ in their schedule only: one run, on time, and a next fire."""
        key = self.schedule.plan_key
        plain = len(self.runs) == 1 and not self.ranges and self.next_fire_at is not None
        return (self.cursor, key) if plain and key is not None else None


def plan_fire(schedule: Schedule, now: datetime, room: int | None = None) -> FirePlan:
    """The plan of a due schedule at `now`; `room` is the number of runs it may make at most."""
    cursor = schedule.next_fire_at
    assert cursor is not None
    assert cursor <= now
    if schedule.delays:
        return _plan(schedule, (cursor,), (), WAITING_FOR_RUN)
    match schedule.catch_up:
        case "all":
            return _plan_all(schedule, now, room)
        case "none":
            return _plan_none(schedule, now, room)
        case _:
            return _plan_one(schedule, now)


def plan_resume(
    schedule: Schedule, now: datetime
) -> tuple[datetime | None, OccurrenceRange | None]:
    """The next cursor when fires begin again, and the occurrences missed until then."""
    cursor = schedule.next_fire_at
    if cursor is None or cursor > now:
        return cursor, None
    late = _between(schedule, cursor, now)
    more = 0 if late is None else late.count
    missed = OccurrenceRange(
        first=cursor,
        last=cursor if late is None else late.last,
        count=None if more is None else more + 1,
        outcome="missed",
        reason="the schedule was paused or disabled",
    )
    return schedule.next_after(now), missed


def _plan_one(schedule: Schedule, now: datetime) -> FirePlan:
    """Fire the cursor's occurrence once; later ones up to now are coalesced into it."""
    cursor = _cursor(schedule)
    late = _between(schedule, cursor, now)
    ranges = () if late is None else (_range(late, "coalesced", "caught up by one run"),)
    missed = 1 if late is None else 1 + (late.count if late.count is not None else MISSED_COUNT)
    return _plan(schedule, (cursor,), ranges, schedule.next_after(now), missed)


def _plan_all(schedule: Schedule, now: datetime, room: int | None) -> FirePlan:
    """Fire every occurrence, oldest first, a bounded number per tick."""
    due, following = _walk(schedule, _cursor(schedule), now, room)
    return _plan(schedule, due, (), following)


def _plan_none(schedule: Schedule, now: datetime, room: int | None) -> FirePlan:
    """Fire the occurrences within misfire_grace; older ones are missed."""
    cursor, oldest = _cursor(schedule), now - schedule.misfire_grace
    if cursor >= oldest:
        return _plan_all(schedule, now, room)
    begin = schedule.next_after(oldest - timedelta(microseconds=1))
    late = _between(schedule, cursor, oldest - timedelta(microseconds=1))
    more = 0 if late is None else late.count
    missed = OccurrenceRange(
        first=cursor,
        last=cursor if late is None else late.last,
        count=None if more is None else more + 1,
        outcome="missed",
        reason="later than misfire_grace",
    )
    if begin is None or begin > now:
        return _plan(schedule, (), (missed,), begin)
    due, following = _walk(schedule, begin, now, room)
    return _plan(schedule, due, (missed,), following)


def _cursor(schedule: Schedule) -> datetime:
    assert schedule.next_fire_at is not None
    return schedule.next_fire_at


def _walk(
    schedule: Schedule, begin: datetime, now: datetime, room: int | None
) -> tuple[tuple[datetime, ...], datetime | None]:
    most = schedule.catch_up_limit if room is None else min(room, schedule.catch_up_limit)
    due = [begin]
    following = schedule.next_after(begin)
    while following is not None and following <= now and len(due) < most:
        due.append(following)
        following = schedule.next_after(following)
    return tuple(due), following


def _plan(
    schedule: Schedule,
    due: tuple[datetime, ...],
    ranges: tuple[OccurrenceRange, ...],
    following: datetime | None,
    missed: int = 1,
) -> FirePlan:
    cursor = _cursor(schedule)
    if following is not None and following <= cursor:
        broken = f"the occurrence after {cursor.isoformat()} would be {following.isoformat()}"
        return FirePlan(schedule=schedule, cursor=cursor, next_fire_at=None, broken=broken)
    return FirePlan(
        schedule=schedule,
        cursor=cursor,
        next_fire_at=following,
        runs=tuple(_planned(schedule, occurrence, missed) for occurrence in due),
        ranges=ranges,
    )


def _planned(schedule: Schedule, occurrence: datetime, missed: int) -> PlannedRun:
    run_id = occurrence_id(schedule.id, occurrence)
    return PlannedRun(
        occurrence=occurrence,
        run_id=run_id,
        due_at=occurrence + schedule.offset(run_id),
        missed_count=missed,
    )


@dataclass(frozen=True, slots=True)
class _Late:
    first: datetime
    last: datetime
    count: int | None


def _between(schedule: Schedule, after: datetime, until: datetime) -> _Late | None:
    """The occurrences after `after` and up to `until`, counted up to MISSED_COUNT."""
    if schedule.ends_at is not None:
        until = min(until, schedule.ends_at)
    return _count(schedule.calendar, after, until)


@lru_cache(maxsize=4_096)
def _count(calendar: Calendar, after: datetime, until: datetime) -> _Late | None:
    if calendar.interval is not None:
        count = max(0, (until - after) // calendar.interval)
        if not count:
            return None
        return _Late(after + calendar.interval, after + count * calendar.interval, count)
    first = following = calendar.next_after(after, None)
    last, count = first, 0
    while following is not None and following <= until:
        last, count = following, count + 1
        if count == MISSED_COUNT:
            return _Late(first, _last_up_to(calendar, last, until), None)  # type: ignore[arg-type]
        following = calendar.next_after(following, None)
    return _Late(first, last, count) if count and first and last else None


def count_range(schedule: Schedule, first: datetime, last: datetime) -> int:
    """The number of occurrences from `first` to `last`, without a bound: too slow for a fire."""
    calendar = schedule.calendar
    if calendar.cron is not None:
        return 1 + calendar.cron.count(first, last, calendar.zone, calendar.dst)
    return 1 if calendar.interval is None else 1 + (last - first) // calendar.interval


def _last_up_to(calendar: Calendar, known: datetime, until: datetime) -> datetime:
    """The last occurrence up to `until`, by bisection from a known earlier one."""
    low, high = known, until
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        following = calendar.next_after(middle, None)
        if following is not None and following <= until:
            low = following
        else:
            high = middle
    # An occurrence at `high` itself is not after any middle.
    following = calendar.next_after(low, None)
    return following if following is not None and following <= until else low


def _range(late: _Late, outcome: str, reason: str) -> OccurrenceRange:
    return OccurrenceRange(
        first=late.first, last=late.last, count=late.count, outcome=outcome, reason=reason
    )
