"""Instants and durations as people read them: relative first, the absolute beside it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rota.model.schedule import WAITING_FOR_RUN

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
NOTHING = "-"


def when(moment: datetime | None, now: datetime) -> str:
    """`in 5 min (14:03:22)`; the clock is this machine's, and other days show their date."""
    if moment is None:
        return NOTHING
    if moment >= WAITING_FOR_RUN:
        return "after its run ends"
    return f"{relative(moment, now)} ({absolute(moment, now)})"


def relative(moment: datetime, now: datetime) -> str:
    """`in 5 min`, `3 d 4 h ago`, `now`."""
    distance = moment - now
    if abs(distance) < timedelta(seconds=1):
        return "now"
    span = _rounded(abs(distance))
    return f"in {span}" if distance > timedelta(0) else f"{span} ago"


def absolute(moment: datetime, now: datetime) -> str:
    local, today = moment.astimezone(), now.astimezone().date()
    return local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M:%S")


def zone_name(now: datetime) -> str:
    """The zone of `absolute`, for the head of a column."""
    return now.astimezone().tzname() or "local"


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
