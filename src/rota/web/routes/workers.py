"""Workers, and the locks that are held."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rota.flow.charts import busy_slots
from rota.flow.workers import is_alive, is_stopping
from rota.web.routing import Asked, Routes
from rota.web.shapes import Telling

routes = Routes("workers")


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


@routes.get("/workers", list[Worker])
def list_workers(ask: Asked) -> Any:
    """The processes that work, with what they know and how much they do."""
    now = ask.control.now()
    return [
        {
            **one,
            "busy": busy_slots(one),
            "alive": is_alive(one, now),
            "stopping": is_stopping(one),
        }
        for one in ask.control.workers()
    ]


@routes.get("/locks", list[Lock])
def list_locks(ask: Asked) -> Any:
    """The locks that somebody holds."""
    return ask.control.locks()
