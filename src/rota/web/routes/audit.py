"""Who did what: the audit, and what was recorded about runs; dead letters in groups."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path, Query

from rota.model.limits import KEY_LENGTH
from rota.model.records import change_record
from rota.web.routes.run import Event
from rota.web.routing import Asked, Routes
from rota.web.shapes import Before, Limit, Page, Telling

routes = Routes("audit")


class Entry(Telling):
    """`via` is the surface, and over HTTP the address."""

    id: int
    at: datetime
    by: str
    via: str
    action: str
    thing: str
    reason: str | None
    before: Any
    after: Any


class DeadGroup(Telling):
    """`group` is what POST /runs/redo and /runs/delete take as their filter."""

    group: str
    job: str
    error: str
    runs: int
    first_at: datetime | None
    last_at: datetime | None
    last_run: str


class Dead(Telling):
    """`more`: only the newest `looked_at` dead runs are grouped."""

    groups: list[DeadGroup]
    looked_at: int
    more: bool


class DeadRun(Telling):
    id: str
    job: str
    error: str | None
    finished_at: datetime | None


@routes.get("/audit", Page[Entry])
def list_audit(
    ask: Asked,
    by: Annotated[str | None, Query(max_length=KEY_LENGTH, description="Who.")] = None,
    action: Annotated[str | None, Query(max_length=64, examples=["pause_queue"])] = None,
    q: Annotated[
        str | None, Query(max_length=KEY_LENGTH, description="What the thing or the reason holds.")
    ] = None,
    before: Before = None,
    limit: Limit = 100,
) -> Any:
    """Every change somebody made, newest first."""
    found = ask.control.find_audit(by=by, action=action, words=q, before=before, limit=limit)
    items = [change_record(row) for row in found]
    return {"items": items, "next": found[-1]["id"] if len(found) == limit else None}


@routes.get("/events", Page[Event])
def list_events(ask: Asked, before: Before = None, limit: Limit = 100) -> Any:
    """What was recorded about runs beside their own history, newest first."""
    found = ask.control.events(before=before, limit=limit)
    return {"items": found, "next": found[-1]["id"] if len(found) == limit else None}


@routes.get("/dead", Dead)
def list_dead(ask: Asked) -> Any:
    """Dead runs, those of one job and one error together."""
    return ask.control.dead_groups()


@routes.get("/dead/{group}", Page[DeadRun])
def list_dead_runs(
    ask: Asked,
    group: Annotated[str, Path(pattern="^[0-9a-f]{16}$", description="One of GET /dead.")],
    before: Before = None,
    limit: Limit = 50,
) -> Any:
    """Dead runs of one group, newest first. A page may be short while there is a next one."""
    found, following = ask.control.dead_runs(group, before=before, limit=limit)
    return {"items": found, "next": following}
