"""Fold old ledger rows into stretches, so that a ledger stays small for ever.

Neighbours with the same outcome become one row, which loses nothing but their run ids. Where
outcomes alternate that saves little; then each outcome becomes one row, and only how many of
each there were, and between which instants, is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """`count` None: more than were counted when it was written."""

    occurrence: datetime
    last_occurrence: datetime
    count: int | None
    outcome: str
    reason: str | None


def fold(rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    """The same history in fewer rows; `rows` are in order of their occurrence."""
    folded = _fold_neighbours(rows)
    return folded if 2 * len(folded) <= len(rows) else _fold_outcomes(rows)


def _fold_neighbours(rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    folded: list[LedgerRow] = []
    for row in rows:
        if folded and folded[-1].outcome == row.outcome:
            folded[-1] = _joined(folded[-1], row)
        else:
            folded.append(row)
    return folded


def _fold_outcomes(rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    folded: dict[str, LedgerRow] = {}
    for row in rows:
        first = folded.get(row.outcome)
        folded[row.outcome] = row if first is None else _joined(first, row)
    return sorted(folded.values(), key=lambda row: row.occurrence)


def _joined(first: LedgerRow, then: LedgerRow) -> LedgerRow:
    unknown = first.count is None or then.count is None
    return LedgerRow(
        occurrence=first.occurrence,
        last_occurrence=max(first.last_occurrence, then.last_occurrence),
        count=None if unknown else (first.count or 0) + (then.count or 0),
        outcome=first.outcome,
        reason=first.reason if first.reason == then.reason else "several (folded)",
    )
