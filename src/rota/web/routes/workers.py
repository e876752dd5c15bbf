"""Workers, and the locks that are held."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query

from rota.flow.charts import busy_slots
from rota.flow.workers import is_alive, is_stopping
from rota.model.limits import KEY_LENGTH
from rota.web.routing import Asked, Routes
from rota.web.shapes import Limit, Page, Telling

routes = Routes("workers")

# Names of locks are the user's own text, and ids begin with what a machine is called.
After = Annotated[str, Query(max_length=KEY_LENGTH, description="`next` of the page before.")]


class Worker(Telling):
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
    started_at: datetime
    seen_at: datetime
    alive: bool
    stopping: bool


class Lock(Telling):
    name: str
    owner: str | None
    token: int
    until: datetime


@routes.get("/workers", Page[Worker])
def list_workers(ask: Asked, after: After = "", limit: Limit = 100) -> Any:
    """The processes that work, by id, with what they know and how much they do."""
    now = ask.control.now()
    found = ask.control.workers(after=after, limit=limit)
    items = [
        {
            **one,
            "busy": busy_slots(one),
            "alive": is_alive(one, now),
            "stopping": is_stopping(one),
        }
        for one in found
    ]
    return {"items": items, "next": found[-1]["id"] if len(found) == limit else None}


@routes.get("/locks", Page[Lock])
def list_locks(ask: Asked, after: After = "", limit: Limit = 100) -> Any:
    """The locks that somebody holds, by name."""
    found = ask.control.locks(after=after, limit=limit)
    return {"items": found, "next": found[-1]["name"] if len(found) == limit else None}
