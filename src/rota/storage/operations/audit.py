"""Who changed what: the audit of every write, and the history of each schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rota.model.redact import redact
from rota.model.schedule import Schedule
from rota.storage import rows
from rota.storage.engine import Row, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who asks, and through which surface: every write leaves it in the audit."""

    by: str
    via: str


SYSTEM = Actor(by="rota", via="system")


class Finished(NamedTuple):
    """A schedule that fires no more. Its other fields may be corrupt: nobody reads them."""

    id: int
    name: str


def audit(
    tx: Transaction,
    actor: Actor,
    action: str,
    thing: str,
    reason: str | None = None,
    before: str | None = None,
    after: str | None = None,
) -> None:
    row = {
        "by": actor.by,
        "via": actor.via,
        "action": action,
        "thing": thing,
        "reason": reason,
        "before": before,
        "after": after,
    }
    tx.many("insert_audit", [row])


def record_change(
    tx: Transaction,
    schedule: Schedule,
    actor: Actor,
    action: str,
    reason: str | None,
    before: Schedule | None,
    after: Schedule | None,
) -> None:
    """One row in the schedule's history and one in the audit; neither is ever rewritten."""
    record_changes(tx, [(schedule, before, after)], actor, action, reason)


def record_changes(
    tx: Transaction,
    changes: Sequence[tuple[Schedule | Finished, Schedule | None, Schedule | None]],
    actor: Actor,
    action: str,
    reason: str | None = None,
) -> None:
    """The same for many: each with how it was before and is after."""
    told = [
        {
            "schedule_id": schedule.id,
            "name": schedule.name,
            "by": actor.by,
            "action": action,
            "reason": reason,
            "before": _told(before),
            "after": _told(after),
        }
        for schedule, before, after in changes
    ]
    tx.many("insert_schedule_changes", told)
    entries = [
        {
            "by": actor.by,
            "via": actor.via,
            "action": f"{action}_schedule",
            "thing": one["name"],
            "reason": reason,
            "before": one["before"],
            "after": one["after"],
        }
        for one in told
    ]
    tx.many("insert_audit", entries)


def record_finished(tx: Transaction, finished: Sequence[Finished]) -> None:
    """No how it was before: nobody changed what it says."""
    told = [(one, None, None) for one in finished]
    record_changes(tx, told, SYSTEM, "finish", "no occurrence is left")


def _told(schedule: Schedule | None) -> str | None:
    """For people, and for ever: without the secrets among its arguments."""
    if schedule is None:
        return None
    told: dict[str, Any] = {
        **redact(schedule.definition()),
        "paused": schedule.paused,
        "next_fire_at": schedule.next_fire_at,
    }
    return rows.to_json(told)


def record_action(
    tx: Transaction, actor: Actor, action: str, thing: str, *, after: str | None = None
) -> None:
    """Audit an action whose own transaction is the hot path's, and knows no actor."""
    audit(tx, actor, action, thing, after=after)


def list_audit(tx: Transaction, *, before: int | None = None, limit: int) -> list[Row]:
    last = before if before is not None else 2**62
    return tx.all("list_audit", before=last, limit=limit)


def find_audit(
    tx: Transaction,
    *,
    by: str | None,
    action: str | None,
    words: str | None,
    before: int,
    limit: int,
) -> list[Row]:
    """What somebody did, or what was done to things whose name or reason holds `words`."""
    return tx.all("find_audit", by=by, action=action, words=words, before=before, limit=limit)
