"""One run: all that is known of it, and what can be done to it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from rota.model.limits import KEY_LENGTH, PAGE
from rota.model.records import decoded
from rota.web.routes.nouns import RunOut, tell_run
from rota.web.routing import Answer, Ask, Asked, Routes
from rota.web.shapes import WHOLE, Before, Limit, Page, Reason, RunId, Telling, Why
from rota.web.streams import LogStream

routes = Routes("runs")


class Redo(Why):
    """`from_step` is a file's name or number, `latest` takes the files as they are now."""

    from_step: Annotated[str | None, Field(max_length=KEY_LENGTH)] = None
    latest: bool = False


class Redone(RunOut):
    """`notes`: files that have changed since the run began, steps that are passed over undone."""

    notes: list[str]


class Attempt(Telling):
    number: int
    worker_id: str | None
    started_at: datetime | None
    finished_at: datetime | None
    outcome: str | None
    error: str | None


class Step(Telling):
    """`result` has the first rows of a final SELECT; `hash` names the text that was run."""

    attempt: int
    number: int
    name: str
    hash: str | None
    started_at: datetime | None
    finished_at: datetime | None
    status: str
    rows: int | None
    result: Any
    error: str | None
    note: str | None


class Script(Telling):
    """The text before its variables were filled in, and their names."""

    number: int
    name: str
    text: str
    names: list[str]


class LogLine(Telling):
    id: int
    attempt: int
    at: datetime
    level: str
    text: str


class Event(Telling):
    id: int
    at: datetime
    kind: str
    run_id: str | None
    name: str | None
    attempt: int | None
    detail: str | None


@routes.get("/runs/{run:run}", RunOut)
def get_run(ask: Asked, run: RunId) -> Any:
    """One run, with its arguments, progress and result."""
    return _told(ask, ask.control.run(run))


@routes.delete("/runs/{run:run}", status_code=204)
def delete_run(ask: Asked, run: RunId, reason: Annotated[Reason, Query()] = None) -> Any:
    """Delete a run with its attempts and logs; 409 while it is running."""
    ask.control.delete(run, reason)
    return Answer(status=204)


@routes.post("/runs/{run:run}/cancel", RunOut)
def cancel_run(ask: Asked, run: RunId, why: Why) -> Any:
    """End a run that has not started; ask for the end of one that is running."""
    return _told(ask, ask.control.cancel(run, why.reason))


@routes.post("/runs/{run:run}/redo", Redone)
def redo_run(ask: Asked, run: RunId, redo: Redo) -> Any:
    """Start over a run that has ended."""
    told = ask.control.redo(run, redo.reason, from_step=redo.from_step, latest=redo.latest)
    return {**_told(ask, told), "notes": ask.control.redo_notes(run)}


@routes.post("/runs/{run:run}/pause", RunOut)
def pause_run(ask: Asked, run: RunId, why: Why) -> Any:
    """Hold a run back; a running one is asked, and stops where it can."""
    return _told(ask, ask.control.pause_run(run, why.reason))


@routes.post("/runs/{run:run}/resume", RunOut)
def resume_run(ask: Asked, run: RunId, why: Why) -> Any:
    """Let a paused run go on."""
    return _told(ask, ask.control.resume_run(run, why.reason))


@routes.get("/runs/{run:run}/attempts", list[Attempt])
def list_attempts(ask: Asked, run: RunId) -> Any:
    """Its attempts that have ended, in their order."""
    return ask.control.attempts(run)


@routes.get("/runs/{run:run}/steps", list[Step])
def list_steps(ask: Asked, run: RunId) -> Any:
    """The steps of a SQL run, attempt by attempt."""
    return [{**row, "result": decoded(row["result"])} for row in ask.control.steps(run)]


@routes.get("/runs/{run:run}/texts", list[Script])
def list_texts(ask: Asked, run: RunId) -> Any:
    """The SQL files of a run as it began, with the names of their variables."""
    return ask.control.texts(run)


@routes.get("/runs/{run:run}/logs", Page[LogLine])
def list_logs(
    ask: Asked,
    run: RunId,
    after: Annotated[
        int | None, Query(ge=0, le=WHOLE, description="Lines after this id, in their order.")
    ] = None,
    before: Before = None,
    limit: Limit = 200,
) -> Any:
    """The last lines of its log; with `after` the following ones, with `before` earlier ones.
    `next` is the id to go on from."""
    if after is not None:
        found = ask.control.logs(run, after=after, limit=limit)
        following = found[-1]["id"] if len(found) == limit else None
    else:
        found = ask.control.log_tail(run, before=before, limit=limit)
        following = found[0]["id"] if len(found) == limit else None
    return {"items": found, "next": following}


@routes.get(
    "/runs/{run:run}/logs/stream",
    None,
    responses={
        200: {
            "description": "Lines as server-sent events `log`, then `end` with the run's state.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def follow_logs(
    ask: Asked,
    run: RunId,
    after: Annotated[int, Query(ge=0, le=WHOLE)] = 0,
    tail: Annotated[int, Query(ge=0, le=PAGE)] = 0,
) -> Any:
    """Follow the log of a run until it ends: from its beginning, after a line, or the last `tail`
    lines. Goes on after `Last-Event-ID`."""
    return await LogStream.open(ask, run, after=after, tail=tail)


@routes.get("/runs/{run:run}/events", Page[Event])
def list_run_events(ask: Asked, run: RunId, before: Before = None, limit: Limit = 100) -> Any:
    """What happened to it, newest first: it was made, began, each attempt, its end."""
    ask.control.run(run)
    found = ask.control.events(run, before=before, limit=limit)
    return {"items": found, "next": found[-1]["id"] if len(found) == limit else None}


def _told(ask: Ask, run: Any) -> dict[str, Any]:
    name = None if run.schedule_id is None else ask.control.schedule_name(run.schedule_id)
    return tell_run(run, name)
