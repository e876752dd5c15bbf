"""`rota next`: what a cron expression means, and when it occurs. Needs no store."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from rota.cli.options import SHOW, Option, Show
from rota.cli.output import say, say_json, say_table
from rota.cli.times import relative, wall_clock
from rota.errors import Invalid
from rota.model.cron import Cron, parse_zone
from rota.model.cron_words import cron_in_words
from rota.model.duration import parse_instant
from rota.model.limits import check_whole
from rota.model.policies import DST

COUNT = 1_000
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def coming(
    *expr: Annotated[
        str,
        Option(
            "A cron expression of 5, 6 or 7 fields, or a macro such as @daily. Quote it.", "EXPR"
        ),
    ],
    tz: Annotated[
        str | None,
        Option(
            "The zone of the expression; the setting timezone, else UTC, if not given.",
            "ZONE",
            names=("--tz", "--timezone"),
        ),
    ] = None,
    after: Annotated[
        str | None, Option("Begin after this instant; now if not given.", "INSTANT")
    ] = None,
    count: Annotated[int, Option("How many times to list, up to 1000.")] = 5,
    dst: Annotated[
        str, Option("When clocks change: vixie, literal or skip_once.", "RULE", values=tuple(DST))
    ] = "vixie",
    show: Show = SHOW,
) -> None:
    """Say what a cron expression means, and when it occurs."""
    if not expr:
        raise Invalid("give a cron expression, such as: rota next '0 3 * * *'")
    check_whole(count, "count", 1, COUNT)
    cron, zone = Cron.parse(" ".join(expr)), parse_zone(_default_zone() if tz is None else tz)
    begin = wall_clock() if after is None else parse_instant(after, "after")
    times = _times(cron, zone, dst, begin, count)
    if not times:
        ever = cron.next_after(_BEGINNING, zone, dst) is not None
        told = f"does not occur after {begin.isoformat()}" if ever else "never occurs"
        raise Invalid(f"cron {cron.text!r} {told}; check day, month and year")
    if show.json:
        return say_json(
            [
                {"at": moment.astimezone(zone).isoformat(), "note": cron.note(moment, zone, dst)}
                for moment in times
            ]
        )
    _say_times(cron, zone, dst, times)


def _times(cron: Cron, zone: ZoneInfo, dst: str, begin: datetime, count: int) -> list[datetime]:
    times: list[datetime] = []
    moment = cron.next_after(begin, zone, dst)
    while moment is not None and len(times) < count:
        times.append(moment)
        moment = cron.next_after(moment, zone, dst)
    return times


def _say_times(cron: Cron, zone: ZoneInfo, dst: str, times: list[datetime]) -> None:
    now = wall_clock()
    say(f"{cron_in_words(cron)} ({zone.key})")
    say()
    notes = [cron.note(moment, zone, dst) for moment in times]
    rows: list[list[Any]] = [
        [
            f"{moment.astimezone(zone):%a %Y-%m-%d %H:%M:%S} {_offset(moment, zone)}",
            relative(moment, now),
        ]
        for moment in times
    ]
    if any(notes):
        for row, note in zip(rows, notes, strict=True):
            row.append(note or "")
    say_table(("local time", "from now", "note")[: len(rows[0])], rows)


def _offset(moment: datetime, zone: ZoneInfo) -> str:
    return moment.astimezone(zone).isoformat(timespec="seconds")[19:]


def _default_zone() -> str:
    """The setting, where there is one. Reading settings costs a third of this command's time."""
    if "ROTA_TIMEZONE" not in os.environ and not Path("rota.toml").exists():
        return "UTC"
    from rota.config import load_settings

    return load_settings().timezone
