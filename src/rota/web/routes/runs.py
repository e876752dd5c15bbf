"""Runs: find them, count them, and do one thing to many."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from rota.flow.bulk import CANCEL, DELETE, PAUSE, REDO, RESUME
from rota.model.limits import COUNTED, PAGE
from rota.web.models import (
    WHOLE,
    Before,
    GroupId,
    Limit,
    Name,
    Page,
    Reason,
    RequestModel,
    ResponseModel,
    RunOut,
    State,
    runs_out,
)
from rota.web.routing import Ask


class RunsQuery(RequestModel):
    job: Name | UnsetType = UNSET
    schedule: Name | UnsetType = UNSET
    state: State | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    before: Before | UnsetType = UNSET
    limit: Limit = 50


class CountQuery(RequestModel):
    state: State
    job: Name | UnsetType = UNSET
    schedule: Name | UnsetType = UNSET
    queue: Name | UnsetType = UNSET


class Count(ResponseModel):
    """`more`: there are more than were counted."""

    count: int
    more: bool


class Many(RequestModel):
    """Which runs, and why. One page at a time: `before` is `next` of the answer before."""

    job: Name | None = None
    schedule: Name | None = None
    queue: Name | None = None
    group: GroupId | None = None
    before: Annotated[int, Meta(ge=1, le=WHOLE)] | None = None
    limit: Annotated[int, Meta(ge=1, le=PAGE)] = 100
    reason: Reason | None = None
    latest: Annotated[bool, Meta(description="For redo: with the files as they are now.")] = False


class ManyOpen(Many):
    state: Literal["waiting", "held", "queued", "running", "paused"]


class ManyRunnable(Many):
    state: Literal["waiting", "held", "queued", "running"]


class ManyPaused(Many):
    state: Literal["paused"]


class ManyEnded(Many):
    state: Annotated[Literal["succeeded", "dead", "cancelled"], Meta(examples=["dead"])]


class ManyIdle(Many):
    state: Annotated[
        Literal["waiting", "held", "queued", "paused", "succeeded", "dead", "cancelled"],
        Meta(examples=["dead"]),
    ]


class BulkOut(ResponseModel):
    """`left_out` runs changed meanwhile, or cannot be changed so; `problem` says why the first."""

    done: int
    left_out: int
    problem: str | None
    next: int | None


def list_runs(ask: Ask, query: RunsQuery) -> Page[RunOut]:
    """Runs, newest first."""
    runs = ask.control.runs(**query.given())
    items = runs_out(ask.control, runs)
    return Page(items=items, next=runs[-1].seq if len(runs) == query.limit else None)


def count_runs(ask: Ask, query: CountQuery) -> Count:
    """How many runs a filter finds; no more than 10,000 are counted."""
    count = ask.control.count_runs(**query.given(), limit=COUNTED + 1)
    return Count(count=min(count, COUNTED), more=count > COUNTED)


def cancel_runs(ask: Ask, body: ManyOpen) -> BulkOut:
    """Cancel the runs that a filter finds, a page at a time."""
    return _bulk(ask, CANCEL, body)


def redo_runs(ask: Ask, body: ManyEnded) -> BulkOut:
    """Start over the runs that a filter finds, a page at a time."""
    return _bulk(ask, REDO, body)


def delete_runs(ask: Ask, body: ManyIdle) -> BulkOut:
    """Delete the runs that a filter finds, a page at a time."""
    return _bulk(ask, DELETE, body)


def pause_runs(ask: Ask, body: ManyRunnable) -> BulkOut:
    """Hold back the runs that a filter finds, a page at a time."""
    return _bulk(ask, PAUSE, body)


def resume_runs(ask: Ask, body: ManyPaused) -> BulkOut:
    """Let the paused runs that a filter finds go on, a page at a time."""
    return _bulk(ask, RESUME, body)


def _bulk(ask: Ask, verb: str, body: Many) -> BulkOut:
    done = ask.control.bulk(verb, **body.given())
    return BulkOut(done=done.done, left_out=done.left_out, problem=done.problem, next=done.before)
