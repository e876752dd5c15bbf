"""Workers, and the locks that are held."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from rota.flow.charts import busy_slots
from rota.flow.workers import is_alive, is_stopping
from rota.model.limits import KEY_LENGTH
from rota.web.models import Instant, Limit, Page, RequestModel, ResponseModel
from rota.web.routing import Ask


class AfterQuery(RequestModel):
    # Names of locks are the user's own text, and ids begin with what a machine is called.
    after: Annotated[str, Meta(max_length=KEY_LENGTH, description="`next` of the page before.")] = (
        ""
    )
    limit: Limit = 100


class Worker(ResponseModel):
    """`alive`: seen within the last half minute; `stopping`: it takes no more runs, and has no
    `slots`. No `queues` means all. `running`: runs that it has, also those claimed ahead; `busy`:
    slots that they are in."""

    id: str
    host: str
    pid: int
    version: str
    tzdata: str
    origin: str | None
    jobs: list[str]
    queues: list[str]
    slots: int
    stuck: int
    running: int
    busy: int
    started_at: Instant
    seen_at: Instant
    alive: bool
    stopping: bool


class Lock(ResponseModel):
    name: str
    owner: str | None
    token: int
    until: Instant


def list_workers(ask: Ask, query: AfterQuery) -> Page[Worker]:
    """The processes that work, by id, with what they know and how much they do."""
    now = ask.control.now()
    rows = ask.control.workers(**query.given())
    items = [
        Worker(**row, busy=busy_slots(row), alive=is_alive(row, now), stopping=is_stopping(row))
        for row in rows
    ]
    return Page(items=items, next=rows[-1]["id"] if len(rows) == query.limit else None)


def list_locks(ask: Ask, query: AfterQuery) -> Page[Lock]:
    """The locks that somebody holds, by name."""
    rows = ask.control.locks(**query.given())
    items = [Lock(**row) for row in rows]
    return Page(items=items, next=rows[-1]["name"] if len(rows) == query.limit else None)
