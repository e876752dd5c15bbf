"""What charts are drawn from."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Query

from rota.flow.charts import BUCKETS, DURATIONS
from rota.model.duration import parse_instant
from rota.web.routes.overview import Moment
from rota.web.routing import Asked, Routes
from rota.web.shapes import PathName, State, Telling

routes = Routes("overview")

Buckets = Annotated[int, Query(ge=1, le=BUCKETS, description="How many parts the time has.")]


class Lag(Telling):
    """Seconds from an occurrence to its run, over the `of` newest runs of schedules."""

    of: int
    p50: float | None
    p95: float | None
    longest: float | None


class Slots(Telling):
    """Of the workers that are alive."""

    workers: int
    slots: int
    running: int
    stuck: int


class Activity(Telling):
    """`ended` has a count for each bucket of `seconds`, by state: exact, all that ended."""

    now_at: datetime
    since_at: datetime
    seconds: float
    ended: dict[str, list[int]]
    fire_lag: Lag
    slots: Slots


class Cell(Telling):
    """`at` is the number of the bucket, `seconds` what its runs took together."""

    at: int
    succeeded: int
    dead: int
    cancelled: int
    seconds: float


class JobCells(Telling):
    job: str
    cells: list[Cell]


class Density(Telling):
    """`more`: there are more cells than are told."""

    since_at: datetime
    seconds: float
    jobs: list[JobCells]
    more: bool


class Duration(Telling):
    id: str
    state: State
    occurrence: datetime | None
    due_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    seconds: float | None


class Durations(Telling):
    """`p50` and `p95` are of those that succeeded, in seconds."""

    runs: list[Duration]
    p50: float | None
    p95: float | None


@routes.get("/activity", Activity)
def activity(
    ask: Asked,
    minutes: Annotated[int, Query(ge=1, le=31 * 24 * 60)] = 60,
    buckets: Buckets = 60,
) -> Any:
    """How many runs ended when, how late fires are, and how many slots are in use."""
    return ask.control.activity(timedelta(minutes=minutes), buckets=buckets)


@routes.get("/timeline/density", Density)
def density(ask: Asked, since: Moment = None, until: Moment = None, buckets: Buckets = 120) -> Any:
    """How many runs of each job ended in each part of a stretch of time: for stretches with more
    runs than a timeline can tell one by one. At most 31 days."""
    now = ask.control.now()
    begin = now - timedelta(hours=1) if since is None else parse_instant(since, "since")
    end = now if until is None else parse_instant(until, "until")
    return ask.control.density(begin, end, buckets=buckets)


@routes.get("/schedules/{schedule:name}/durations", Durations)
def list_durations(
    ask: Asked, schedule: PathName, limit: Annotated[int, Query(ge=1, le=DURATIONS)] = 200
) -> Any:
    """What its latest runs took, the newest first."""
    return ask.control.durations(schedule, limit=limit)
