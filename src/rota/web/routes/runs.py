"""Runs: find them, count them, and do one thing to many."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from rota.flow.bulk import CANCEL, DELETE, PAUSE, REDO, RESUME
from rota.model.limits import COUNTED, PAGE
from rota.model.transitions import sources
from rota.web.routes.nouns import RunOut, tell_runs
from rota.web.routing import Asked, Routes
from rota.web.shapes import (
    WHOLE,
    Asking,
    Before,
    BodyName,
    Limit,
    Name,
    Page,
    Reason,
    State,
    Telling,
)

routes = Routes("runs")


class Count(Telling):
    """`more`: there are more than were counted."""

    count: int
    more: bool


class Many(Asking):
    """Which runs, and why. One page at a time: `before` is `next` of the answer before."""

    job: BodyName | None = None
    schedule: BodyName | None = None
    queue: BodyName | None = None
    group: Annotated[
        str | None, Field(pattern="^[0-9a-f]{16}$", description="One of GET /dead.")
    ] = None
    before: Annotated[int | None, Field(ge=1, le=WHOLE)] = None
    limit: Annotated[int, Field(ge=1, le=PAGE)] = 100
    reason: Reason = None
    latest: Annotated[bool, Field(description="For redo: with the files as they are now.")] = False


class ManyOpen(Many):
    state: Literal["waiting", "held", "queued", "running", "paused"]


class ManyRunnable(Many):
    state: Literal["waiting", "held", "queued", "running"]


class ManyPaused(Many):
    state: Literal["paused"]


class ManyEnded(Many):
    state: Literal["succeeded", "dead", "cancelled"] = Field(examples=["dead"])


class ManyIdle(Many):
    state: Literal["waiting", "held", "queued", "paused", "succeeded", "dead", "cancelled"] = Field(
        examples=["dead"]
    )


# By the one table of what is legal where.
STATES_OF: dict[str, type[Many]] = {
    CANCEL: ManyOpen, PAUSE: ManyRunnable, RESUME: ManyPaused, REDO: ManyEnded,
}  # fmt: skip
assert all(
    set(get_args(one.model_fields["state"].annotation)) == set(sources(verb))
    for verb, one in STATES_OF.items()
)


class BulkOut(Telling):
    """`left_out` runs changed meanwhile, or cannot be changed so; `problem` says why the first."""

    done: int
    left_out: int
    problem: str | None
    next: int | None


@routes.get("/runs", Page[RunOut])
def list_runs(
    ask: Asked,
    job: Name | None = None,
    schedule: Name | None = None,
    state: State | None = None,
    queue: Name | None = None,
    before: Before = None,
    limit: Limit = 50,
) -> Any:
    """Runs, newest first."""
    found = ask.control.runs(
        job=job, schedule=schedule, state=state, queue=queue, before=before, limit=limit
    )
    items = tell_runs(ask.control, found)
    return {"items": items, "next": found[-1].seq if len(found) == limit else None}


@routes.get("/runs/count", Count)
def count_runs(
    ask: Asked,
    state: State,
    job: Name | None = None,
    schedule: Name | None = None,
    queue: Name | None = None,
) -> Any:
    """How many runs a filter finds; no more than 10,000 are counted."""
    found = ask.control.count_runs(
        state, job=job, schedule=schedule, queue=queue, limit=COUNTED + 1
    )
    return {"count": min(found, COUNTED), "more": found > COUNTED}


def _bulk(ask: Asked, verb: str, state: str, many: Many) -> Any:
    done = ask.control.bulk(
        verb,
        state,
        job=many.job,
        schedule=many.schedule,
        queue=many.queue,
        group=many.group,
        before=many.before,
        limit=many.limit,
        reason=many.reason,
        latest=many.latest,
    )
    return {
        "done": done.done,
        "left_out": done.left_out,
        "problem": done.problem,
        "next": done.before,
    }


@routes.post("/runs/cancel", BulkOut)
def cancel_runs(ask: Asked, many: ManyOpen) -> Any:
    """Cancel the runs that a filter finds, a page at a time."""
    return _bulk(ask, CANCEL, many.state, many)


@routes.post("/runs/redo", BulkOut)
def redo_runs(ask: Asked, many: ManyEnded) -> Any:
    """Start over the runs that a filter finds, a page at a time."""
    return _bulk(ask, REDO, many.state, many)


@routes.post("/runs/delete", BulkOut)
def delete_runs(ask: Asked, many: ManyIdle) -> Any:
    """Delete the runs that a filter finds, a page at a time."""
    return _bulk(ask, DELETE, many.state, many)


@routes.post("/runs/pause", BulkOut)
def pause_runs(ask: Asked, many: ManyRunnable) -> Any:
    """Hold back the runs that a filter finds, a page at a time."""
    return _bulk(ask, PAUSE, many.state, many)


@routes.post("/runs/resume", BulkOut)
def resume_runs(ask: Asked, many: ManyPaused) -> Any:
    """Let the paused runs that a filter finds go on, a page at a time."""
    return _bulk(ask, RESUME, many.state, many)
