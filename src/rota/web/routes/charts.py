"""What charts are drawn from."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.flow.charts import BUCKETS, DURATIONS
from rota.web.models import Instant, Moment, PathName, RequestModel, ResponseModel, State
from rota.web.routes.overview import instant
from rota.web.routing import Ask

Buckets = Annotated[int, Meta(ge=1, le=BUCKETS, description="How many parts the time has.")]


class ActivityQuery(RequestModel):
    minutes: Annotated[int, Meta(ge=1, le=31 * 24 * 60)] = 60
    buckets: Buckets = 60


class DensityQuery(RequestModel):
    since: Moment | UnsetType = UNSET
    until: Moment | UnsetType = UNSET
    buckets: Buckets = 120


class DurationsQuery(RequestModel):
    limit: Annotated[int, Meta(ge=1, le=DURATIONS)] = 200


class Lag(ResponseModel):
    """Seconds from an occurrence to its run, over the `of` newest runs of schedules."""

    of: int
    p50: float | None
    p95: float | None
    longest: float | None


class Slots(ResponseModel):
    """Of the workers that are alive."""

    workers: int
    slots: int
    running: int
    stuck: int


class Activity(ResponseModel):
    """`ended` has a count for each bucket of `seconds`, by state: exact, all that ended."""

    now_at: Instant
    since_at: Instant
    seconds: float
    ended: dict[str, list[int]]
    fire_lag: Lag
    slots: Slots


class Cell(ResponseModel):
    """`at` is the number of the bucket, `seconds` what its runs took together."""

    at: int
    succeeded: int
    dead: int
    cancelled: int
    seconds: float


class JobCells(ResponseModel):
    job: str
    cells: list[Cell]


class Density(ResponseModel):
    """`more`: there are more cells than are told."""

    since_at: Instant
    seconds: float
    jobs: list[JobCells]
    more: bool


class Duration(ResponseModel):
    id: str
    state: State
    occurrence: Instant | None
    due_at: Instant
    started_at: Instant | None
    finished_at: Instant | None
    attempt: int
    seconds: float | None


class Durations(ResponseModel):
    """`p50` and `p95` are of those that succeeded, in seconds."""

    runs: list[Duration]
    p50: float | None
    p95: float | None


def activity(ask: Ask, query: ActivityQuery) -> Activity:
    """How many runs ended when, how late fires are, and how many slots are in use."""
    chart = ask.control.activity(timedelta(minutes=query.minutes), buckets=query.buckets)
    return msgspec.convert(chart, Activity)


def density(ask: Ask, query: DensityQuery) -> Density:
    """How many runs of each job ended in each part of a stretch of time: for stretches with more
    runs than a timeline can tell one by one. At most 31 days."""
    now = ask.control.now()
    begin = instant(query.since, "since", now - timedelta(hours=1))
    end = instant(query.until, "until", now)
    return msgspec.convert(ask.control.density(begin, end, buckets=query.buckets), Density)


def list_durations(ask: Ask, schedule: PathName, query: DurationsQuery) -> Durations:
    """What its latest runs took, the newest first."""
    return msgspec.convert(ask.control.durations(schedule, limit=query.limit), Durations)
