"""Queues: paused and resumed, one or all of them; and how many runs each has."""

from __future__ import annotations

from rota.errors import Unknown
from rota.model.limits import METRIC_DEPTH
from rota.storage.engine import Row, Transaction
from rota.storage.operations.audit import Actor, audit
from rota.storage.operations.installation import meta


def dispatch(tx: Transaction) -> str:
    """What the switch for all claims says."""
    return meta(tx).get("dispatch", "on")


def pause_queue(tx: Transaction, name: str, reason: str | None, actor: Actor) -> None:
    """Stop claims from a queue in all processes."""
    tx.all("pause_queue", name=name, reason=reason, by=actor.by)
    audit(tx, actor, "pause_queue", name, reason, after="paused")


def resume_queue(tx: Transaction, name: str, actor: Actor) -> None:
    """Let it be claimed from again; one that is open stays as it is."""
    if tx.one("resume_queue", name=name) is not None:
        audit(tx, actor, "resume_queue", name, before="paused", after="open")
    elif tx.one("queue_named", name=name) is None:
        raise Unknown(f"queue {name!r} does not exist; `rota queues` lists them")


def set_dispatch(tx: Transaction, on: bool, reason: str | None, actor: Actor) -> None:
    """The switch for all claims of all processes; fires go on under their overlap policy."""
    value = "on" if on else f"paused by {actor.by}" + (f": {reason}" if reason else "")
    before = meta(tx).get("dispatch")
    tx.all("set_meta", key="dispatch", value=value)
    action = "resume_dispatch" if on else "pause_dispatch"
    audit(tx, actor, action, "dispatch", reason, before, value)


def list_queues(tx: Transaction, *, after: str = "", limit: int) -> list[Row]:
    """Every queue with how many runs are queued in it, counted up to METRIC_DEPTH."""
    oldest = {row["queue"]: row["due_at"] for row in tx.all("oldest_queued")}
    found = tx.all("list_queues", after=after, limit=limit, depth=METRIC_DEPTH)
    for row in found:
        row["paused"] = bool(row["paused"])
        row["oldest_at"] = oldest.get(row["name"])
    return found
