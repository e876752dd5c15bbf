"""Dictionaries with stable keys, as every surface shows runs, schedules and jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rota.model.job import Job
from rota.model.redact import redact, redact_text
from rota.model.run import Run
from rota.model.schedule import WAITING_FOR_RUN, Schedule

_JSON_TEXT = ("args", "result", "progress", "backoff")
# Internal to storage: how a run finds its slots.
_INTERNAL = ("wanted_key",)


def run_record(run: Run) -> dict[str, Any]:
    """The public columns of a run; JSON texts are decoded."""
    record = {
        field.name: getattr(run, field.name) for field in fields(run) if field.name not in _INTERNAL
    }
    for name in _JSON_TEXT:
        record[name] = decoded(record[name])
    return record


def schedule_record(schedule: Schedule) -> dict[str, Any]:
    """The definition, the operator's bits and the cursor.

    `next_fire_at` is null when no fire is planned: the schedule is finished, or waits for the end
    of its run. `edits` are the options that operators changed, with their values in code or file.
    """
    waits = schedule.next_fire_at is not None and schedule.next_fire_at >= WAITING_FOR_RUN
    return {
        "id": schedule.id,
        **redact(schedule.definition()),
        "status": schedule.status,
        "next_fire_at": None if waits else schedule.next_fire_at,
        "waits_for_run": waits,
        "last_fired_at": schedule.last_fired_at,
        "paused": schedule.paused,
        "paused_by": schedule.paused_by,
        "paused_at": schedule.paused_at,
        "paused_reason": schedule.paused_reason,
        "created_at": schedule.created_at,
        "state": schedule.state,
        "error": schedule.error and redact_text(schedule.error),
        "edits": redact(schedule.operator_changes()),
    }


def edits_note(schedule: Schedule) -> str | None:
    """A note that operators changed a schedule, with the values in its code or file."""
    changes = redact(schedule.operator_changes())
    if not changes:
        return None
    registered_values = ", ".join(
        f"{name} = {json.dumps(value)}" for name, value in changes.items()
    )
    return (
        f"since it was registered: its code or file says {registered_values}. It stays as it is "
        "until that changes; set the same here to undo the edit"
    )


def job_record(job: Job) -> dict[str, Any]:
    """A job with its policies, without its body."""
    return {
        "name": job.name,
        "executor": job.executor,
        "source": job.source,
        "queue": job.queue,
        "priority": job.priority,
        "timeout": job.timeout,
        "description": job.description,
        "tags": list(job.tags),
        "enabled": job.enabled,
        "error": job.error and redact_text(job.error),
        "version": job.version,
        "version_at": job.version_at,
        "args": job.signature.to_dict(),
        **job.policies(),
    }


def change_record(row: dict[str, Any]) -> dict[str, Any]:
    """One change of a schedule, with its definitions before and after."""
    return {**row, "before": decoded(row["before"]), "after": decoded(row["after"])}


def dropped_in_words(row: Mapping[str, Any]) -> str:
    """A sentence about the drop of a schedule: when, by which user and why."""
    reason = f": {row['reason']}" if row["reason"] else ""
    at = row["at"].isoformat(timespec="seconds")
    return f"schedule {row['name']!r} was dropped by {row['by']} at {at}{reason}"


def decoded(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
