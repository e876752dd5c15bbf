"""One schedule: look at it, edit it, operate it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from rota.errors import Invalid, Unknown
from rota.model.limits import KEY_LENGTH, PAGE
from rota.model.records import change_record
from rota.web.models import (
    Instant,
    Limit,
    Made,
    Moment,
    Page,
    Page50Query,
    PathName,
    RequestModel,
    ResponseModel,
    Why,
    WhyQuery,
)
from rota.web.option_models import ScheduleOut
from rota.web.routes.jobs import Trigger, made
from rota.web.routes.schedules import ComingOut, Edit, answer, change, coming_out
from rota.web.routing import Answer, Ask


class IfMatch(RequestModel, rename="kebab"):
    if_match: Annotated[
        str,
        Meta(
            max_length=KEY_LENGTH,
            description="The ETag that was read, or * for whatever it is now.",
            examples=['"9f2c41d07a3be85c"', "*"],
        ),
    ]


class Resume(Why):
    """`catch_up` makes up for what was missed while it was paused."""

    catch_up: Literal["none", "one", "all"] | None = None


class ExplainQuery(RequestModel):
    count: Annotated[int, Meta(ge=1, le=PAGE)] = 5


class WhenQuery(RequestModel):
    at: Moment | UnsetType = UNSET


class OccurrencesQuery(RequestModel):
    before: (
        Annotated[str, Meta(max_length=64, description="`next` of the page before.")] | UnsetType
    ) = UNSET
    limit: Limit = 50


class ExplanationOut(ResponseModel):
    """`reasons` is empty when nothing keeps the schedule and its runs from going on."""

    schedule: str
    words: str
    coming: list[ComingOut]
    reasons: list[str]


class WhyOut(ResponseModel):
    told: str


class Occurrence(ResponseModel):
    schedule_id: int
    occurrence: Instant
    last_occurrence: Instant
    count: int | None
    outcome: str
    reason: str | None
    run_id: str | None
    recorded_at: Instant


class Change(ResponseModel):
    id: int
    schedule_id: int
    name: str
    at: Instant
    by: str | None
    action: str
    reason: str | None
    before: Any
    after: Any


def get_schedule(ask: Ask, schedule: PathName) -> Answer[ScheduleOut]:
    """One schedule. Its ETag is its version: who edits it sends that back."""
    return answer(ask.control.schedule(schedule))


def edit_schedule(
    ask: Ask, schedule: PathName, headers: IfMatch, body: Edit
) -> Answer[ScheduleOut]:
    """Change what is named. Runs that are made already are not touched; the next time is found
    anew only if the timing changes."""
    tag = headers.if_match.strip()
    version = None if tag == "*" else tag.removeprefix("W/").strip('"')
    before = ask.control.schedule(schedule)
    changed = change(ask, before, body.given())
    try:
        return answer(ask.control.put_schedule(changed, version=version or before.version))
    except Unknown as fault:
        ask.control.schedule(schedule)  # it may have gone; else it is the job that is not there
        raise Invalid(str(fault)) from None


def drop_schedule(ask: Ask, schedule: PathName, query: WhyQuery) -> None:
    """Remove a schedule; its history and the runs it made stay."""
    ask.control.drop(schedule, **query.given())


def pause_schedule(ask: Ask, schedule: PathName, body: Why) -> Answer[ScheduleOut]:
    """Stop its fires; runs already made go on."""
    return answer(ask.control.pause(schedule, body.reason))


def resume_schedule(ask: Ask, schedule: PathName, body: Resume) -> Answer[ScheduleOut]:
    """Fire again from now on."""
    return answer(ask.control.resume(schedule, body.reason, catch_up=body.catch_up))


def trigger_schedule(ask: Ask, schedule: PathName, body: Trigger) -> Answer[Made]:
    """Make a run now; the next time stays as it is."""
    ask.control.schedule(schedule)  # a job of that name is another thing
    return made(ask.control.trigger(schedule, body.args, force=body.force))


def explain_schedule(ask: Ask, schedule: PathName, query: ExplainQuery) -> ExplanationOut:
    """The schedule in words, its next times, and what keeps it from running now."""
    explanation = ask.control.explain(schedule, count=query.count)
    return ExplanationOut(
        schedule=explanation.schedule.name,
        words=explanation.words,
        coming=coming_out(explanation.coming),
        reasons=explanation.reasons,
    )


def why_schedule(ask: Ask, schedule: PathName, query: WhenQuery) -> WhyOut:
    """What became of the occurrence at an instant; now if none is named."""
    moment = ask.control.now() if query.at is UNSET else query.at
    try:
        return WhyOut(told=ask.control.why(schedule, moment))
    except OverflowError:
        raise Invalid(f"at {query.at!r} is too far away") from None


def list_occurrences(ask: Ask, schedule: PathName, query: OccurrencesQuery) -> Page[Occurrence]:
    """What became of every instant that was due, newest first."""
    rows = ask.control.occurrences(schedule, **query.given())
    last = rows[-1]["occurrence"].isoformat() if len(rows) == query.limit else None
    return Page(items=[Occurrence(**row) for row in rows], next=last)


def list_changes(ask: Ask, schedule: PathName, query: Page50Query) -> Page[Change]:
    """Who changed it, when and why, newest first."""
    rows = ask.control.changes(schedule, **query.given())
    items = [Change(**change_record(row)) for row in rows]
    return Page(items=items, next=rows[-1]["id"] if len(rows) == query.limit else None)
