"""Who did what: the audit, and what was recorded about runs; dead letters in groups."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.model.limits import KEY_LENGTH
from rota.model.records import change_record
from rota.web.models import (
    Before,
    GroupId,
    Instant,
    Limit,
    Page,
    Page50Query,
    PageQuery,
    RequestModel,
    ResponseModel,
)
from rota.web.routes.run import Event
from rota.web.routing import Ask

Key = Annotated[str, Meta(max_length=KEY_LENGTH)]


class AuditQuery(RequestModel):
    by: Annotated[Key, Meta(description="Who.")] | UnsetType = UNSET
    action: Annotated[str, Meta(max_length=64, examples=["pause_queue"])] | UnsetType = UNSET
    q: Annotated[Key, Meta(description="What the thing or the reason holds.")] | UnsetType = UNSET
    before: Before | UnsetType = UNSET
    limit: Limit = 100


class Entry(ResponseModel):
    """`via` is the surface, and over HTTP the address."""

    id: int
    at: Instant
    by: str
    via: str
    action: str
    thing: str
    reason: str | None
    before: Any
    after: Any


class DeadGroup(ResponseModel):
    """`group` is what POST /runs/redo and /runs/delete take as their filter."""

    group: str
    job: str
    error: str
    runs: int
    first_at: Instant | None
    last_at: Instant | None
    last_run: str


class Dead(ResponseModel):
    """`more`: only the newest `looked_at` dead runs are grouped."""

    groups: list[DeadGroup]
    looked_at: int
    more: bool


class DeadRun(ResponseModel):
    id: str
    job: str
    error: str | None
    finished_at: Instant | None


def list_audit(ask: Ask, query: AuditQuery) -> Page[Entry]:
    """Every change somebody made, newest first."""
    filters = query.given()
    rows = ask.control.find_audit(words=filters.pop("q", None), **filters)
    items = [Entry(**change_record(row)) for row in rows]
    return Page(items=items, next=rows[-1]["id"] if len(rows) == query.limit else None)


def list_events(ask: Ask, query: PageQuery) -> Page[Event]:
    """What was recorded about runs beside their own history, newest first."""
    rows = ask.control.events(**query.given())
    items = [Event(**row) for row in rows]
    return Page(items=items, next=rows[-1]["id"] if len(rows) == query.limit else None)


def list_dead(ask: Ask) -> Dead:
    """Dead runs, those of one job and one error together."""
    return msgspec.convert(ask.control.dead_groups(), Dead)


def list_dead_runs(ask: Ask, group: GroupId, query: Page50Query) -> Page[DeadRun]:
    """Dead runs of one group, newest first. A page may be short while there is a next one."""
    rows, following = ask.control.dead_runs(group, **query.given())
    return Page(items=[DeadRun(**row) for row in rows], next=following)
