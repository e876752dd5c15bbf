"""Queues: what waits in each, and whether anything is taken from it."""

from __future__ import annotations

from rota.web.models import (
    AfterName,
    Done,
    Instant,
    Limit,
    Page,
    PathName,
    RequestModel,
    ResponseModel,
    Why,
)
from rota.web.routing import Ask


class QueuesQuery(RequestModel):
    after: AfterName = ""
    limit: Limit = 100


class Queue(ResponseModel):
    """`depths`: how many runs it has in each state that has not ended; beyond 100,000 runs of a
    state, of all queues together, they are not counted (of those queued: in each queue), and
    `capped` names those states.
    `ended_per_minute`: over five minutes, or over the latest 3,000 runs of all queues together
    when more have ended in them."""

    name: str
    paused: bool
    reason: str | None
    paused_by: str | None
    paused_at: Instant | None
    queued: int
    oldest_at: Instant | None
    depths: dict[str, int]
    capped: list[str]
    ended_per_minute: float


def list_queues(ask: Ask, query: QueuesQuery) -> Page[Queue]:
    """Queues by name, with how much waits in each and since when."""
    rows = ask.control.queue_work(**query.given())
    items = [Queue(**row) for row in rows]
    return Page(items=items, next=rows[-1]["name"] if len(rows) == query.limit else None)


def pause_queue(ask: Ask, queue: PathName, body: Why) -> Done:
    """Stop claims from a queue, in all processes."""
    ask.control.pause_queue(queue, body.reason)
    return Done(done=f"queue {queue} is paused")


def resume_queue(ask: Ask, queue: PathName) -> Done:
    """Claim from a queue again."""
    ask.control.resume_queue(queue)
    return Done(done=f"queue {queue} is open")
