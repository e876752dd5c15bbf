"""Promote due runs and admit held ones: the two ways into the queue."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from rota.model.run import Run
from rota.model.schedule import WAITING_FOR_RUN
from rota.storage import rows
from rota.storage.engine import Transaction
from rota.storage.operations.delays import restart_delay
from rota.storage.operations.installation import read_clock

HELD_PER_KEY = 100


def promote(tx: Transaction, limit: int) -> int:
    """Runs whose time has come enter the queue, or the line for the slot they want."""
    promoted = tx.all("promote_runs", limit=limit)
    admit(tx, {row["wanted_key"] for row in promoted if row["wanted_key"]})
    return len(promoted)


def next_due_at(tx: Transaction) -> tuple[datetime, datetime | None]:
    """(now, when the next waiting run is due)."""
    row = tx.one("next_due_at")
    return read_clock(tx), row["next_due_at"] if row else None


def held_keys(tx: Transaction, after: str, limit: int) -> list[str]:
    """Keys that runs wait for, in order, past `after`."""
    found = tx.all("held_keys", after=after, limit=limit)
    return [row["key"] for row in found]


def admit(tx: Transaction, keys: Collection[str]) -> int:
    """Give free slots of these keys to the runs that wait for them longest; how many got their
    last. A run may get its first and go on to want its second."""
    pending: set[str | None] = {*keys}
    admitted = 0
    # A run takes its slots in this order. In one order for all keys two processes never wait for
    # each other's.
    for kind in ("o/", "c/"):
        line = sorted(key for key in pending if key is not None and key.startswith(kind))
        wanted = _admit_line(tx, line) if line else []
        admitted += wanted.count(None)
        pending.update(wanted)
    return admitted


def _admit_line(tx: Transaction, keys: list[str]) -> list[str | None]:
    """What each run that got a slot of these keys wants next; None: nothing, it is queued."""
    if tx.knows("admit_runs"):  # all keys in one statement
        found = tx.all("admit_runs", keys=keys, limit=HELD_PER_KEY)
        return [row["wanted_key"] for row in found]
    if not tx.writes_alone:
        tx.tuples("lock_slots", keys=keys)
    return [wanted for key in keys for wanted in _admit_key(tx, key)]


def _admit_key(tx: Transaction, key: str) -> list[str | None]:
    """No other process gives out slots of this key meanwhile; a fire may take the first one."""
    answers: list[str | None] = []
    taken = {row["number"] for row in tx.all("taken_numbers", key=key)}
    for run in tx.all("held_runs", key=key, limit=HELD_PER_KEY):
        free = next((n for n in range(1, run["size"] + 1) if n not in taken), None)
        if free is None:
            break  # first in, first out: none passes the head of the line
        if not tx.all("take_slot", key=key, number=free, seq=run["seq"]):
            break  # another transaction has the head of the line, or the slot
        row = tx.one("admit_run", seq=run["seq"], key=key)
        assert row is not None, "the run is held and its row is ours"
        taken.add(free)
        answers.append(row["wanted_key"])
    return answers


def sweep(tx: Transaction, after: int, *, limit: int) -> tuple[int, int]:
    """Free slots whose run is gone, and let delay schedules go on whose run is gone: how many, and
    the last owner that was looked at, where the next sweep goes on; 0 to begin anew."""
    page = tx.tuples("slot_owners_after", after=after, limit=limit)
    owners = [owner for (owner,) in page]
    freed = {row["key"] for row in tx.all("sweep_slots", owners=owners)} if owners else set()
    admit(tx, freed)
    stranded = tx.all("stranded_delay_schedules", waiting_at=WAITING_FOR_RUN, limit=limit)
    for row in stranded:
        restart_delay(tx, row["id"], row["expr"])
    last = owners[-1] if len(owners) == limit else 0
    return len(freed) + len(stranded), last


def slot_owners(tx: Transaction, key: str) -> list[Run]:
    """The runs that own a slot of this key now."""
    return [rows.run(row) for row in tx.all("slot_owners", key=key)]


def count_held(tx: Transaction, key: str) -> int:
    """How many runs wait for a slot of this key."""
    found = tx.one("count_held", keys=[key])
    return found["held"] if found else 0
