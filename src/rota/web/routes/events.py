"""The event stream, for screens that stay up to date by themselves."""

from __future__ import annotations

from typing import Any

from rota.web.routing import Asked, Routes
from rota.web.streams import EventStream

routes = Routes("events", prefix="")


@routes.get(
    "/events",
    None,
    responses={
        200: {
            "description": "Server-sent events, until one side ends it.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def events(ask: Asked) -> Any:
    """What happens, as it happens. The events are `run.created`, `job.started`, `job.completed`,
    `job.failed`, `job.cancelled`, `attempt.started`, `attempt.succeeded`, `attempt.failed` and the
    other ends of an attempt, `run.progress`, `run.changed`, `action`, `workers`. `more` says how
    many were left out, `resync` that it is time to read anew. Goes on after `Last-Event-ID`."""
    return EventStream(ask)
