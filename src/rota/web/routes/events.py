"""The event stream, for screens that stay up to date by themselves."""

from __future__ import annotations

from starlette.responses import Response

from rota.web.routing import Ask
from rota.web.streams import EventStream


async def events(ask: Ask) -> Response:
    """What happens, as it happens. The events are `run.created`, `job.started`, `job.completed`,
    `job.failed`, `job.cancelled`, `attempt.started`, `attempt.succeeded`, `attempt.failed` and the
    other ends of an attempt, `run.progress`, `run.changed`, `action`, `workers`. `more` says how
    many were left out, `resync` that it is time to read anew. Goes on after `Last-Event-ID`."""
    return EventStream(ask)
