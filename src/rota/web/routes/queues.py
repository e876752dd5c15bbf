"""Queues: what waits in each, and whether anything is taken from it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rota.web.routing import Asked, Routes
from rota.web.shapes import AfterName, Done, Limit, Page, PathName, Telling, Why

routes = Routes("queues")


class Queue(Telling):
    """`depths`: how many runs it has in each state that has not ended; beyond 100,000 runs of a
    state, of all queues together, they are not counted (of those queued: in each queue), and
    `capped` names those states.
    `ended_per_minute`: over five minutes, or over the latest 3,000 runs of all queues together
    when more have ended in them."""

    name: str
    paused: bool
    reason: str | None
    paused_by: str | None
    paused_at: datetime | None
    queued: int
    oldest_at: datetime | None
    depths: dict[str, int]
    capped: list[str]
    ended_per_minute: float


@routes.get("/queues", Page[Queue])
def list_queues(ask: Asked, after: AfterName = "", limit: Limit = 100) -> Any:
    """Queues by name, with how much waits in each and since when."""
    found = ask.control.queue_work(after=after, limit=limit)
    return {"items": found, "next": found[-1]["name"] if len(found) == limit else None}


@routes.post("/queues/{queue:name}/pause", Done)
def pause_queue(ask: Asked, queue: PathName, why: Why) -> Any:
    """Stop claims from a queue, in all processes."""
    ask.control.pause_queue(queue, why.reason)
    return {"done": f"queue {queue} is paused"}


@routes.post("/queues/{queue:name}/resume", Done)
def resume_queue(ask: Asked, queue: PathName) -> Any:
    """Claim from a queue again."""
    ask.control.resume_queue(queue)
    return {"done": f"queue {queue} is open"}
