"""What surfaces show beyond rows by their name: counts, what changed, what is wrong, what comes.

Every statement here is bounded, and goes down an index wherever the engine has one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from rota.model.run import Attempt
from rota.model.schedule import Schedule
from rota.storage import rows
from rota.storage.engine import Row, Transaction
from rota.storage.scripts.base import Script


class LookScript(Script):
    # What changed

    def follow_position(self) -> Row:
        """Where the rows end now: what comes after is new."""

        def read(tx: Transaction) -> Row:
            found = tx.one("follow_position")
            assert found is not None
            return {**found, "now_at": self._now(tx)}

        return self.engine.read(read)

    def changes_since(
        self, *, seq: int, audit_id: int, since_at: datetime, until_at: datetime, limit: int
    ) -> Row:
        """Runs that were made, run now, and have ended since; and what people did."""

        def read(tx: Transaction) -> Row:
            return {
                "now_at": self._now(tx),
                "made": tx.all("brief_runs_after", after=seq, limit=limit),
                "running": tx.all("brief_running", limit=limit),
                "ended": tx.all("brief_ended", since_at=since_at, until_at=until_at, limit=limit),
                "actions": tx.all("audit_after", after=audit_id, limit=limit),
            }

        return self.engine.read(read)

    def brief_runs(self, seqs: Collection[int]) -> list[Row]:
        return self.engine.read(lambda tx: tx.all("brief_runs", seqs=sorted(seqs)))

    def attempts_above(self, numbers: Mapping[int, int], *, limit: int) -> list[Attempt]:
        """Those of several runs that ended, in their order; `numbers` says above which one, by the
        seq of the run."""
        if not numbers:
            return []
        told = {"seqs": list(numbers), "numbers": list(numbers.values())}
        found = self.engine.read(lambda tx: tx.all("attempts_above", **told, limit=limit))
        return [rows.attempt(row) for row in found]

    def schedule_names(self, ids: Collection[int]) -> dict[int, str]:
        """Those of them that there still are."""
        if not ids:
            return {}
        found = self.engine.read(lambda tx: tx.all("schedules_by_id", ids=sorted(ids)))
        return {row["id"]: row["name"] for row in found}

    # What is there, and what is wrong with it

    def count_by_state(self, since_at: datetime, *, limit: int) -> dict[str, int]:
        """Runs that have not ended, and those that ended since; each counted up to the limit."""

        def read(tx: Transaction) -> list[Row]:
            return [
                *tx.all("count_open", limit=limit),
                *tx.all("count_ended", since_at=since_at, limit=limit),
            ]

        return {row["state"]: row["runs"] for row in self.engine.read(read)}

    def count_schedules(self) -> Row:
        """How many there are, are paused and are broken; and whether anything is claimed."""

        def read(tx: Transaction) -> Row:
            return {**(tx.one("count_schedules") or {}), "dispatch": self._dispatch(tx)}

        return self.engine.read(read)

    def look_for_problems(self, *, late_at: datetime, lost_at: datetime, limit: int) -> Row:
        """The rows that somebody should look at; `late_at` and `lost_at` are what cursors and
        leases should be later than."""

        def read(tx: Transaction) -> Row:
            late = tx.all("schedule_ids_due", until_at=late_at, limit=limit)
            ids = [row["id"] for row in late]
            return {
                "broken_schedules": tx.all("broken_schedules", limit=limit),
                "paused_schedules": tx.all("paused_schedules", limit=limit),
                "broken_jobs": tx.all("broken_jobs", limit=limit),
                "late_schedules": tx.all("schedules_by_id", ids=ids) if ids else [],
                "stuck": tx.one("stuck_leases", before_at=lost_at),
                "dispatch": self._dispatch(tx),
            }

        return self.engine.read(read)

    def queued_jobs(self, *, limit: int) -> list[Row]:
        return self.engine.read(lambda tx: tx.all("queued_jobs", limit=limit))

    def dead_runs(self, *, before: int, limit: int) -> list[Row]:
        """The dead, newest first, with their errors."""
        return self.engine.read(lambda tx: tx.all("dead_runs", before=before, limit=limit))

    # What was, and what comes

    def runs_between(
        self, since_at: datetime, until_at: datetime, *, limit: int, looked: int
    ) -> tuple[list[Row], bool]:
        """Those that run, those that ran across the end of this stretch, and those that ended in
        it, the latest first. Of what ended later only the first `looked` are known; true if there
        were so many."""

        def read(tx: Transaction) -> tuple[list[Row], bool]:
            later = tx.all("ended_from", from_at=until_at, limit=looked)
            begun = [one for one in later if one["started_at"] and one["started_at"] < until_at]
            seqs = [one["seq"] for one in begun[-limit:]]
            across = tx.all("brief_runs", seqs=seqs) if seqs else []
            found = [
                *tx.all("brief_running", limit=limit),
                *sorted(across, key=lambda one: one["finished_at"], reverse=True),
                *tx.all("brief_ended", since_at=since_at, until_at=until_at, limit=limit),
            ]
            return found, len(later) >= looked

        return self.engine.read(read)

    def schedules_due(self, until_at: datetime, *, limit: int) -> list[Schedule]:
        """Schedules that fire until then, the earliest first."""

        def read(tx: Transaction) -> list[Row]:
            ids = [row["id"] for row in tx.all("schedule_ids_due", until_at=until_at, limit=limit)]
            return tx.all("schedules_by_id", ids=ids) if ids else []

        return [rows.schedule(row) for row in self.engine.read(read)]

    def recent_durations(self, names: Sequence[str], *, limit: int) -> dict[str, float]:
        """What the last runs of each job took on average, in seconds."""
        if not names:
            return {}
        found = self.engine.read(
            lambda tx: tx.all("recent_durations", names=sorted(names), limit=limit)
        )
        return {row["job"]: float(row["seconds"]) for row in found}

    def recent_outcomes(self, ids: Collection[int], *, limit: int) -> dict[int, list[Row]]:
        """The last rows of the ledger of each schedule, newest first, with their runs' states."""
        if not ids:
            return {}
        found = self.engine.read(lambda tx: tx.all("recent_outcomes", ids=sorted(ids), limit=limit))
        told: dict[int, list[Row]] = {}
        for row in found:
            told.setdefault(row.pop("schedule_id"), []).append(row)
        return told
