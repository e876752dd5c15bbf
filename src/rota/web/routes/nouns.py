"""What the document says of jobs, schedules and runs, and how each is told."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from rota.flow.control import Control
from rota.model.duration import format_duration
from rota.model.job import Job
from rota.model.records import job_record, run_record, schedule_record
from rota.model.run import Run
from rota.model.schedule import Schedule
from rota.web.shapes import State, Telling


class JobOut(Telling):
    """`error`: why its file, as it is now, cannot be used, since `version_at`; runs have the last
    good `version` then, of `good_at`, which is null if none was ever good."""

    name: str
    executor: str
    source: str
    queue: str
    priority: int
    timeout: str | None
    description: str
    tags: list[str]
    enabled: bool
    error: str | None
    version: str
    version_at: datetime | None
    good_at: datetime | None
    args: Any
    policies: dict[str, Any]


class ScheduleOut(Telling):
    """`waits_for_run`: the next time is counted from the end of a run that is on its way. `edits`:
    what is not as its code or file says, with what they say."""

    id: int
    name: str
    job: str
    kind: str
    expr: str
    timezone: str
    dst: str
    anchor: str
    first_run: str | None
    starts_at: str | None
    ends_at: str | None
    overlap: str
    overlap_key: str | None
    queue_max: int | None
    on_error: str
    pause_after: int | None
    catch_up: str
    catch_up_limit: int
    misfire_grace: str
    jitter: str
    spread: str
    args: Any
    priority: int | None
    retry: Any
    owner: str | None
    enabled: bool
    status: str
    next_fire_at: datetime | None
    waits_for_run: bool
    last_fired_at: datetime | None
    paused: bool
    paused_by: str | None
    paused_at: datetime | None
    paused_reason: str | None
    created_at: datetime | None
    state: str | None
    error: str | None
    edits: dict[str, Any]
    version: str


class RunOut(Telling):
    seq: int
    id: str
    job: str
    queue: str
    priority: int
    state: State
    due_at: datetime
    created_at: datetime
    queued_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    failures: int
    lost: int
    redo: int
    max_attempts: int
    timeout: str | None
    backoff: Any
    args: Any
    overlap_key: str | None
    concurrency_key: str | None
    concurrency_limit: int
    schedule_id: int | None
    schedule: str | None
    occurrence: datetime | None
    missed_count: int
    retry_of: str | None
    created_by: str | None
    worker_id: str | None
    lease_until: datetime | None
    error: str | None
    reason: str | None
    result: Any
    progress: Any
    cancel_requested_at: datetime | None
    pause_requested_at: datetime | None
    correlation_id: str | None
    trace: str | None


class Made(Telling):
    """`created` is false when the key named a run that was there."""

    id: str
    created: bool


def tell_job(job: Job, good_at: datetime | None) -> dict[str, Any]:
    told = job_record(job)
    policies = {name: told.pop(name) for name in job.policies()}
    told["timeout"] = None if job.timeout is None else format_duration(job.timeout)
    return {**told, "good_at": good_at, "policies": policies}


def tell_schedule(schedule: Schedule) -> dict[str, Any]:
    return {**schedule_record(schedule), "version": schedule.version}


def tell_run(run: Run, schedule: str | None = None) -> dict[str, Any]:
    told = run_record(run)
    told["timeout"] = None if run.timeout is None else format_duration(run.timeout)
    return {**told, "schedule": schedule}


def tell_runs(control: Control, runs: Iterable[Run]) -> list[dict[str, Any]]:
    """With the names of their schedules, asked for at once."""
    runs = list(runs)
    ids = {run.schedule_id for run in runs if run.schedule_id is not None}
    names = control.schedule_names(ids) if ids else {}
    return [tell_run(run, names.get(run.schedule_id or 0)) for run in runs]
