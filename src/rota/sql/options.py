"""The options of CREATE and ALTER SCHEDULE: of the schedule, its retries, and its own SQL job."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from rota.errors import Invalid
from rota.model.duration import parse_duration
from rota.model.option import Arguments, Choice, Flag, Kind
from rota.model.options import RETRY_OPTIONS, SCHEDULE_OPTIONS
from rota.model.policies import ON_ERROR, OVERLAP
from rota.model.schedule import OPTIONS as DECLARED

# Other spellings of two policies.
ALIASES: Final = {"on_previous_running": "overlap", "on_execution_failure": "on_error"}
JOB_OPTIONS: Final = ("timeout", "step_timeout", "queue", "description", "run_as", "restart")
# Each part of a retry policy is an option of its own.
OPTIONS: Final = frozenset(SCHEDULE_OPTIONS - {"retry"}) | frozenset(RETRY_OPTIONS)
ON_PREVIOUS_RUNNING: Final = {"allow": "START", "skip": "SKIP", "wait": "WAIT", "queue": "QUEUE"}
ON_EXECUTION_FAILURE: Final = {"next": "RESCHEDULE", "retry": "RETRY", "pause": "PAUSE"}
_OTHER_SPELLING: Final = {
    "on_previous_running": (OVERLAP, ON_PREVIOUS_RUNNING),
    "on_execution_failure": (ON_ERROR, ON_EXECUTION_FAILURE),
}


def check_option(name: str, location: str, *, with_body: bool) -> str:
    """The canonical name of an option; Invalid if it is unknown here."""
    name = ALIASES.get(name, name)
    if name in OPTIONS or (with_body and name in JOB_OPTIONS):
        return name
    if name in JOB_OPTIONS:
        raise Invalid(
            f"option {name!r} at {location} belongs to the job; set it where that is defined"
        )
    known = [*OPTIONS, *ALIASES, *(JOB_OPTIONS if with_body else ())]
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"use {', '.join(sorted(known))}"
    raise Invalid(f"option {name!r} at {location} is unknown; {hint}")


def check_value(typed: str, value: Any, location: str) -> Any:
    """The value; Invalid, in the same spelling, if an aliased option cannot have it."""
    if typed not in _OTHER_SPELLING or value is None:
        return value
    allowed, spellings = _OTHER_SPELLING[typed]
    if not isinstance(value, str) or value.lower() not in allowed:
        raise Invalid(
            f"{typed} {value!r} at {location} is unknown; use {', '.join(spellings.values())}"
        )
    return value


def schedule_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the schedule itself, with their spelling of values checked."""
    return {
        name: _as_kind(DECLARED[name].kind, name, value)
        for name, value in options.items()
        if name in SCHEDULE_OPTIONS
    }


def _as_kind(kind: Kind, name: str, value: Any) -> Any:
    """The value, from how a statement writes one of this kind; NULL stands for the default."""
    match kind:
        case Flag():
            if not isinstance(value, bool):
                raise Invalid(f"{name} {value!r} must be TRUE or FALSE")
        case Choice() if value is not None:
            return kind.check(value, name)
        case Arguments() if value is not None:
            from rota.sql.parser import json_object

            return json_object(str(value), name)
    return value


def retry_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in RETRY_OPTIONS}


def job_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in JOB_OPTIONS}


def sql_spec(
    spec: Mapping[str, Any], text: str | None, target: str | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The spec of a SQL job, with the text, target and options that are set."""
    changed = dict(spec)
    if text is not None:
        if not text.strip():
            raise Invalid("there is no SQL between AS $$ and $$")
        changed["text"] = text
    if target is not None:
        changed["target"] = target
    for name in ("step_timeout", "run_as", "restart"):
        if name in options:
            changed[name] = options[name]
    if changed.get("step_timeout") is not None:
        parse_duration(changed["step_timeout"], "step_timeout")
    if not isinstance(changed.get("restart", False), bool):
        raise Invalid(f"restart {changed['restart']!r} must be TRUE or FALSE")
    return changed
