"""Merge old ledger rows into ranges, so that a ledger stays small.

Neighbours with the same outcome become one row, which loses only their run ids. Where outcomes
alternate this saves little; then each outcome becomes one row, with the number of its occurrences
and the first and last instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One row of the ledger. `count` None: more than were counted when it was written."""

    occurrence: datetime
    last_occurrence: datetime
    count: int | None
    outcome: str
    reason: str | None


def merge_rows(rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    """The same history in fewer rows; `rows` are ordered by occurrence."""
    merged = _merge_neighbours(rows)
    return merged if 2 * len(merged) <= len(rows) else _merge_outcomes(rows)


def _merge_neighbours(rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    merged: list[LedgerRow] = []
    for row in rows:
        if merged and merged[-1].outcome == row.outcome:
            merged[-1] = _joined(merged[-1], row)
        else:
            merged.append(row)
    return merged


def _merge_outcomes(rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    merged: dict[str, LedgerRow] = {}
    for row in rows:
        first = merged.get(row.outcome)
        merged[row.outcome] = row if first is None else _joined(first, row)
    return sorted(merged.values(), key=lambda row: row.occurrence)


def _joined(first: LedgerRow, then: LedgerRow) -> LedgerRow:
    unknown = first.count is None or then.count is None
    return LedgerRow(
        occurrence=first.occurrence,
        last_occurrence=max(first.last_occurrence, then.last_occurrence),
        count=None if unknown else (first.count or 0) + (then.count or 0),
        outcome=first.outcome,
        reason=first.reason if first.reason == then.reason else "several (folded)",
    )
