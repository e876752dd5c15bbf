"""The installation: the database's clock, what the store knows of itself, and where it is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime

from rota.storage import rows
from rota.storage.engine import Row, Transaction
from rota.storage.operations.audit import SYSTEM, Actor, audit, record_change


def read_clock(tx: Transaction) -> datetime:
    """The instant by the clock that decides: the database's on server engines."""
    row = tx.one("now")
    assert row is not None
    moment: datetime = row["now_at"]
    return moment


def meta(tx: Transaction) -> dict[str, str]:
    return {row["key"]: row["value"] for row in tx.all("all_meta")}


BATCH = 500


MOVED = "this store was moved or copied"


def put_home(tx: Transaction, home: Mapping[str, str]) -> None:
    """Remember where the store is."""
    for key, value in sorted(home.items()):
        tx.all("set_meta", key=key, value=value)


def adopt_home(tx: Transaction, home: Mapping[str, str], actor: Actor) -> None:
    """This place is right from now on."""
    put_home(tx, home)
    audit(tx, actor, "adopt", "installation", after=rows.to_json(home))


def paused_by_guard(tx: Transaction, after: int) -> list[Row]:
    """Schedules that were paused because the store was moved, a page at a time."""
    return tx.all("paused_because", mark=f"{MOVED}%", after=after, limit=BATCH)


def pause_active_schedules(tx: Transaction, reason: str) -> int:
    """Pause a bounded number of those that are not paused; how many."""
    found = tx.all("active_schedules", limit=BATCH)
    for row in found:
        schedule = rows.schedule(row)
        changed = tx.one(
            "pause_schedule", id=schedule.id, by=SYSTEM.by, reason=reason, state=reason
        )
        if changed is not None:
            paused = rows.schedule(changed)
            record_change(tx, paused, SYSTEM, "pause", reason, schedule, paused)
    return len(found)


def store_facts(tx: Transaction) -> Row:
    """How far the database's clock is from ours, leases that ran out, the schema's version."""
    before = time.time()
    now = read_clock(tx)
    middle = (before + time.time()) / 2
    return {
        "clock_offset_seconds": now.timestamp() - middle,
        "expired_leases": tx.one("expired_leases"),
        "schema_version": meta(tx).get("schema_version"),
    }
