"""Folding the ledger: fewer rows, the same counts, nothing outside its bounds."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rota.model.fold import LedgerRow, merge_rows

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def row(
    minute: int, outcome: str = "fired", count: int | None = 1, **told: str | None
) -> LedgerRow:
    length = 1 if count is None else count
    return LedgerRow(
        occurrence=NOON + minute * MINUTE,
        last_occurrence=NOON + (minute + length - 1) * MINUTE,
        count=count,
        outcome=outcome,
        reason=told.get("reason"),
    )


histories = st.lists(
    st.tuples(st.sampled_from(["fired", "skipped", "missed"]), st.integers(1, 5)), max_size=60
)


def history(parts: list[tuple[str, int]]) -> list[LedgerRow]:
    rows, minute = [], 0
    for outcome, count in parts:
        rows.append(row(minute, outcome, count))
        minute += count
    return rows


def counts(rows: list[LedgerRow]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in rows:
        assert one.count is not None
        found[one.outcome] += one.count
    return found


@given(histories)
def test_folding_keeps_counts_and_bounds_in_fewer_rows(parts: list[tuple[str, int]]) -> None:
    rows = history(parts)
    folded = merge_rows(rows)
    assert counts(folded) == counts(rows)
    assert len(folded) <= max(3, len(rows) // 2)
    assert [one.occurrence for one in folded] == sorted(one.occurrence for one in folded)
    if rows:
        assert folded[0].occurrence == rows[0].occurrence
        assert max(one.last_occurrence for one in folded) == rows[-1].last_occurrence


def test_neighbours_with_the_same_outcome_become_one() -> None:
    rows = [row(0), row(1), row(2), row(3, "skipped"), row(4, "skipped"), row(5, "skipped")]
    fired, skipped = merge_rows(rows)
    assert (fired.outcome, fired.count, fired.last_occurrence) == ("fired", 3, NOON + 2 * MINUTE)
    assert (skipped.outcome, skipped.count) == ("skipped", 3)
    assert skipped.occurrence == NOON + 3 * MINUTE


def test_what_alternates_becomes_one_row_for_each_outcome() -> None:
    rows = [row(minute, ("fired", "skipped")[minute % 2]) for minute in range(20)]
    fired, skipped = merge_rows(rows)
    assert (fired.count, skipped.count) == (10, 10)
    assert (fired.occurrence, fired.last_occurrence) == (NOON, NOON + 18 * MINUTE)
    assert (skipped.occurrence, skipped.last_occurrence) == (NOON + MINUTE, NOON + 19 * MINUTE)


def test_a_count_that_was_not_known_stays_so() -> None:
    (one,) = merge_rows([row(0, "missed", None), row(9, "missed", 5)])
    assert one.count is None


def test_a_reason_is_kept_where_all_say_the_same() -> None:
    (same,) = merge_rows([row(0, reason="a"), row(1, reason="a")])
    (mixed,) = merge_rows([row(0, reason="a"), row(1, reason="b")])
    assert (same.reason, mixed.reason) == ("a", "several (folded)")


def test_nothing_folds_to_nothing() -> None:
    assert merge_rows([]) == []
