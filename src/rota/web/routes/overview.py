"""The first screen: counts, what is wrong now, and the timeline."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import Query

from rota.model.duration import parse_instant
from rota.web.routing import Asked, Routes
from rota.web.shapes import State, Telling

routes = Routes("overview")

Moment = Annotated[
    str | None,
    Query(max_length=64, examples=["2026-03-01T12:00:00Z"], description="An instant."),
]
USUAL = timedelta(hours=1)


class ProblemNow(Telling):
    """`noun` and `name` say what it is about; `since` when it began, where that is known."""

    kind: Literal["dispatch", "workers", "broken", "stuck", "late", "waiting", "dead", "paused"]
    severity: Literal["error", "warning", "note"]
    noun: str
    name: str | None
    message: str
    since: datetime | None


class Overview(Telling):
    """`runs` that have not ended, by state, and those that ended since `since_at`. Nothing is
    counted further than `counted_to`."""

    now_at: datetime
    since_at: datetime
    counted_to: int
    runs: dict[str, int]
    schedules: dict[str, int]
    dispatch: str
    problems: list[ProblemNow]


class Brief(Telling):
    id: str
    job: str
    queue: str
    state: State
    schedule: str | None
    attempt: int
    due_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class Coming(Telling):
    """`seconds` is what the last runs of the job took; null if none has succeeded. `goes_on`: the
    schedule fires again in this stretch, more often than is told."""

    schedule: str
    job: str
    at: datetime
    seconds: float | None
    goes_on: bool


class Timeline(Telling):
    """`more_runs`: these are the latest of more than can be told. `more_across`: so many ended
    after this stretch that one which ran across its end may be missing."""

    now_at: datetime
    runs: list[Brief]
    more_runs: bool
    more_across: bool
    coming: list[Coming]
    more_coming: bool


@routes.get("/overview", Overview)
def overview(ask: Asked) -> Any:
    """Counts, switches, and what is wrong now, the worst first."""
    return {**ask.control.counts(), "problems": ask.control.problems()}


@routes.get("/timeline", Timeline)
def timeline(ask: Asked, since: Moment = None, until: Moment = None) -> Any:
    """Runs of a stretch of time, and what is to come in it. The hour before and after now if
    nothing is said; at most 31 days."""
    now = ask.control.now()
    begin = now - USUAL if since is None else parse_instant(since, "since")
    end = now + USUAL if until is None else parse_instant(until, "until")
    return ask.control.timeline(begin, end)
