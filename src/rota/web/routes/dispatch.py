"""The installation as a whole: dispatch, retention, and where it lives."""

from __future__ import annotations

from typing import Any

from rota.web.routing import Asked, Routes
from rota.web.shapes import Done, Telling, Why

routes = Routes("installation")


class Pruned(Telling):
    deleted: int


class Adopted(Telling):
    resumed: int


@routes.post("/dispatch/pause", Done)
def pause_dispatch(ask: Asked, why: Why) -> Any:
    """Stop all claims in all processes; fires go on, running runs end."""
    ask.control.pause_dispatch(why.reason)
    return {"done": "dispatch is paused"}


@routes.post("/dispatch/resume", Done)
def resume_dispatch(ask: Asked) -> Any:
    """Claim again, in all processes."""
    ask.control.resume_dispatch()
    return {"done": "dispatch is on"}


@routes.post("/prune", Pruned)
def prune(ask: Asked) -> Any:
    """Delete what retention no longer keeps."""
    return {"deleted": ask.control.prune()}


@routes.post("/adopt", Adopted)
def adopt(ask: Asked) -> Any:
    """Confirm that the store was moved here on purpose, and resume its schedules."""
    return {"resumed": ask.control.adopt(ask.app.settings.cluster)}
