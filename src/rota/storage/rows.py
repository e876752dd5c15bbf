"""Rows to nouns and back. The one place that knows how a column is stored.

Instants are recognised by name (they end in `_at` or `_until`, or stand in INSTANTS), durations
are text, JSON is text, run ids are text.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from rota.errors import Invalid
from rota.model.duration import format_duration, parse_duration
from rota.model.job import Job
from rota.model.limits import check_name
from rota.model.option import RetryPolicy
from rota.model.outcome import Settlement
from rota.model.retry import Retry
from rota.model.run import Attempt, ClaimedRun, NewRun, Run
from rota.model.schedule import OPTIONS, Schedule, to_json_value
from rota.model.signature import Signature
from rota.storage.engine import Row

log = logging.getLogger("rota.storage")

INSTANTS = frozenset({"at", "until", "occurrence", "last_occurrence", "first_run"})

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def is_instant(column: str) -> bool:
    return column in INSTANTS or column.endswith(("_at", "_until"))


def to_json(value: object) -> str:
    return _encode(value).decode()


def from_json(text: str) -> Any:
    return _decode(text)


def _span(text: str | None) -> timedelta | None:
    return None if text is None else parse_duration(text, "stored duration", zero=True)


def claimed(row: tuple[Any, ...]) -> ClaimedRun:
    """The columns of a claimed run stand in the order of the fields."""
    run = ClaimedRun(*row)
    if run.timeout is not None:
        try:
            timeout = _span(run.timeout)  # type: ignore[arg-type]  # text, until here
        except Invalid:  # a corrupt one must not keep the rest of the batch from its worker
            timeout = None
        run = msgspec.structs.replace(run, timeout=timeout)
    return run


def claimed_in_order(found: Iterable[tuple[Any, ...]]) -> list[ClaimedRun]:
    """By priority, the highest first, then as they are due."""
    runs = [claimed(row) for row in found]
    runs.sort(key=_due)
    if len({run.priority for run in runs}) > 1:
        runs.sort(key=_priority, reverse=True)  # keeps the order of equals
    return runs


_due, _priority = attrgetter("due_at", "seq"), attrgetter("priority")


def run(row: Row) -> Run:
    row["timeout"] = _span(row["timeout"])
    return Run(**row)


def attempt(row: Row) -> Attempt:
    return Attempt(**row)


# Options that SQL reads have columns of their own. All others are one JSON text, of those that
# differ from their defaults: every fire writes the row anew.
OPTION_COLUMNS = ("overlap_key", "ends_at", "args", "priority", "enabled")
JSON_OPTIONS = tuple(name for name in OPTIONS if name not in OPTION_COLUMNS)
_NEW_SCHEDULE = {
    "name": "text", "job": "text", "kind": "text", "expr": "text", "next_fire_at": "instant",
    "overlap_key": "text", "ends_at": "instant", "args": "json", "priority": "integer",
    "enabled": "boolean", "state": "text", "error": "text", "registered": "text",
    "options": "json", "plan_key": "text",
}  # fmt: skip
SCHEDULE_COLUMNS = (
    "id", *_NEW_SCHEDULE, "last_fired_at", "paused", "paused_by", "paused_at",
    "paused_reason", "created_at", "revision",
)  # fmt: skip

# Lists of columns that statements name, once for all engines: `{columns runs}` in common.sql. Those
# of parameter rows have types.
_SHARED_BY_A_BULK = {
    "job": "text", "queue": "text", "priority": "integer", "max_attempts": "integer",
    "timeout": "text", "backoff": "json", "overlap_key": "text", "concurrency_key": "text",
    "concurrency_limit": "integer", "wanted_key": "text", "schedule_id": "bigint",
    "occurrence": "instant", "missed_count": "bigint", "retry_of": "text", "created_by": "text",
    "correlation_id": "text", "trace": "text",
}  # fmt: skip
_NEW_JOB = {
    "name": "text", "executor": "text", "source": "text", "origin": "text", "spec": "json",
    "args_schema": "json", "description": "text", "queue": "text", "priority": "integer",
    "timeout": "text", "policies": "json", "enabled": "boolean", "error": "text", "version": "text",
}  # fmt: skip
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "runs": dict.fromkeys(Run.__dataclass_fields__, ""),
    "claimed_runs": dict.fromkeys(ClaimedRun.__struct_fields__, ""),
    "brief_runs": dict.fromkeys(
        (
            "seq", "id", "job", "queue", "state", "schedule_id", "occurrence", "due_at",
            "started_at", "finished_at", "attempt", "redo", "progress", "error", "reason",
        ),
        "",
    ),
    "shared_run": _SHARED_BY_A_BULK,
    "new_run": {"id": "uuid", "args": "json", **_SHARED_BY_A_BULK},
    "placed": dict.fromkeys(("state", "due_at", "created_at", "queued_at"), ""),
    "jobs": dict.fromkeys((*_NEW_JOB, "version_at"), ""),
    "new_job": _NEW_JOB,
    "schedules": {
        name: {"id": "bigint", "args": "json", "options": "json"}.get(name, "text")
        for name in SCHEDULE_COLUMNS
    },
    "new_schedule": _NEW_SCHEDULE,
    "occurrences": dict.fromkeys(
        (
            "schedule_id", "occurrence", "last_occurrence", "count", "outcome", "reason", "run_id",
            "recorded_at",
        ),
        "",
    ),
    "files": dict.fromkeys(
        (
            "id", "name", "content_type", "size", "sha256", "job", "run_id", "created_at", "until",
        ),
        "",
    ),
}  # fmt: skip
# UUID or JSON on PostgreSQL, text on the other engines and for us.
READ_AS_TEXT = frozenset(
    {"id", "args", "backoff", "result", "run_id", "spec", "args_schema", "policies"}
)


def new_run_row(new: NewRun) -> Row:
    return {
        "id": new.id,
        "job": new.job,
        "queue": new.queue,
        "priority": new.priority,
        "due_at": new.due_at,
        "delay_seconds": 0.0 if new.delay is None else new.delay.total_seconds(),
        "max_attempts": new.max_attempts,
        "timeout": None if new.timeout is None else format_duration(new.timeout),
        "backoff": new.backoff,
        "args": new.args,
        "overlap_key": new.overlap_key,
        "concurrency_key": new.concurrency_key,
        "concurrency_limit": new.concurrency_limit,
        "wanted_key": new.wanted_key,
        "schedule_id": new.schedule_id,
        "occurrence": new.occurrence,
        "missed_count": 0,
        "retry_of": new.retry_of,
        "created_by": new.created_by,
        "correlation_id": new.correlation_id,
        "trace": new.trace,
    }


def settlement_row(settlement: Settlement) -> Row:
    outcome = settlement.outcome
    return {
        "seq": settlement.run.seq,
        "attempt": settlement.run.attempt,
        "state": settlement.state,
        "terminal": settlement.terminal,
        "delay_seconds": settlement.delay.total_seconds(),
        "ran_seconds": settlement.ran_seconds,
        "gives_back": settlement.gives_back_slots,
        "failures": settlement.failures,
        "lost": settlement.lost,
        "error": outcome.error,
        "reason": outcome.reason,
        "result": outcome.result,
        "expired_only": settlement.expired_only,
    }


def job_row(job: Job) -> Row:
    return {
        "name": job.name,
        "executor": job.executor,
        "source": job.source,
        "origin": job.origin,
        "spec": to_json(job.spec),
        "args_schema": to_json(job.signature.to_dict()),
        "description": job.description,
        "queue": job.queue,
        "priority": job.priority,
        "timeout": None if job.timeout is None else format_duration(job.timeout),
        "policies": to_json(job.policies()),
        "enabled": job.enabled,
        "error": job.error,
        "version": job.version,
    }


def job(row: Row) -> Job:
    """A row that cannot be understood is a broken job: it can be seen, and made known again."""
    try:
        return checked_job(row)
    except Invalid as fault:
        error = str(fault) if row["error"] is None else f"{row['error']}; {fault}"
        return Job.from_unreadable_row({name: row[name] for name in _PLAIN_JOB_COLUMNS}, error)


_PLAIN_JOB_COLUMNS = (
    "name", "executor", "source", "origin", "description", "queue", "priority", "version_at",
)  # fmt: skip


def jobs(found: Iterable[Row]) -> dict[str, Job]:
    """By name. A corrupt row is an unknown job, and stops nobody else's."""
    known = {}
    for row in found:
        try:
            known[row["name"]] = checked_job(row)
        except Invalid as fault:
            log.error("%s", fault)
    return known


def checked_job(row: Row) -> Job:
    """Checked again at construction: a row that somebody corrupted is refused, by name."""
    try:
        return _job(row)
    except Exception as fault:
        raise Invalid(
            f"job {row['name']!r}: its row cannot be read ({type(fault).__name__}: {fault}); "
            "a new version of it mends that"
        ) from fault


def _job(row: Row) -> Job:
    policies: Mapping[str, Any] = from_json(row["policies"])
    retry = Retry.from_dict({name: policies[name] for name in Retry().to_dict()})
    return Job(
        name=row["name"],
        executor=row["executor"],
        source=row["source"],
        origin=row["origin"],
        spec=from_json(row["spec"]),
        signature=Signature.from_dict(from_json(row["args_schema"])),
        description=row["description"],
        queue=row["queue"],
        priority=row["priority"],
        timeout=_span(row["timeout"]),
        retry=retry,
        isolation=policies["isolation"],
        concurrency_key=policies["concurrency_key"],
        concurrency_limit=policies["concurrency_limit"],
        enabled=bool(row["enabled"]),
        error=row["error"],
        version_at=row["version_at"],
    )


def checked_schedule(row: Row) -> Schedule:
    """Checked again at construction: a row that somebody corrupted is refused, by name.

    Most schedules differ in little more than their name. What they share is checked once."""
    try:
        template = _template(_definition(row))
    except Exception:
        return _schedule(row)  # its error names the schedule
    check_name(row["name"], "schedule name")
    # Arguments are decoded for each schedule: no change to them may reach another one.
    own = dict(zip(_OWN, _own(row), strict=True))
    return template.copy_unchecked(args=from_json(row["args"]), **own)


def _schedule(row: Row) -> Schedule:
    fields = {**row, **_stored_options(row["options"]), "args": from_json(row["args"])}
    del fields["options"]
    return Schedule(**{**fields, "enabled": bool(row["enabled"]), "paused": bool(row["paused"])})


def _stored_options(text: str) -> Row:
    """The options of a row that do not have their default."""
    stored = from_json(text)
    if not isinstance(stored, dict):
        raise Invalid(f"its options are no JSON object: {text!r}")
    options = {name: stored[name] for name in JSON_OPTIONS if name in stored}
    for name in _CONVERTED:
        if name in options:
            options[name] = OPTIONS[name].kind.from_stored(options[name])
    return options


@lru_cache(maxsize=1_000)
def _template(definition: tuple[Any, ...]) -> Schedule:
    return _schedule({"name": "template", **dict(zip(_SHARED, definition, strict=True))})


_CONVERTED = [name for name in JSON_OPTIONS if isinstance(OPTIONS[name].kind, RetryPolicy)]
# What is a schedule's own, and no check but that of its name depends on; and all the rest.
_OWN = (
    "id", "name", "overlap_key", "next_fire_at", "last_fired_at", "created_at", "paused_at",
    "paused_by", "paused_reason", "state", "error", "registered", "revision", "plan_key",
)  # fmt: skip
_SHARED = tuple(name for name in SCHEDULE_COLUMNS if name not in _OWN)
_WRITTEN = ("id", *(name for name in _NEW_SCHEDULE if name not in ("args", "options", "plan_key")))
_own, _definition = itemgetter(*_OWN), itemgetter(*_SHARED)


def schedule(row: Row) -> Schedule:
    """A row that cannot be understood is a broken schedule: it can be seen, edited and dropped."""
    try:
        return checked_schedule(row)
    except Exception as fault:
        return Schedule.from_unreadable_row(
            {**_readable(row), "args": {}, "retry": None}, str(fault)
        )


def _readable(row: Row) -> Row:
    """The row with each option as it is stored, as far as it can be read."""
    defaults = {name: declared.default for name, declared in OPTIONS.items()}
    try:
        stored = from_json(row["options"])
    except ValueError:
        stored = None
    return {**defaults, **(stored if isinstance(stored, dict) else {}), **row}


def schedule_row(schedule: Schedule) -> Row:
    row = {name: getattr(schedule, name) for name in _WRITTEN}
    options = {name: getattr(schedule, name) for name in JSON_OPTIONS}
    stored = {
        name: to_json_value(value)
        for name, value in options.items()
        if value != OPTIONS[name].default
    }
    return {
        **row,
        "args": to_json(schedule.args),
        "options": to_json(stored),
        "plan_key": schedule.shared_plan(),
    }
