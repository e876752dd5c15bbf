"""Jobs: what there is to run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field

from rota.flow.enqueue import Options
from rota.flow.explain import in_words
from rota.model.job import Job
from rota.model.limits import CONCURRENCY, KEY_LENGTH, PRIORITY
from rota.model.retry import MAX_ATTEMPTS
from rota.model.schedule import Schedule
from rota.web.routes.nouns import JobOut, Made, tell_job, tell_schedule
from rota.web.routing import Answer, Asked, Routes
from rota.web.shapes import AfterName, Asking, Limit, Name, Page, PathName, Telling

routes = Routes("jobs")

Key = Annotated[str | None, Field(min_length=1, max_length=KEY_LENGTH)]
Span = Annotated[str | None, Field(max_length=64, examples=["10m"])]


class NewRun(Asking):
    """`delay` or `at`, not both. `key`: a second request with it makes no second run."""

    args: dict[str, Any] = Field(default_factory=dict, examples=[{"to": "a@example.org"}])
    delay: Span = None
    at: Annotated[str | None, Field(max_length=64, examples=["2026-03-01T12:00:00Z"])] = None
    key: Key = None
    key_ttl: Span = None
    priority: Annotated[int | None, Field(ge=-PRIORITY, le=PRIORITY)] = None
    queue: Annotated[str | None, Field(max_length=128)] = None
    concurrency_key: Key = None
    concurrency_limit: Annotated[int | None, Field(ge=1, le=CONCURRENCY)] = None
    max_attempts: Annotated[int | None, Field(ge=1, le=MAX_ATTEMPTS)] = None
    timeout: Span = None
    correlation_id: Key = None


class Trigger(Asking):
    """`force` runs it beside one that runs already."""

    args: dict[str, Any] | None = None
    force: bool = False


class JobSchedule(Telling):
    name: str
    words: str
    status: str
    next_fire_at: datetime | None


class JobRow(JobOut):
    """`schedules`: the first few of its `schedule_count`."""

    schedule_count: int
    schedules: list[JobSchedule]


@routes.get("/jobs", Page[JobRow])
def list_jobs(
    ask: Asked,
    q: Annotated[
        str | None, Query(max_length=128, description="What its name or description holds.")
    ] = None,
    queue: Name | None = None,
    executor: Annotated[str | None, Query(max_length=64)] = None,
    status: Literal["enabled", "disabled", "broken", "retired"] | None = None,
    after: AfterName = "",
    limit: Limit = 100,
) -> Any:
    """Every job that some process registered, by name. Those whose files are gone are listed
    with `status=retired` alone."""
    found = ask.control.find_jobs(
        words=q, queue=queue, executor=executor, status=status, after=after, limit=limit
    )
    schedules = ask.control.schedules_of(found)
    good = ask.control.good_since(found)
    items = [_row(job, good[job.name], *schedules.get(job.name, (0, []))) for job in found]
    return {"items": items, "next": found[-1].name if len(found) == limit else None}


@routes.get("/jobs/{job:name}", JobOut)
def get_job(ask: Asked, job: PathName) -> Any:
    """One job with its policies and what arguments it takes."""
    found = ask.control.job(job)
    return tell_job(found, ask.control.good_since([found])[job])


@routes.post("/jobs/{job:name}/runs", Made, status_code=201)
def enqueue(ask: Asked, job: PathName, new: NewRun) -> Any:
    """Enqueue a run."""
    told = {name: value for name, value in new.model_dump().items() if value is not None}
    args = told.pop("args")
    made = ask.control.enqueue(job, args, Options(**told))
    return _made(made)


@routes.post("/jobs/{job:name}/trigger", Made, status_code=201)
def trigger_job(ask: Asked, job: PathName, trigger: Trigger) -> Any:
    """Run a job now, as if a schedule had fired."""
    return _made(ask.control.trigger_job(job, trigger.args, force=trigger.force))


def _row(
    job: Job, good_at: datetime | None, count: int, schedules: Sequence[Schedule]
) -> dict[str, Any]:
    some = [
        {
            "name": one["name"],
            "words": in_words(schedule),
            "status": one["status"],
            "next_fire_at": one["next_fire_at"],
        }
        for schedule, one in ((schedule, tell_schedule(schedule)) for schedule in schedules)
    ]
    return {**tell_job(job, good_at), "schedule_count": count, "schedules": some}


def _made(made: Any) -> Answer:
    body = {"id": made.id, "created": made.created}
    return Answer(body=body, status=201, headers={"Location": f"/api/v1/runs/{made.id}"})
