"""Who changed what: the audit of every write, and the history of each schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rota.model.schedule import Schedule
from rota.storage import rows
from rota.storage.engine import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who asks, and through which surface: every write leaves it in the audit."""

    by: str
    via: str


SYSTEM = Actor(by="rota", via="system")


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
    told_before, told_after = _told(before), _told(after)
    change = {
        "schedule_id": schedule.id,
        "name": schedule.name,
        "by": actor.by,
        "action": action,
        "reason": reason,
        "before": told_before,
        "after": told_after,
    }
    tx.many("insert_schedule_changes", [change])
    audit(tx, actor, f"{action}_schedule", schedule.name, reason, told_before, told_after)


def _told(schedule: Schedule | None) -> str | None:
    if schedule is None:
        return None
    told: dict[str, Any] = {
        **schedule.definition(),
        "paused": schedule.paused,
        "next_fire_at": schedule.next_fire_at,
    }
    return rows.to_json(told)
