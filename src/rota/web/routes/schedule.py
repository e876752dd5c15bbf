"""One schedule: look at it, edit it, operate it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Header, Query

from rota.errors import Invalid, Unknown
from rota.model.limits import KEY_LENGTH, PAGE
from rota.model.records import change_record
from rota.web.routes.jobs import Trigger
from rota.web.routes.nouns import Made, ScheduleOut
from rota.web.routes.overview import Moment
from rota.web.routes.schedules import ComingOut, Edit, answer, change
from rota.web.routing import Answer, Asked, Routes
from rota.web.shapes import Before, Limit, Page, PathName, Reason, Telling, Why

routes = Routes("schedules")

IfMatch = Annotated[
    str,
    Header(
        max_length=KEY_LENGTH,
        description="The ETag that was read, or * for whatever it is now.",
        examples=['"9f2c41d07a3be85c"', "*"],
    ),
]
CHANGED = {412: {"description": "Somebody else has changed it since it was read."}}


class Resume(Why):
    """`catch_up` makes up for what was missed while it was paused."""

    catch_up: Literal["none", "one", "all"] | None = None


class ExplanationOut(Telling):
    """`reasons` is empty when nothing keeps the schedule and its runs from going on."""

    schedule: str
    words: str
    coming: list[ComingOut]
    reasons: list[str]


class WhyOut(Telling):
    told: str


class Occurrence(Telling):
    schedule_id: int
    occurrence: datetime
    last_occurrence: datetime
    count: int | None
    outcome: str
    reason: str | None
    run_id: str | None
    recorded_at: datetime


class Change(Telling):
    id: int
    schedule_id: int
    name: str
    at: datetime
    by: str | None
    action: str
    reason: str | None
    before: Any
    after: Any


@routes.get("/schedules/{schedule:name}", ScheduleOut)
def get_schedule(ask: Asked, schedule: PathName) -> Any:
    """One schedule. Its ETag is its version: who edits it sends that back."""
    return answer(ask.control.schedule(schedule))


@routes.patch(
    "/schedules/{schedule:name}",
    ScheduleOut,
    responses=CHANGED,
)
def edit_schedule(ask: Asked, schedule: PathName, edit: Edit, if_match: IfMatch) -> Any:
    """Change what is named. Runs that are made already are not touched; the next time is found
    anew only if the timing changes."""
    version = None if if_match.strip() == "*" else if_match.strip().removeprefix("W/").strip('"')
    before = ask.control.schedule(schedule)
    wanted = change(ask, before, edit.model_dump(exclude_unset=True))
    try:
        return answer(ask.control.put_schedule(wanted, version=version or before.version))
    except Unknown as fault:
        ask.control.schedule(schedule)  # it may have gone; else it is the job that is not there
        raise Invalid(str(fault)) from None


@routes.delete("/schedules/{schedule:name}", status_code=204)
def drop_schedule(ask: Asked, schedule: PathName, reason: Annotated[Reason, Query()] = None) -> Any:
    """Remove a schedule; its history and the runs it made stay."""
    ask.control.drop(schedule, reason)
    return Answer(status=204)


@routes.post("/schedules/{schedule:name}/pause", ScheduleOut)
def pause_schedule(ask: Asked, schedule: PathName, why: Why) -> Any:
    """Stop its fires; runs already made go on."""
    return answer(ask.control.pause(schedule, why.reason))


@routes.post("/schedules/{schedule:name}/resume", ScheduleOut)
def resume_schedule(ask: Asked, schedule: PathName, resume: Resume) -> Any:
    """Fire again from now on."""
    return answer(ask.control.resume(schedule, resume.reason, catch_up=resume.catch_up))


@routes.post("/schedules/{schedule:name}/trigger", Made, status_code=201)
def trigger_schedule(ask: Asked, schedule: PathName, trigger: Trigger) -> Any:
    """Make a run now; the next time stays as it is."""
    ask.control.schedule(schedule)  # a job of that name is another thing
    made = ask.control.trigger(schedule, trigger.args, force=trigger.force)
    headers = {"Location": f"/api/v1/runs/{made.id}"}
    return Answer(body={"id": made.id, "created": made.created}, status=201, headers=headers)


@routes.get("/schedules/{schedule:name}/explain", ExplanationOut)
def explain_schedule(
    ask: Asked, schedule: PathName, count: Annotated[int, Query(ge=1, le=PAGE)] = 5
) -> Any:
    """The schedule in words, its next times, and what keeps it from running now."""
    told = ask.control.explain(schedule, count=count)
    return {
        "schedule": told.schedule.name,
        "words": told.words,
        "coming": [{"at": one.at, "note": one.note} for one in told.coming],
        "reasons": told.reasons,
    }


@routes.get("/schedules/{schedule:name}/why", WhyOut)
def why_schedule(ask: Asked, schedule: PathName, at: Moment = None) -> Any:
    """What became of the occurrence at an instant; now if none is named."""
    moment = ask.control.now() if at is None else at
    try:
        return {"told": ask.control.why(schedule, moment)}
    except OverflowError:
        raise Invalid(f"at {at!r} is too far away") from None


@routes.get("/schedules/{schedule:name}/occurrences", Page[Occurrence])
def list_occurrences(
    ask: Asked,
    schedule: PathName,
    before: Annotated[
        str | None, Query(max_length=64, description="`next` of the page before.")
    ] = None,
    limit: Limit = 50,
) -> Any:
    """What became of every instant that was due, newest first."""
    found = ask.control.occurrences(schedule, before=before, limit=limit)
    last = found[-1]["occurrence"].isoformat() if len(found) == limit else None
    return {"items": found, "next": last}


@routes.get("/schedules/{schedule:name}/changes", Page[Change])
def list_changes(ask: Asked, schedule: PathName, before: Before = None, limit: Limit = 50) -> Any:
    """Who changed it, when and why, newest first."""
    found = ask.control.changes(schedule, before=before, limit=limit)
    items = [change_record(row) for row in found]
    return {"items": items, "next": found[-1]["id"] if len(found) == limit else None}
