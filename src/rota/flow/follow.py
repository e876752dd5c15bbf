"""Follow what happens, wherever it happens: lifecycle events read from the rows.

The process that settles tells its own listeners (`events.py`); everybody else looks at the store.
A step reads what is new since the last one: runs by their number, ends by their time, people's
actions by their number. A row may commit later than one with a higher number, or with a later time,
so ends are read again for a while and told once. What came to be and ended between two steps is
told in its order; what changed more often than that is told as it is now. Attempts that ended are
read for the runs that a step sees: one that began and ended between two steps, while its run waits
again, is told when that run is seen next.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rota.model.history import ENDS
from rota.model.job import Job
from rota.model.outcome import error_line
from rota.model.records import decoded
from rota.model.redact import redact_text
from rota.model.run import Attempt
from rota.storage import operations
from rota.storage.store import Store

STEP_SECONDS = 0.5
READ = 2_000  # rows of each kind a step
TOLD = 500  # events about runs a step; of more only how many
AGAIN = timedelta(seconds=2)
REMEMBERED = 20_000
SHOWN_ERROR = 300

UNHEARD = 2  # attempts of a run that nobody has seen yet: the last ones, if they are new

Tell = Callable[[str, Mapping[str, Any]], None]


class Follow:
    """`tell` is given the name of each event and what it says."""

    def __init__(self, store: Callable[[], Store], tell: Tell) -> None:
        self._store, self._tell = store, tell
        self._at: dict[str, Any] | None = None
        self._running: dict[int, dict[str, Any]] = {}
        self._begun, self._ended = Memory(), Memory()
        self._under_way = Memory()  # runs of which an attempt has begun
        self._heard = Memory()  # by run: the number of the last attempt whose end was told
        self._workers: frozenset[str] | None = None

    def step(self) -> float:
        store = self._store()
        if self._at is None:
            self._begin(store)
            return STEP_SECONDS
        found = store.read(
            operations.changes_since,
            seq=self._at["seq"],
            audit_id=self._at["audit_id"],
            since_at=self._at["now_at"] - AGAIN,
            until_at=self._at["now_at"] + timedelta(days=1),
            limit=READ,
        )
        running = {row["seq"]: row for row in found["running"]}
        looked = Looked(
            now_at=found["now_at"],
            made=found["made"],
            running=running,
            gone=self._gone(store, running, found),
            ended=[row for row in reversed(found["ended"]) if _end_of(row) not in self._ended],
        )
        seen = self._seen(looked)
        tries = self._tries(store, looked, seen)
        self._note_under_way(store, seen, tries)
        events = [*self._about_runs(looked, tries)]
        self._tell_runs(store, events)
        for row in found["actions"]:
            self._tell("action", _action(row))
        self._tell_workers(store)
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

    def _begin(self, store: Store) -> None:
        """From now on. What runs already has begun, and what has ended is told by nobody."""
        at = store.read(operations.follow_position)
        found = store.read(
            operations.changes_since,
            seq=at["seq"],
            audit_id=at["audit_id"],
            since_at=at["now_at"] - AGAIN,
            until_at=at["now_at"] + timedelta(days=1),
            limit=READ,
        )
        for row in found["ended"]:
            self._ended.add(_end_of(row))
            self._heard.add(row["seq"], row["attempt"])
        self._running = {row["seq"]: row for row in found["running"]}
        for row in found["running"]:
            self._begun.add(_attempt_of(row))
            self._heard.add(row["seq"], row["attempt"] - 1)
        self._at = at

    def _gone(
        self, store: Store, running: Mapping[int, Any], found: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """What ran a step ago and neither runs nor has ended: between attempts, paused, let go."""
        ended = {row["seq"] for row in found["ended"]}
        left = [seq for seq in self._running if seq not in running and seq not in ended]
        return store.read(operations.brief_runs, left[:READ]) if left else []

    def _seen(self, looked: Looked) -> list[dict[str, Any]]:
        """The runs that may have attempts to tell."""
        return [
            *(row for row in looked.made if row["attempt"]),
            *(row for row in looked.running.values() if _attempt_of(row) not in self._begun),
            *looked.gone,
            *(row for row in looked.ended if _has_rows(row)),
        ]

    def _tries(
        self, store: Store, looked: Looked, seen: Iterable[dict[str, Any]]
    ) -> dict[int, list[Attempt]]:
        """The attempts that ended and were not told, of each run that a step sees, in order."""
        for row in looked.made:
            self._heard.add(row["seq"], 0)
        above = {
            row["seq"]: self._heard.get(row["seq"], max(0, row["attempt"] - UNHEARD))
            for row in seen
        }
        tries: dict[int, list[Attempt]] = {}
        for one in store.read(operations.attempts_above, above, limit=READ):
            # Of a run that nobody has seen before, what ended earlier was told, or by nobody.
            is_new = one.finished_at is not None and one.finished_at >= looked.now_at - AGAIN
            if is_new or one.run_seq in self._heard:
                tries.setdefault(one.run_seq, []).append(one)
        return tries

    def _note_under_way(
        self,
        store: Store,
        seen: Iterable[dict[str, Any]],
        tries: Mapping[int, list[Attempt]],
    ) -> None:
        """Runs that began before what this step tells. The number of an attempt does not say it:
        those before it may have been given back unstarted."""
        asked = {
            row["seq"]: row
            for row in seen
            if row["attempt"] > 1 and row["seq"] not in self._under_way
        }
        found = store.read(operations.attempts_above, dict.fromkeys(asked, 0), limit=READ)
        kept = {(one.run_seq, one.number) for one in found}
        first: dict[int, int] = {}
        for one in found:
            if one.started_at is not None:
                first.setdefault(one.run_seq, one.number)
        news = {(one.run_seq, one.number) for told in tries.values() for one in told}
        for seq, row in asked.items():
            if row["redo"] and (seq, 1) not in kept:
                first[seq] = 1  # it succeeded at once, which leaves no row
            elif len(found) == READ and seq >= found[-1].run_seq:
                first.setdefault(seq, 0)  # not all was read: better not told than told twice
            begun = seq, first.get(seq, row["attempt"])
            if begun[1] < row["attempt"] and (begun not in news or begun in self._begun):
                self._under_way.add(seq)

    def _about_runs(
        self, looked: Looked, tries: Mapping[int, list[Attempt]]
    ) -> Iterable[tuple[str, dict[str, Any]]]:
        for row in looked.made:
            yield "run.created", row
            yield from self._tried(row, tries)
        for row in looked.running.values():
            yield from self._tried(row, tries)
            self._heard.add(row["seq"], row["attempt"] - 1)
            yield from self._started(row)
            before = self._running.get(row["seq"])
            if before is not None and before["progress"] != row["progress"]:
                yield "run.progress", row
        for row in looked.gone:
            yield from self._tried(row, tries)
            if row["state"] not in ENDS:
                yield "run.changed", row
        for row in looked.ended:
            yield from self._tried(row, tries)
            if not _has_rows(row):
                yield from self._started(row)
                yield "attempt.succeeded", row
            self._heard.put(row["seq"], row["attempt"])
            if self._ended.add(_end_of(row)):
                yield ENDS[row["state"]], row

    def _tried(
        self, row: dict[str, Any], tries: Mapping[int, list[Attempt]]
    ) -> Iterable[tuple[str, dict[str, Any]]]:
        """Each attempt that ended: its start, if nobody has heard of it, and its end."""
        for one in tries.get(row["seq"], ()):
            if one.number <= self._heard.get(one.run_seq, 0):
                continue
            self._heard.put(one.run_seq, one.number)
            told = {
                **row,
                "attempt": one.number,
                "started_at": one.started_at,
                "finished_at": one.finished_at,
                "error": one.error,
            }
            if one.started_at is not None:
                yield from self._started(told)
            yield f"attempt.{one.outcome}", told

    def _started(self, row: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
        if self._begun.add(_attempt_of(row)):
            if self._under_way.add(row["seq"]):
                yield "job.started", row
            yield "attempt.started", row

    def _tell_runs(self, store: Store, events: list[tuple[str, dict[str, Any]]]) -> None:
        ids = {row["schedule_id"] for _, row in events[:TOLD] if row["schedule_id"] is not None}
        words = store.read(operations.schedule_words, ids)
        jobs = store.read(operations.jobs_named, sorted({row["job"] for _, row in events[:TOLD]}))
        for name, row in events[:TOLD]:
            self._tell(name, _event(row, words, jobs.get(row["job"])))
        if len(events) > TOLD:
            self._tell("more", {"events": len(events) - TOLD})

    def _tell_workers(self, store: Store) -> None:
        now = frozenset(one["id"] for one in store.read(operations.list_workers, limit=TOLD))
        if self._workers is not None and now != self._workers:
            self._tell("workers", {"came": sorted(now - self._workers),
                                   "went": sorted(self._workers - now)})  # fmt: skip
        self._workers = now


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The runs that a step sees; `ended` are those whose end was not told, in their order."""

    now_at: datetime
    made: list[dict[str, Any]]
    running: Mapping[int, dict[str, Any]]
    gone: list[dict[str, Any]]
    ended: list[dict[str, Any]]


class Memory:
    """The last REMEMBERED things that were told, each with a number if it has one."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, int] = OrderedDict()

    def __contains__(self, thing: Any) -> bool:
        return thing in self._kept

    def get(self, thing: Any, otherwise: int) -> int:
        return self._kept.get(thing, otherwise)

    def add(self, thing: Any, number: int = 0) -> bool:
        """False if it was there."""
        if thing in self._kept:
            return False
        self.put(thing, number)
        return True

    def put(self, thing: Any, number: int) -> None:
        self._kept[thing] = number
        self._kept.move_to_end(thing)
        if len(self._kept) > REMEMBERED:
            self._kept.popitem(last=False)


def _end_of(row: Mapping[str, Any]) -> tuple[int, int, datetime]:
    return row["seq"], row["redo"], row["finished_at"]


def _attempt_of(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["seq"], row["attempt"]


def _has_rows(row: Mapping[str, Any]) -> bool:
    """False for a run that succeeded at once: its only attempt is the run itself."""
    return bool(row["state"] != "succeeded" or row["attempt"] > 1)


def _event(
    row: Mapping[str, Any], words: Mapping[int, tuple[str, str]], job: Job | None
) -> dict[str, Any]:
    """What listeners in the settling process are given, as far as the rows say it."""
    schedule_name, schedule = words.get(row["schedule_id"], (None, None))
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
        "file_path": None if job is None else job.file_path,
        "schedule": schedule,
        "schedule_name": schedule_name,
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
