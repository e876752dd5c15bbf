"""Instants and durations as people read them: relative first, the absolute beside it.

What belongs to one schedule is told on the clock of its own zone, everything else on that of this
machine. An hour without a zone beside it is always this machine's, as the heading says.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from rota.model.schedule import WAITING_FOR_RUN, Schedule

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
NOTHING = "-"


def when(
    moment: datetime | None, now: datetime, zone: tzinfo | None = None, *, named: bool = False
) -> str:
    """`in 5 min (14:03:22)`; other days show their date, and `zone` its name where it differs from
    this machine's. `named`: always a name, for where no heading has one."""
    if moment is None:
        return NOTHING
    if moment >= WAITING_FOR_RUN:
        return "after its run ends"
    return f"{relative(moment, now)} ({absolute(moment, now, zone, named=named)})"


def relative(moment: datetime, now: datetime) -> str:
    """`in 5 min`, `3 d 4 h ago`, `now`."""
    distance = moment - now
    if abs(distance) < timedelta(seconds=1):
        return "now"
    span = _rounded(abs(distance))
    return f"in {span}" if distance > timedelta(0) else f"{span} ago"


def absolute(
    moment: datetime, now: datetime, zone: tzinfo | None = None, *, named: bool = False
) -> str:
    local, today = moment.astimezone(zone), now.astimezone(zone).date()
    told = local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M:%S")
    # Also where this machine's clock will have been changed by then: the heading is of today.
    if named or local.utcoffset() != now.astimezone().utcoffset():
        told += f" {local.tzname()}"
    return told


def zone_name(now: datetime, zone: ZoneInfo | None = None) -> str:
    """The zone of `absolute`, for a heading."""
    return now.astimezone().tzname() or "local" if zone is None else zone.key


def zone_of(schedule: Schedule) -> ZoneInfo | None:
    """The one whose clock its times are on; None where it has no such clock, or is broken."""
    if schedule.error is not None:
        return None
    zone: ZoneInfo | None = schedule.calendar.zone
    return zone


def took(start: datetime | None, end: datetime | None) -> str:
    return NOTHING if start is None or end is None else spent(end - start)


def spent(span: timedelta) -> str:
    """`12 ms`, `3.4 s`, `5 min 12 s`."""
    seconds = span.total_seconds()
    if seconds < 0.001:
        return "<1 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else _rounded(span)


def wall_clock() -> datetime:
    """For commands without a store; where there is one, its own clock counts."""
    return datetime.now(UTC)


def _rounded(span: timedelta) -> str:
    """The two largest units, the smaller one left out where nobody would miss it."""
    rest, parts = int(span.total_seconds()), []
    for size, unit in _STEPS:
        count, rest = divmod(rest, size)
        if count:
            parts.append((count, unit))
    (count, unit), *smaller = parts
    if not smaller or count >= 10 or _unit_after(unit) != smaller[0][1]:
        return f"{count} {unit}"
    return f"{count} {unit} {smaller[0][0]} {smaller[0][1]}"


def _unit_after(unit: str) -> str | None:
    units = [name for _, name in _STEPS]
    place = units.index(unit) + 1
    return units[place] if place < len(units) else None
