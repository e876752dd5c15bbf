"""Keep the ledger bounded: old rows are folded into stretches, never past the cursor."""

from __future__ import annotations

from rota.model.fold import LedgerRow, fold
from rota.storage.engine import Transaction
from rota.storage.scripts.base import Script


class LedgerScript(Script):
    def ledger_ids(self, *, after: int, limit: int) -> list[int]:
        """Schedules that have ledger rows, also dropped ones, a page at a time."""
        found = self.engine.read(lambda tx: tx.all("ledger_ids", after=after, limit=limit))
        return [row["schedule_id"] for row in found]

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
            rows = [LedgerRow(**row) for row in old]
            folded = fold(rows)
            if len(folded) == len(rows):
                return 0
            kept = {row.occurrence: row for row in folded}
            gone = [row for row in rows if row.occurrence not in kept]
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
                    for row in folded
                    if row not in rows
                ],
            )
            return len(gone)

        return self.engine.write("fold_ledger", work)
