"""SHOW CREATE SCHEDULE: a statement that makes the schedule again, as far as it may be shown.

What is hidden (passwords in its SQL or its arguments) has to be filled in.
"""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import chain, count
from typing import Any

from rota.errors import Conflict
from rota.model.duration import format_duration
from rota.model.job import DEFAULT_QUEUE, Job
from rota.model.options import SCHEDULE_OPTIONS, plain_schedule
from rota.model.redact import redact, redact_text
from rota.model.retry import Retry
from rota.model.schedule import Schedule
from rota.sql.options import JOB_OPTIONS, ON_EXECUTION_FAILURE, ON_PREVIOUS_RUNNING

_TIMINGS = {"cron": "RECURRING", "every": "EVERY", "once": "AT"}


def create_statement(schedule: Schedule, job: Job | None) -> str:
    """`job` is its job, None if no process registered it."""
    if schedule.error is not None:
        raise Conflict(f"schedule {schedule.name!r} is broken: {schedule.error}")
    own = job is not None and job.shared and job.name == schedule.name
    what = _body(job) if own and job is not None else f"FOR JOB {name(schedule.job)}"
    lines = [
        f"CREATE SCHEDULE {name(schedule.name)} {what}",
        f"{_TIMINGS[schedule.kind]} {quoted(schedule.expr)}",
    ]
    options = _options(schedule) | (_job_options(job) if own and job is not None else {})
    if options:
        told = ", ".join(f"{option} = {_value(value)}" for option, value in options.items())
        lines.append(f"WITH SCHEDULE OPTIONS ({told})")
    return "\n".join(lines)


def _body(job: Job) -> str:
    text = redact_text(str(job.spec.get("text", "")))
    tags = chain(["$$"], (f"$sql{number}$" for number in count(1)))
    tag = next(tag for tag in tags if tag not in text)
    target = job.spec.get("target")
    return f"AS {tag}\n{text}\n{tag}" + (f" ON {name(target)}" if target else "")


def _options(schedule: Schedule) -> dict[str, Any]:
    """What is not as it would be without saying so."""
    told: dict[str, Any] = {}
    for option in sorted(SCHEDULE_OPTIONS - {"retry"}):
        value = getattr(schedule, option)
        # The zone and the owner depend on who creates it.
        if value == getattr(plain_schedule(), option) and option not in ("timezone", "owner"):
            continue
        if value is not None:
            told[option] = told_args(schedule) if option == "args" else value
    if "overlap" in told:
        told["on_previous_running"] = ON_PREVIOUS_RUNNING[told.pop("overlap")]
    if "on_error" in told:
        told["on_execution_failure"] = ON_EXECUTION_FAILURE[told.pop("on_error")]
    return told | ({} if schedule.retry is None else _retry_options(schedule.retry))


def _retry_options(retry: Retry) -> dict[str, Any]:
    told = retry.to_dict()
    told["retry_jitter"] = told.pop("jitter")
    return told


def _job_options(job: Job) -> dict[str, Any]:
    of_job = {
        "timeout": job.timeout,
        "queue": None if job.queue == DEFAULT_QUEUE else job.queue,
        "description": job.description or None,
        **{option: job.spec.get(option) for option in ("step_timeout", "run_as", "restart")},
    }
    return {option: of_job[option] for option in JOB_OPTIONS if of_job[option] is not None}


def told_args(schedule: Schedule) -> str:
    return json.dumps(redact(dict(schedule.args)), ensure_ascii=False)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | float():
            return str(value)
        case timedelta():
            return quoted(format_duration(value))
        case str():
            return quoted(value)
        case _:
            return quoted(value.isoformat())


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def name(text: str) -> str:
    """Always in quotes: a name may look like a comment, or like a number."""
    return f'"{text}"'
