"""Keep the ledger bounded: old rows are folded into stretches, never past the cursor."""

from __future__ import annotations

from datetime import datetime

from rota.storage.engine import Row, Transaction


def occurrence_at(tx: Transaction, schedule_id: int, at: datetime) -> Row | None:
    """The ledger row that an instant stands in, alone or within a stretch."""
    return tx.one("occurrence_at", schedule_id=schedule_id, instant=at)


def list_occurrences(
    tx: Transaction, schedule_id: int, *, before: datetime, limit: int
) -> list[Row]:
    return tx.all("list_occurrences", schedule_id=schedule_id, before=before, limit=limit)


def ledger_ids(tx: Transaction, *, after: int, limit: int) -> list[int]:
    """Schedules that have ledger rows, also dropped ones, a page at a time."""
    found = tx.all("ledger_ids", after=after, limit=limit)
    return [row["schedule_id"] for row in found]


def uncounted_range(tx: Transaction) -> tuple[Row, Row | None] | None:
    """A stretch that was too long to count when it was written, and the row of its schedule; None
    if there is none."""
    row = tx.one("uncounted_occurrence")
    if row is None:
        return None
    return row, tx.one("schedules_by_id", ids=[row["schedule_id"]])


def put_count(tx: Transaction, uncounted: Row, count: int) -> None:
    """Say how many occurrences such a stretch has."""
    asked = {"schedule_id": uncounted["schedule_id"], "occurrence": uncounted["occurrence"]}
    tx.many("count_occurrences", [{**asked, "count": count}])
    if uncounted["run_id"] is not None and uncounted["outcome"] == "coalesced":
        tx.all("count_run", run_id=uncounted["run_id"], count=count + 1)


def fold_ledger(
    tx: Transaction, schedule_id: int, *, age_seconds: float, keep_rows: int, limit: int
) -> int:
    """Fold a bounded number of the oldest rows of one schedule; how many rows it saved.

    Rows are old when they were recorded `age_seconds` ago or are not among the newest
    `keep_rows`. The cursor's own stretch of the ledger is never old: it lies ahead.
    """
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
