"""Schedules: list, create, and try out."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field

from rota.errors import Invalid, Unknown
from rota.flow.control import Control
from rota.flow.explain import coming, in_words
from rota.flow.look import OUTCOMES
from rota.model.limits import KEY_LENGTH, PRIORITY
from rota.model.options import (
    default_of,
    kind_of,
    make_schedule,
    named,
    retry_policy_of,
    split_retry,
    timing_of,
)
from rota.model.retry import MAX_ATTEMPTS, Retry
from rota.model.schedule import CATCH_UP_LIMIT, QUEUE_MAX, Schedule
from rota.web.routes.nouns import ScheduleOut, tell_schedule
from rota.web.routing import Answer, Ask, Asked, Routes
from rota.web.shapes import Asking, BodyName, Limit, Name, Page, State, Telling

routes = Routes("schedules")

Text = Annotated[str | None, Field(max_length=KEY_LENGTH)]
Span = Annotated[str | None, Field(max_length=64, examples=["5m"])]
Moment = Annotated[str | None, Field(max_length=64, examples=["2026-03-01T12:00:00Z"])]
PREVIEWED = 10
NAME_LENGTH = 128


class Retries(Asking):
    """What is null is as the job has it."""

    max_attempts: Annotated[int | None, Field(ge=1, le=MAX_ATTEMPTS)] = None
    backoff: Text = None
    delay: Span = None
    max_delay: Span = None
    retry_jitter: Span = None


class RetryIn(Retries):
    """The same options together; `jitter` is `retry_jitter`."""

    jitter: Span = None


class Timing(Asking):
    """One of `cron`, `every` and `at`. What is null has its default."""

    cron: Annotated[str | None, Field(max_length=KEY_LENGTH, examples=["0 3 * * *"])] = None
    every: Span = None
    at: Moment = None
    timezone: Annotated[str | None, Field(max_length=64, examples=["Europe/Berlin"])] = None
    dst: Literal["vixie", "literal", "skip_once"] | None = None
    anchor: Literal["rate", "delay"] | None = None
    first_run: Moment = None
    starts_at: Moment = None
    ends_at: Moment = None


class Edit(Retries, Timing):
    """What is not named stays as it is."""

    job: Annotated[str | None, Field(max_length=128)] = None
    overlap: Text = None
    overlap_key: Text = None
    queue_max: Annotated[int | None, Field(ge=0, le=QUEUE_MAX)] = None
    on_error: Text = None
    pause_after: Annotated[int | None, Field(ge=1, le=1_000)] = None
    catch_up: Literal["one", "none", "all"] | None = None
    catch_up_limit: Annotated[int | None, Field(ge=1, le=CATCH_UP_LIMIT)] = None
    misfire_grace: Span = None
    jitter: Span = None
    spread: Span = None
    args: dict[str, Any] | None = None
    priority: Annotated[int | None, Field(ge=-PRIORITY, le=PRIORITY)] = None
    retry: RetryIn | None = None
    owner: Text = None
    enabled: bool | None = None


class NewSchedule(Edit):
    """A schedule of a job that exists. SQL of its own: POST /sql, CREATE SCHEDULE … AS."""

    name: BodyName = Field(examples=["nightly"])
    job: BodyName = Field(examples=["rollup"])


class Outcome(Telling):
    """One occurrence, or a stretch of `count` of them; `state` is that of its run."""

    occurrence: datetime
    last_occurrence: datetime
    count: int | None
    outcome: str
    reason: str | None
    run_id: str | None
    state: State | None
    started_at: datetime | None
    finished_at: datetime | None


class ScheduleRow(ScheduleOut):
    """`words` says its timing in English, `running` is how many of its runs workers have; `recent`
    what became of its last occurrences, newest first, if `recent` was asked for."""

    words: str
    running: int
    recent: list[Outcome] | None


class ComingOut(Telling):
    at: datetime
    note: str | None


class Next(Telling):
    words: str
    coming: list[ComingOut]


@routes.get("/schedules", Page[ScheduleRow])
def list_schedules(
    ask: Asked,
    q: Annotated[
        str | None, Query(max_length=NAME_LENGTH, description="What its name or its job holds.")
    ] = None,
    job: Name | None = None,
    status: Literal["ACTIVE", "PAUSED", "DISABLED", "FINISHED", "BROKEN"] | None = None,
    sort: Annotated[
        Literal["name", "next", "last"],
        Query(description="By name, the next to fire first, or the last fired first."),
    ] = "name",
    after: Annotated[
        str, Query(max_length=KEY_LENGTH, description="`next` of the page before.")
    ] = "",
    recent: Annotated[
        int, Query(ge=0, le=OUTCOMES, description="How many of the last outcomes to tell.")
    ] = 0,
    limit: Limit = 50,
) -> Any:
    """Schedules, by name if nothing is said."""
    found, following = ask.control.find_schedules(
        words=q, job=job, status=status, sort=sort, after=after, limit=limit
    )
    running = ask.control.running_by_schedule()
    outcomes = ask.control.recent_outcomes(found, limit=recent) if recent else {}
    items = [
        {
            **tell_schedule(one),
            "words": in_words(one),
            "running": running.get(one.id, 0),
            "recent": outcomes.get(one.id, []) if recent else None,
        }
        for one in found
    ]
    return {"items": items, "next": following}


@routes.post("/schedules", ScheduleOut, status_code=201)
def create_schedule(ask: Asked, new: NewSchedule) -> Any:
    """Create a schedule; 409 if the name is taken."""
    told = new.model_dump(exclude_none=True)
    name, job = told.pop("name"), told.pop("job")
    wanted = _make(ask, name, job, told)
    try:
        saved = ask.control.put_schedule(wanted, new=True)
    except Unknown as fault:  # its job: the schedule itself is what is to be made
        raise Invalid(str(fault)) from None
    return answer(saved, status=201)


@routes.post("/next", Next)
def next_times(ask: Asked, timing: Timing) -> Any:
    """What a timing means in words, and when it would fire; nothing is saved."""
    now = ask.control.now()
    wanted = _make(ask, "next", "next", timing.model_dump(exclude_none=True))
    wanted = replace(wanted, next_fire_at=wanted.first_fire(now))
    times = list(coming(wanted, now, PREVIEWED))
    return {
        "words": in_words(wanted),
        "coming": [{"at": one.at, "note": one.note} for one in times],
    }


def answer(schedule: Schedule, status: int = 200) -> Answer:
    headers = {"ETag": f'"{schedule.version}"'}
    return Answer(body=tell_schedule(schedule), status=status, headers=headers)


def _make(ask: Ask, name: str, job: str, told: dict[str, Any]) -> Schedule:
    with named(f"schedule {name!r}"):
        timing = timing_of(told.pop("cron", None), told.pop("every", None), told.pop("at", None))
        if timing is None:
            raise Invalid("say when: cron, every or at")
        of_job = _retry_of(ask.control, job) if split_retry(told)[1] else None
    told.setdefault("timezone", ask.app.settings.timezone)
    told.setdefault("owner", ask.who.name)
    return make_schedule(name, job, timing, told, of_job)


def _retry_of(control: Control, job: str) -> Retry:
    try:
        return control.job(job).retry
    except Unknown as fault:
        raise Invalid(str(fault)) from None


def change(ask: Ask, before: Schedule, told: dict[str, Any]) -> Schedule:
    """The schedule with what is told; null means the default."""
    timing = {name: told.pop(name) for name in ("cron", "every", "at") if name in told}
    given = timing_of(*(timing.get(name) for name in ("cron", "every", "at")))
    told, retry = split_retry(told)
    job = told.pop("job", None) or before.job
    zone = ask.app.settings.timezone
    new: dict[str, Any] = {
        name: default_of(name, zone) if value is None else value for name, value in told.items()
    }
    if given is not None:
        new["kind"], new["expr"] = kind_of(**given)
    if retry:
        kept = None if "retry" in told else before.retry
        new["retry"] = retry_policy_of(retry, _retry_of(ask.control, job), kept)
    return replace(before, job=job, **new)
