"""The installation as a whole: dispatch, retention, and where it lives."""

from __future__ import annotations

from rota.web.models import Done, ResponseModel, Why
from rota.web.routing import Ask


class Pruned(ResponseModel):
    deleted: int


class Adopted(ResponseModel):
    resumed: int


def pause_dispatch(ask: Ask, body: Why) -> Done:
    """Stop all claims in all processes; fires go on, running runs end."""
    ask.control.pause_dispatch(body.reason)
    return Done(done="dispatch is paused")


def resume_dispatch(ask: Ask) -> Done:
    """Claim again, in all processes."""
    ask.control.resume_dispatch()
    return Done(done="dispatch is on")


def prune(ask: Ask) -> Pruned:
    """Delete what retention no longer keeps."""
    return Pruned(deleted=ask.control.prune())


def adopt(ask: Ask) -> Adopted:
    """Confirm that the store was moved here on purpose, and resume its schedules."""
    return Adopted(resumed=ask.control.adopt(ask.app.settings.cluster))
