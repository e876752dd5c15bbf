"""One run: all that is known of it, and what can be done to it."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from rota.model.limits import KEY_LENGTH, PAGE
from rota.model.records import decoded
from rota.model.run import Run
from rota.web.models import (
    WHOLE,
    Before,
    Instant,
    Limit,
    Page,
    PageQuery,
    RequestModel,
    ResponseModel,
    RunId,
    RunOut,
    Why,
    WhyQuery,
    run_fields,
)
from rota.web.routing import Ask
from rota.web.streams import LogStream


class Redo(Why):
    """`from_step` is a file's name or number, `latest` takes the files as they are now."""

    from_step: Annotated[str, Meta(max_length=KEY_LENGTH)] | None = None
    latest: bool = False


class LogQuery(RequestModel):
    after: (
        Annotated[int, Meta(ge=0, le=WHOLE, description="Lines after this id, in their order.")]
        | UnsetType
    ) = UNSET
    before: Before | UnsetType = UNSET
    limit: Limit = 200


class FollowQuery(RequestModel):
    after: Annotated[int, Meta(ge=0, le=WHOLE)] = 0
    tail: Annotated[int, Meta(ge=0, le=PAGE)] = 0


class Redone(RunOut):
    """`notes`: files that have changed since the run began, steps that are passed over undone."""

    notes: list[str]


class Attempt(ResponseModel):
    number: int
    worker_id: str | None
    started_at: Instant | None
    finished_at: Instant | None
    outcome: str | None
    error: str | None


class Step(ResponseModel):
    """`result` has the first rows of a final SELECT; `hash` names the text that was run."""

    attempt: int
    number: int
    name: str
    hash: str | None
    started_at: Instant | None
    finished_at: Instant | None
    status: str
    rows: int | None
    result: Any
    error: str | None
    note: str | None


class Script(ResponseModel):
    """The text before its variables were filled in, and their names."""

    number: int
    name: str
    text: str
    names: list[str]


class LogLine(ResponseModel):
    id: int
    attempt: int
    at: Instant
    level: str
    text: str


class Event(ResponseModel):
    id: int
    at: Instant
    kind: str
    run_id: str | None
    name: str | None
    attempt: int | None
    detail: str | None


def get_run(ask: Ask, run: RunId) -> RunOut:
    """One run, with its arguments, progress and result."""
    return _out(ask, ask.control.run(run))


def delete_run(ask: Ask, run: RunId, query: WhyQuery) -> None:
    """Delete a run with its attempts and logs; 409 while it is running."""
    ask.control.delete(run, **query.given())


def cancel_run(ask: Ask, run: RunId, body: Why) -> RunOut:
    """End a run that has not started; ask for the end of one that is running."""
    return _out(ask, ask.control.cancel(run, body.reason))


def redo_run(ask: Ask, run: RunId, body: Redo) -> Redone:
    """Start over a run that has ended."""
    redone = ask.control.redo(run, body.reason, from_step=body.from_step, latest=body.latest)
    return Redone(**_fields(ask, redone), notes=ask.control.redo_notes(run))


def pause_run(ask: Ask, run: RunId, body: Why) -> RunOut:
    """Hold a run back; a running one is asked, and stops where it can."""
    return _out(ask, ask.control.pause_run(run, body.reason))


def resume_run(ask: Ask, run: RunId, body: Why) -> RunOut:
    """Let a paused run go on."""
    return _out(ask, ask.control.resume_run(run, body.reason))


def list_attempts(ask: Ask, run: RunId) -> list[Attempt]:
    """Its attempts that have ended, in their order."""
    return [Attempt(**row) for row in ask.control.attempts(run)]


def list_steps(ask: Ask, run: RunId) -> list[Step]:
    """The steps of a SQL run, attempt by attempt."""
    return [Step(**{**row, "result": decoded(row["result"])}) for row in ask.control.steps(run)]


def list_texts(ask: Ask, run: RunId) -> list[Script]:
    """The SQL files of a run as it began, with the names of their variables."""
    return [Script(**row) for row in ask.control.texts(run)]


def list_logs(ask: Ask, run: RunId, query: LogQuery) -> Page[LogLine]:
    """The last lines of its log; with `after` the following ones, with `before` earlier ones.
    `next` is the id to go on from."""
    if query.after is not UNSET:
        rows, last = ask.control.logs(run, after=query.after, limit=query.limit), -1
    else:
        before = None if query.before is UNSET else query.before
        rows, last = ask.control.log_tail(run, before=before, limit=query.limit), 0
    items = [LogLine(**row) for row in rows]
    return Page(items=items, next=rows[last]["id"] if len(rows) == query.limit else None)


async def follow_logs(ask: Ask, run: RunId, query: FollowQuery) -> Response:
    """Follow the log of a run until it ends: from its beginning, after a line, or the last `tail`
    lines. Goes on after `Last-Event-ID`."""
    return await LogStream.open(ask, run, after=query.after, tail=query.tail)


def list_run_events(ask: Ask, run: RunId, query: PageQuery) -> Page[Event]:
    """What happened to it, newest first: it was made, began, each attempt, its end."""
    ask.control.run(run)
    rows = ask.control.events(run, **query.given())
    items = [Event(**row) for row in rows]
    return Page(items=items, next=rows[-1]["id"] if len(rows) == query.limit else None)


def _out(ask: Ask, run: Run) -> RunOut:
    return RunOut(**_fields(ask, run))


def _fields(ask: Ask, run: Run) -> dict[str, Any]:
    name = None if run.schedule_id is None else ask.control.schedule_name(run.schedule_id)
    return run_fields(run, name)
