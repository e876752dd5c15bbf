"""The first screen: counts, what is wrong now, and the timeline."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from rota.model.duration import parse_instant
from rota.web.models import Instant, Moment, RequestModel, ResponseModel, State
from rota.web.routing import Ask

USUAL = timedelta(hours=1)


class TimelineQuery(RequestModel):
    since: Moment | UnsetType = UNSET
    until: Moment | UnsetType = UNSET


class ProblemNow(ResponseModel):
    """`noun` and `name` say what it is about; `since` when it began, where that is known."""

    kind: Literal["dispatch", "workers", "broken", "stuck", "late", "waiting", "dead", "paused"]
    severity: Literal["error", "warning", "note"]
    noun: str
    name: str | None
    message: str
    since: Instant | None


class Overview(ResponseModel):
    """`runs` that have not ended, by state, and those that ended since `since_at`. Nothing is
    counted further than `counted_to`."""

    now_at: Instant
    since_at: Instant
    counted_to: int
    runs: dict[str, int]
    schedules: dict[str, int]
    dispatch: str
    problems: list[ProblemNow]


class Brief(ResponseModel):
    id: str
    job: str
    queue: str
    state: State
    schedule: str | None
    attempt: int
    due_at: Instant
    started_at: Instant | None
    finished_at: Instant | None


class Coming(ResponseModel):
    """`seconds` is what the last runs of the job took; null if none has succeeded. `goes_on`: the
    schedule fires again in this stretch, more often than is told."""

    schedule: str
    job: str
    at: Instant
    seconds: float | None
    goes_on: bool


class Timeline(ResponseModel):
    """`more_runs`: these are the latest of more than can be told. `more_across`: so many ended
    after this stretch that one which ran across its end may be missing."""

    now_at: Instant
    runs: list[Brief]
    more_runs: bool
    more_across: bool
    coming: list[Coming]
    more_coming: bool


def overview(ask: Ask) -> Overview:
    """Counts, switches, and what is wrong now, the worst first."""
    return msgspec.convert({**ask.control.counts(), "problems": ask.control.problems()}, Overview)


def timeline(ask: Ask, query: TimelineQuery) -> Timeline:
    """Runs of a stretch of time, and what is to come in it. The hour before and after now if
    nothing is said; at most 31 days."""
    now = ask.control.now()
    begin = instant(query.since, "since", now - USUAL)
    end = instant(query.until, "until", now + USUAL)
    return msgspec.convert(ask.control.timeline(begin, end), Timeline)


def instant(text: str | UnsetType, name: str, default: datetime) -> datetime:
    return default if text is UNSET else parse_instant(text, name)
