"""Nouns as dictionaries with stable keys: what every surface shows of them."""

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
# How a run finds its slots is storage's own affair.
_INTERNAL = ("wanted_key",)


def run_record(run: Run) -> dict[str, Any]:
    """Every column people may see; JSON texts are decoded."""
    told = {one.name: getattr(run, one.name) for one in fields(run) if one.name not in _INTERNAL}
    for name in _JSON_TEXT:
        told[name] = decoded(told[name])
    return told


def schedule_record(schedule: Schedule) -> dict[str, Any]:
    """The definition, the operator's bits and the cursor.

    `next_fire_at` is null when nothing is planned: finished, or counted from the end of a run
    that is still on its way. `edits` is what is not as its code or file says, with what they say.
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
        "edits": redact(schedule.edits()),
    }


def edits_note(schedule: Schedule) -> str | None:
    """That a schedule is not as its code or file says, what they say, and how it gets back."""
    edits = redact(schedule.edits())
    if not edits:
        return None
    said = ", ".join(f"{name} = {json.dumps(value)}" for name, value in edits.items())
    return (
        f"since it was registered: its code or file says {said}. It stays as it is until that "
        "changes; set the same here to undo the edit"
    )


def job_record(job: Job) -> dict[str, Any]:
    """What it is and its policies; not its body."""
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
    """The change by which a schedule was dropped: when, by whom and why."""
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
