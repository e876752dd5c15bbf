"""The values of policies, their aliases, and the defaults by the source of a definition."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from rota.errors import Invalid
from rota.model.retry import ONCE, Retry

OVERLAP: Final = {
    "queue": "queue",
    "wait": "wait",
    "skip": "skip",
    "allow": "allow",
    "start": "allow",
    "no_wait": "allow",
}
ON_ERROR: Final = {
    "next": "next",
    "reschedule": "next",
    "retry_sched": "next",
    "retry": "retry",
    "retry_soon": "retry",
    "pause": "pause",
    "pause_sched": "pause",
}
CATCH_UP: Final = {"one": "one", "none": "none", "all": "all"}
DST: Final = {"vixie": "vixie", "literal": "literal", "skip_once": "skip_once"}
ANCHOR: Final = {"rate": "rate", "delay": "delay"}
ISOLATION: Final = {"thread": "thread", "process": "process"}

# Sources of definitions: the defaults depend on them.
SQL_FILE, PYTHON, API = "sql_file", "python", "api"
DEFAULT_OVERLAP: Final = {SQL_FILE: "queue", PYTHON: "skip", API: "wait"}
DEFAULT_RETRY: Final = {SQL_FILE: ONCE, PYTHON: Retry(), API: Retry()}


def choose(value: object, allowed: Mapping[str, str], field: str) -> str:
    """The canonical value, from any letter case and alias."""
    if isinstance(value, str) and value.lower() in allowed:
        return allowed[value.lower()]
    close = get_close_matches(str(value).lower(), allowed, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise Invalid(f"{field} {value!r} is unknown; use {', '.join(dict.fromkeys(allowed))}{hint}")


def decide_overlap(overlap: str, *, free: bool, held: int, queue_max: int | None) -> str:
    """The decision about an occurrence: start, hold, merge, skip or drop.

    `held` counts runs that wait for the same key. A run that can start now is always accepted.
    """
    if overlap == "allow" or free:
        return "start"
    match overlap:
        case "skip":
            return "skip"
        case "wait":
            return "merge" if held else "hold"
        case _:
            return "drop" if queue_max is not None and held >= queue_max else "hold"
