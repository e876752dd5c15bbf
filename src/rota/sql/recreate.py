"""SHOW CREATE SCHEDULE: a statement that creates the schedule again, without secrets.

Redacted parts (passwords in its SQL or its arguments) have to be filled in by hand.
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
    """The statement. `job` is None if no process has registered it."""
    if schedule.error is not None:
        raise Conflict(f"schedule {schedule.name!r} is broken: {schedule.error}")
    is_own = job is not None and job.shared and job.name == schedule.name
    what = _body(job) if is_own and job is not None else f"FOR JOB {name(schedule.job)}"
    lines = [
        f"CREATE SCHEDULE {name(schedule.name)} {what}",
        f"{_TIMINGS[schedule.kind]} {quoted(schedule.expr)}",
    ]
    options = _options(schedule) | (_job_options(job) if is_own and job is not None else {})
    if options:
        text = ", ".join(f"{option} = {_value(value)}" for option, value in options.items())
        lines.append(f"WITH SCHEDULE OPTIONS ({text})")
    return "\n".join(lines)


def _body(job: Job) -> str:
    text = redact_text(str(job.spec.get("text", "")))
    tags = chain(["$$"], (f"$sql{number}$" for number in count(1)))
    tag = next(tag for tag in tags if tag not in text)
    target = job.spec.get("target")
    return f"AS {tag}\n{text}\n{tag}" + (f" ON {name(target)}" if target else "")


def _options(schedule: Schedule) -> dict[str, Any]:
    """The options that differ from their defaults."""
    options: dict[str, Any] = {}
    for option in sorted(SCHEDULE_OPTIONS - {"retry"}):
        value = getattr(schedule, option)
        # Always written: the defaults of zone and owner depend on the process and user.
        if value == getattr(plain_schedule(), option) and option not in ("timezone", "owner"):
            continue
        if value is not None:
            options[option] = redacted_args(schedule) if option == "args" else value
    if "overlap" in options:
        options["on_previous_running"] = ON_PREVIOUS_RUNNING[options.pop("overlap")]
    if "on_error" in options:
        options["on_execution_failure"] = ON_EXECUTION_FAILURE[options.pop("on_error")]
    return options | ({} if schedule.retry is None else _retry_options(schedule.retry))


def _retry_options(retry: Retry) -> dict[str, Any]:
    options = retry.to_dict()
    options["retry_jitter"] = options.pop("jitter")
    return options


def _job_options(job: Job) -> dict[str, Any]:
    of_job = {
        "timeout": job.timeout,
        "queue": None if job.queue == DEFAULT_QUEUE else job.queue,
        "description": job.description or None,
        **{option: job.spec.get(option) for option in ("step_timeout", "run_as", "restart")},
    }
    return {option: of_job[option] for option in JOB_OPTIONS if of_job[option] is not None}


def redacted_args(schedule: Schedule) -> str:
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
    """A name in quotes: without them it may look like a comment or a number."""
    return f'"{text}"'
