"""Time zones: their names, and the instants of their clock changes.

The standard library gives the offset at an instant, but not the instant of its next change. So a
change is found by bisection between two instants with different offsets.
"""

from __future__ import annotations

import os
import re
import sys
from datetime import datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from rota.errors import Invalid

NAME_LENGTH = 64
_LOCALTIME = "/etc/localtime"
_CACHED_ZONES = 1_024
# CEST, PST, IST, GMT+2, UTC+1, +02:00
_ABBREVIATION = re.compile(r"[A-Z]{2,5}|(?:GMT|UTC)?[+-][0-9]{1,2}(?::?[0-9]{2})?")


@lru_cache(maxsize=_CACHED_ZONES)
def parse_zone(name: str) -> ZoneInfo:
    """The zone of an IANA name, or of this machine for `local` (read once per process)."""
    if name.lower() == "local":
        return _local_zone()
    if len(name) > NAME_LENGTH:
        raise Invalid(f"timezone name has {len(name)} characters; use at most {NAME_LENGTH}")
    # right/ files count leap seconds: their instants are not those of any clock used here.
    if name.startswith("right/"):
        raise Invalid(_unknown(name))
    try:
        return ZoneInfo(name)  # refuses absolute paths and `..` with a ValueError
    except (LookupError, OSError, ValueError):
        raise Invalid(_unknown(name)) from None


def _unknown(name: str) -> str:
    spellings = {}
    for key in sorted(available_timezones()):
        spellings[key.rpartition("/")[2].lower()] = key
        spellings[key.lower()] = key
    if not spellings:
        return f"timezone {name!r} is unknown: this machine has no zone data; pip install tzdata"
    city = name.isalpha() and name.lower() in spellings
    if _ABBREVIATION.fullmatch(name) and not city:
        # No suggestion by spelling: CEST is not EST, and Etc/GMT+2 is behind UTC.
        return (
            f"timezone {name!r} is unknown: it is an abbreviation or an offset, which say nothing "
            "about summer time; use the name of a place, such as 'Europe/Berlin', or 'UTC'"
        )
    close = get_close_matches(name.strip().lower().replace(" ", "_"), spellings, n=1)
    hint = f"did you mean {spellings[close[0]]!r}?" if close else "use a name like 'Europe/Berlin'"
    return f"timezone {name!r} is unknown; {hint}"


def _local_zone() -> ZoneInfo:
    setting = os.environ.get("TZ")
    if setting is None and sys.platform == "win32":
        raise Invalid("timezone 'local' is not known on Windows; use a name like 'Europe/Berlin'")
    path = os.path.realpath(_LOCALTIME) if setting is None else setting.removeprefix(":")
    name = path.rpartition("zoneinfo/")[2]
    if not name or (setting is None and not os.path.exists(path)):
        return ZoneInfo("UTC")  # as the C library does without a setting
    if setting is None and name == path:  # a copy instead of a link has no name
        with open(path, "rb") as file:
            return ZoneInfo.from_file(file, key="local")
    try:
        return parse_zone(name)
    except Invalid:
        raise Invalid(
            f"timezone 'local': {path!r} names no zone; set TZ to a name like 'Europe/Berlin'"
        ) from None


def offset_at(zone: tzinfo, instant: datetime) -> timedelta:
    """How far the zone's wall clock is ahead of UTC at this instant."""
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None, "astimezone gives an aware time"
    return offset


def change_between(zone: tzinfo, early: datetime, late: datetime) -> datetime:
    """The first second after `early` with another offset; `late` must have another one."""
    offset = offset_at(zone, early)
    same, other = 0, int((late - early).total_seconds())
    while other - same > 1:
        middle = (same + other) // 2
        if offset_at(zone, early + timedelta(seconds=middle)) == offset:
            same = middle
        else:
            other = middle
    return early + timedelta(seconds=other)
