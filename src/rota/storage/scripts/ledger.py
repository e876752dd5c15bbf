"""Keep the ledger bounded: old rows are folded into stretches, never past the cursor."""

from __future__ import annotations

from rota.errors import Invalid, Unknown
from rota.model.limits import MISSED_COUNT
from rota.model.plan import count_range
from rota.model.schedule import Schedule
from rota.storage import rows
from rota.storage.engine import Transaction
from rota.storage.scripts.base import Script


class LedgerScript(Script):
    def ledger_ids(self, *, after: int, limit: int) -> list[int]:
        """Schedules that have ledger rows, also dropped ones, a page at a time."""
        found = self.engine.read(lambda tx: tx.all("ledger_ids", after=after, limit=limit))
        return [row["schedule_id"] for row in found]

    def count_uncounted(self) -> bool:
        """Count one stretch that was too long to count when it was written; False if none is.

        Outside the transaction: it may take a second.
        """
        row = self.engine.read(lambda tx: tx.one("uncounted_occurrence"))
        if row is None:
            return False
        asked = {"schedule_id": row["schedule_id"], "occurrence": row["occurrence"]}
        try:
            schedule = self._schedule_by_id(row["schedule_id"])
            count = count_range(schedule, row["occurrence"], row["last_occurrence"])
        except (Invalid, Unknown):
            count = MISSED_COUNT  # the calendar is gone or another one: at least so many

        def work(tx: Transaction) -> None:
            tx.many("count_occurrences", [{**asked, "count": count}])
            if row["run_id"] is not None and row["outcome"] == "coalesced":
                tx.all("count_run", run_id=row["run_id"], count=count + 1)

        self.engine.write("count_uncounted", work)
        return True

    def _schedule_by_id(self, schedule_id: int) -> Schedule:
        found = self.engine.read(lambda tx: tx.all("schedules_by_id", ids=[schedule_id]))
        if not found:
            raise Unknown(f"schedule {schedule_id} was dropped")
        return rows.checked_schedule(found[0])

    def fold_ledger(
        self, schedule_id: int, *, age_seconds: float, keep_rows: int, limit: int
    ) -> int:
        """Fold a bounded number of the oldest rows of one schedule; how many rows it saved.

        Rows are old when they were recorded `age_seconds` ago or are not among the newest
        `keep_rows`. The cursor's own stretch of the ledger is never old: it lies ahead.
        """

        def work(tx: Transaction) -> int:
            old = tx.all(
                "foldable_occurrences",
                schedule_id=schedule_id,
                age_seconds=age_seconds,
                keep_rows=keep_rows,
                limit=limit,
            )
            from rota.model.fold import LedgerRow, merge_rows

            ledger = [LedgerRow(**row) for row in old]
            merged = merge_rows(ledger)
            if len(merged) == len(ledger):
                return 0
            kept = {row.occurrence: row for row in merged}
            gone = [row for row in ledger if row.occurrence not in kept]
            tx.many(
                "delete_occurrences",
                [{"schedule_id": schedule_id, "occurrence": row.occurrence} for row in gone],
            )
            tx.many(
                "stretch_occurrences",
                [
                    {
                        "schedule_id": schedule_id,
                        "occurrence": row.occurrence,
                        "last_occurrence": row.last_occurrence,
                        "count": row.count,
                        "reason": row.reason,
                    }
                    for row in merged
                    if row not in ledger
                ],
            )
            return len(gone)

        return self.engine.write("fold_ledger", work)
