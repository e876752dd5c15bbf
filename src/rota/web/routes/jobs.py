"""Jobs: what there is to run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from rota.flow.enqueue import Options
from rota.flow.explain import in_words
from rota.model.job import Job
from rota.model.limits import CONCURRENCY, KEY_LENGTH, PRIORITY
from rota.model.records import schedule_record
from rota.model.retry import MAX_ATTEMPTS
from rota.model.run import Enqueued
from rota.model.schedule import Schedule
from rota.web.models import (
    AfterName,
    Instant,
    JobOut,
    Limit,
    Made,
    Moment,
    Name,
    Page,
    PathName,
    RequestModel,
    ResponseModel,
    Span,
    job_fields,
)
from rota.web.routing import Answer, Ask

Key = Annotated[str, Meta(min_length=1, max_length=KEY_LENGTH)]


class JobsQuery(RequestModel):
    q: (
        Annotated[str, Meta(max_length=128, description="What its name or description holds.")]
        | UnsetType
    ) = UNSET
    queue: Name | UnsetType = UNSET
    executor: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    status: Literal["enabled", "disabled", "broken", "retired"] | UnsetType = UNSET
    after: AfterName = ""
    limit: Limit = 100


class NewRun(RequestModel):
    """`delay` or `at`, not both. `key`: a second request with it makes no second run."""

    args: Annotated[dict[str, Any], Meta(examples=[{"to": "a@example.org"}])] | UnsetType = UNSET
    delay: Span | None = None
    at: Moment | None = None
    key: Key | None = None
    key_ttl: Span | None = None
    priority: Annotated[int, Meta(ge=-PRIORITY, le=PRIORITY)] | None = None
    queue: Annotated[str, Meta(max_length=128)] | None = None
    concurrency_key: Key | None = None
    concurrency_limit: Annotated[int, Meta(ge=1, le=CONCURRENCY)] | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] | None = None
    timeout: Span | None = None
    correlation_id: Key | None = None


class Trigger(RequestModel):
    """`force` runs it beside one that runs already."""

    args: dict[str, Any] | None = None
    force: bool = False


class JobSchedule(ResponseModel):
    name: str
    words: str
    status: str
    next_fire_at: Instant | None


class JobRow(JobOut):
    """`schedules`: the first few of its `schedule_count`."""

    schedule_count: int
    schedules: list[JobSchedule]


def list_jobs(ask: Ask, query: JobsQuery) -> Page[JobRow]:
    """Every job that some process registered, by name. Those whose files are gone are listed
    with `status=retired` alone."""
    filters = query.given()
    jobs = ask.control.find_jobs(words=filters.pop("q", None), **filters)
    schedules = ask.control.schedules_of(jobs)
    good = ask.control.good_since(jobs)
    items = [_row(job, good[job.name], *schedules.get(job.name, (0, []))) for job in jobs]
    return Page(items=items, next=jobs[-1].name if len(jobs) == query.limit else None)


def get_job(ask: Ask, job: PathName) -> JobOut:
    """One job with its policies and what arguments it takes."""
    stored = ask.control.job(job)
    return JobOut(**job_fields(stored, ask.control.good_since([stored])[job]))


def enqueue(ask: Ask, job: PathName, body: NewRun) -> Answer[Made]:
    """Enqueue a run."""
    options = body.given(nulls=False)
    return made(ask.control.enqueue(job, options.pop("args", {}), Options(**options)))


def trigger_job(ask: Ask, job: PathName, body: Trigger) -> Answer[Made]:
    """Run a job now, as if a schedule had fired."""
    return made(ask.control.trigger_job(job, body.args, force=body.force))


def made(run: Enqueued) -> Answer[Made]:
    headers = {"Location": f"/api/v1/runs/{run.id}"}
    return Answer(body=Made(id=run.id, created=run.created), headers=headers)


def _row(job: Job, good_at: datetime | None, count: int, schedules: Sequence[Schedule]) -> JobRow:
    some = [
        JobSchedule(
            name=schedule.name,
            words=in_words(schedule),
            status=schedule.status,
            next_fire_at=schedule_record(schedule)["next_fire_at"],
        )
        for schedule in schedules
    ]
    return JobRow(**job_fields(job, good_at), schedule_count=count, schedules=some)
