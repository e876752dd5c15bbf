"""Follow what happens, wherever it happens: lifecycle events read from the rows.

The process that settles tells its own listeners (`events.py`); everybody else looks at the store.
A step reads what is new since the last one: runs by their number, ends by their time, people's
actions by their number. A row may commit later than one with a higher number, or with a later time,
so ends are read again for a while and told once. What came to be and ended between two steps is
told in its order; what changed more often than that is told as it is now.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from rota.model.outcome import error_line
from rota.model.records import decoded
from rota.model.redact import redact_text
from rota.storage.protocol import Storage

STEP_SECONDS = 0.5
READ = 2_000  # rows of each kind a step
TOLD = 500  # events about runs a step; of more only how many
AGAIN = timedelta(seconds=2)
REMEMBERED = 20_000
SHOWN_ERROR = 300

ENDS = {"succeeded": "job.completed", "dead": "job.failed", "cancelled": "job.cancelled"}

Tell = Callable[[str, Mapping[str, Any]], None]


class Follow:
    """`tell` is given the name of each event and what it says."""

    def __init__(self, storage: Callable[[], Storage], tell: Tell) -> None:
        self._storage, self._tell = storage, tell
        self._at: dict[str, Any] | None = None
        self._running: dict[int, dict[str, Any]] = {}
        self._begun, self._ended = Memory(), Memory()
        self._workers: frozenset[str] | None = None

    def step(self) -> float:
        storage = self._storage()
        if self._at is None:
            self._begin(storage)
            return STEP_SECONDS
        found = storage.changes_since(
            seq=self._at["seq"],
            audit_id=self._at["audit_id"],
            since_at=self._at["now_at"] - AGAIN,
            until_at=self._at["now_at"] + timedelta(days=1),
            limit=READ,
        )
        running = {row["seq"]: row for row in found["running"]}
        gone = self._gone(storage, running, found)
        events = [*self._about_runs(found, running, gone)]
        self._tell_runs(storage, events)
        for row in found["actions"]:
            self._tell("action", _action(row))
        self._tell_workers(storage)
        self._running = running
        self._at = {
            "now_at": found["now_at"],
            "seq": max((row["seq"] for row in found["made"]), default=self._at["seq"]),
            "audit_id": max((row["id"] for row in found["actions"]), default=self._at["audit_id"]),
        }
        return STEP_SECONDS

    def forget(self) -> bool:
        """The next step begins anew; false if there was nothing to forget."""
        known, self._at = self._at is not None, None
        return known

    def _begin(self, storage: Storage) -> None:
        """From now on. What runs already has begun, and what has ended is told by nobody."""
        at = storage.follow_position()
        found = storage.changes_since(
            seq=at["seq"],
            audit_id=at["audit_id"],
            since_at=at["now_at"] - AGAIN,
            until_at=at["now_at"] + timedelta(days=1),
            limit=READ,
        )
        for row in found["ended"]:
            self._ended.add(_end_of(row))
        self._running = {row["seq"]: row for row in found["running"]}
        for row in found["running"]:
            self._begun.add((row["seq"], row["attempt"]))
        self._at = at

    def _gone(
        self, storage: Storage, running: Mapping[int, Any], found: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """What ran a step ago and neither runs nor has ended: between attempts, paused, let go."""
        ended = {row["seq"] for row in found["ended"]}
        left = [seq for seq in self._running if seq not in running and seq not in ended]
        return storage.brief_runs(left[:READ]) if left else []

    def _about_runs(
        self,
        found: Mapping[str, Any],
        running: Mapping[int, dict[str, Any]],
        gone: Iterable[dict[str, Any]],
    ) -> Iterable[tuple[str, dict[str, Any]]]:
        for row in found["made"]:
            yield "run.created", row
        for row in running.values():
            yield from self._started(row)
            before = self._running.get(row["seq"])
            if before is not None and before["progress"] != row["progress"]:
                yield "run.progress", row
        for row in gone:
            if row["state"] not in ENDS:
                yield "run.changed", row
        for row in reversed(found["ended"]):
            if self._ended.add(_end_of(row)):
                if row["started_at"] is not None and row["attempt"]:
                    yield from self._started(row)
                yield ENDS[row["state"]], row

    def _started(self, row: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
        if self._begun.add((row["seq"], row["attempt"])):
            if row["attempt"] == 1:
                yield "job.started", row
            yield "attempt.started", row

    def _tell_runs(self, storage: Storage, events: list[tuple[str, dict[str, Any]]]) -> None:
        ids = {row["schedule_id"] for _, row in events[:TOLD] if row["schedule_id"] is not None}
        names = storage.schedule_names(ids)
        for name, row in events[:TOLD]:
            self._tell(name, _event(row, names))
        if len(events) > TOLD:
            self._tell("more", {"events": len(events) - TOLD})

    def _tell_workers(self, storage: Storage) -> None:
        now = frozenset(one["id"] for one in storage.list_workers(limit=TOLD))
        if self._workers is not None and now != self._workers:
            self._tell("workers", {"came": sorted(now - self._workers),
                                   "went": sorted(self._workers - now)})  # fmt: skip
        self._workers = now


class Memory:
    """The last REMEMBERED things that were told."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, None] = OrderedDict()

    def add(self, thing: Any) -> bool:
        """False if it was there."""
        if thing in self._kept:
            return False
        self._kept[thing] = None
        if len(self._kept) > REMEMBERED:
            self._kept.popitem(last=False)
        return True


def _end_of(row: Mapping[str, Any]) -> tuple[int, int, datetime]:
    return row["seq"], row["redo"], row["finished_at"]


def _event(row: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, Any]:
    """What listeners in the settling process are given, as far as the rows say it."""
    took = None
    if row["finished_at"] is not None and row["started_at"] is not None:
        took = (row["finished_at"] - row["started_at"]).total_seconds() * 1000
    return {
        "name": row["job"],
        "run_id": row["id"],
        "state": row["state"],
        "queue": row["queue"],
        "attempt": row["attempt"],
        "scheduled_at": row["occurrence"] or row["due_at"],
        "started_at": row["started_at"],
        "finished_at": row["finished_at"],
        "duration_ms": took,
        "progress": decoded(row["progress"]),
        "error": error_line(row["error"], limit=SHOWN_ERROR) if row["error"] else None,
        "schedule_name": names.get(row["schedule_id"]),
    }


def _action(row: Mapping[str, Any]) -> dict[str, Any]:
    reason = row["reason"]
    return {
        "at": row["at"],
        "by": row["by"],
        "via": row["via"],
        "action": row["action"],
        "thing": row["thing"],
        "reason": None if reason is None else redact_text(reason),
    }
