"""Schedules: list, create, and try out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from rota.errors import Invalid, Unknown
from rota.flow.control import Control
from rota.flow.explain import Coming, coming, in_words
from rota.flow.look import OUTCOMES
from rota.model.limits import KEY_LENGTH
from rota.model.options import (
    default_of,
    kind_of,
    make_schedule,
    named,
    retry_policy_of,
    split_retry,
    timing_of,
)
from rota.model.retry import Retry
from rota.model.schedule import OPTIONS, Schedule
from rota.web.models import (
    Instant,
    Limit,
    Maybe,
    Moment,
    Name,
    Page,
    RequestModel,
    ResponseModel,
    Span,
    State,
)
from rota.web.option_models import (
    Attempts,
    OptionOut,
    ScheduleOut,
    ShortText,
    option_out,
    requested,
    schedule_fields,
)
from rota.web.routing import Answer, Ask

PREVIEWED = 10
NAME_LENGTH = 128


class SchedulesQuery(RequestModel):
    q: (
        Annotated[str, Meta(max_length=NAME_LENGTH, description="What its name or its job holds.")]
        | UnsetType
    ) = UNSET
    job: Name | UnsetType = UNSET
    status: Literal["ACTIVE", "PAUSED", "DISABLED", "FINISHED", "BROKEN"] | UnsetType = UNSET
    sort: Annotated[
        Literal["name", "next", "last"],
        Meta(description="By name, the next to fire first, or the last fired first."),
    ] = "name"
    after: Annotated[str, Meta(max_length=KEY_LENGTH, description="`next` of the page before.")] = (
        ""
    )
    recent: Annotated[
        int, Meta(ge=0, le=OUTCOMES, description="How many of the last outcomes to tell.")
    ] = 0
    limit: Limit = 50


class Timing(RequestModel, absent=requested(it for it in OPTIONS.values() if it.moves_cursor)):
    """One of `cron`, `every` and `at`. What is null has its default."""

    cron: Maybe[Annotated[ShortText, Meta(examples=["0 3 * * *"])]] = UNSET
    every: Maybe[Span] = UNSET
    at: Maybe[Moment] = UNSET


class Edit(Timing, absent=requested(it for it in OPTIONS.values() if not it.moves_cursor)):
    """What is not named stays as it is. `retry` has the options of retries together."""

    max_attempts: Maybe[Attempts] = UNSET
    backoff: Maybe[ShortText] = UNSET
    delay: Maybe[Span] = UNSET
    max_delay: Maybe[Span] = UNSET
    retry_jitter: Maybe[Span] = UNSET
    job: Maybe[Annotated[str, Meta(max_length=NAME_LENGTH)]] = UNSET


class NewSchedule(Edit):
    """A schedule of a job that exists. SQL of its own: POST /sql, CREATE SCHEDULE … AS."""

    name: Annotated[Name, Meta(examples=["nightly"])]
    job: Annotated[Name, Meta(examples=["rollup"])]


class Outcome(ResponseModel):
    """One occurrence, or a stretch of `count` of them; `state` is that of its run."""

    occurrence: Instant
    last_occurrence: Instant
    count: int | None
    outcome: str
    reason: str | None
    run_id: str | None
    state: State | None
    started_at: Instant | None
    finished_at: Instant | None


class ScheduleRow(ScheduleOut):
    """`words` says its timing in English, `running` is how many of its runs workers have; `recent`
    what became of its last occurrences, newest first, if `recent` was asked for."""

    words: str
    running: int
    recent: list[Outcome] | None


class ComingOut(ResponseModel):
    at: Instant
    note: str | None


class Next(ResponseModel):
    words: str
    coming: list[ComingOut]


def list_schedules(ask: Ask, query: SchedulesQuery) -> Page[ScheduleRow]:
    """Schedules, by name if nothing is said."""
    filters = query.given()
    recent = filters.pop("recent")
    schedules, following = ask.control.find_schedules(words=filters.pop("q", None), **filters)
    running = ask.control.running_by_schedule()
    outcomes = ask.control.recent_outcomes(schedules, limit=recent) if recent else {}
    items = [
        ScheduleRow(
            **schedule_fields(schedule),
            words=in_words(schedule),
            running=running.get(schedule.id, 0),
            recent=[Outcome(**row) for row in outcomes.get(schedule.id, [])] if recent else None,
        )
        for schedule in schedules
    ]
    return Page(items=items, next=following)


def list_options(ask: Ask) -> Page[OptionOut]:
    """The options of schedules: their values, defaults and meaning."""
    return Page(items=[option_out(option) for option in OPTIONS.values()], next=None)


def create_schedule(ask: Ask, body: NewSchedule) -> Answer[ScheduleOut]:
    """Create a schedule; 409 if the name is taken."""
    options = body.given(nulls=False)
    schedule = _make(ask, options.pop("name"), options.pop("job"), options)
    try:
        saved = ask.control.put_schedule(schedule, new=True)
    except Unknown as fault:  # its job: the schedule itself is what is to be made
        raise Invalid(str(fault)) from None
    return answer(saved)


def next_times(ask: Ask, body: Timing) -> Next:
    """What a timing means in words, and when it would fire; nothing is saved."""
    now = ask.control.now()
    schedule = _make(ask, "next", "next", body.given(nulls=False))
    schedule = replace(schedule, next_fire_at=schedule.first_fire(now))
    times = coming(schedule, now, PREVIEWED)
    return Next(words=in_words(schedule), coming=coming_out(times))


def answer(schedule: Schedule) -> Answer[ScheduleOut]:
    headers = {"ETag": f'"{schedule.version}"'}
    return Answer(body=ScheduleOut(**schedule_fields(schedule)), headers=headers)


def coming_out(times: Iterable[Coming]) -> list[ComingOut]:
    return [ComingOut(at=time.at, note=time.note) for time in times]


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
