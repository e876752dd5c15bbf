"""Jobs: what there is to run."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rota.flow.enqueue import Options
from rota.model.limits import CONCURRENCY, KEY_LENGTH, PRIORITY
from rota.web.routes.nouns import JobOut, Made, tell_job
from rota.web.routing import Answer, Asked, Routes
from rota.web.shapes import AfterName, Asking, Limit, Page, PathName

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
    correlation_id: Key = None


class Trigger(Asking):
    """`force` runs it beside one that runs already."""

    args: dict[str, Any] | None = None
    force: bool = False


@routes.get("/jobs", Page[JobOut])
def list_jobs(ask: Asked, after: AfterName = "", limit: Limit = 100) -> Any:
    """Every job that some process registered, by name."""
    found = ask.control.job_page(after=after, limit=limit)
    items = [tell_job(job) for job in found]
    return {"items": items, "next": found[-1].name if len(found) == limit else None}


@routes.get("/jobs/{job:name}", JobOut)
def get_job(ask: Asked, job: PathName) -> Any:
    """One job with its policies and what arguments it takes."""
    return tell_job(ask.control.job(job))


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


def _made(made: Any) -> Answer:
    body = {"id": made.id, "created": made.created}
    return Answer(body=body, status=201, headers={"Location": f"/api/v1/runs/{made.id}"})
