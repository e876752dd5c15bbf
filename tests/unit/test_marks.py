"""Marks: when a claim begins where the last look ended, and where that is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from rota.model.run import ClaimedRun
from rota.storage.postgres.marks import (
    LONG_SECONDS,
    LOOK_SECONDS,
    MOST_MARKS,
    SLOW_LOOKS,
    SLOW_SECONDS,
    Marks,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BLANK: dict[str, Any] = dict.fromkeys(ClaimedRun.__struct_fields__)


def slow_marks() -> Marks:
    known = Marks()
    for _ in range(SLOW_LOOKS):
        known.looked([], SLOW_SECONDS * 2, now=0.0, jobs=(), limit=1)
    return known


def run_of(queue: str, priority: int, minutes_ago: int) -> ClaimedRun:
    due_at = NOW - timedelta(minutes=minutes_ago)
    return ClaimedRun(**BLANK | {"queue": queue, "priority": priority, "due_at": due_at})


def test_a_long_look_that_took_less_than_it_could_passed_by_every_line() -> None:
    known = slow_marks()
    known.looked([], LONG_SECONDS * 2, now=0.0, jobs=(), limit=1)
    assert known.passed_at == 0.0
    known.passed([("a", 9, NOW), ("b", 0, NOW)], ago=3.0)
    looked_at = NOW - timedelta(seconds=3)
    assert known._marks == {"a": {9: looked_at}, "b": {0: looked_at}}


def test_one_that_took_all_it_could_passed_by_what_is_before_its_last_run() -> None:
    known = slow_marks()
    last = run_of("a", 5, minutes_ago=60)
    known.looked([last], LONG_SECONDS * 2, now=0.0, jobs=(), limit=1)
    known.passed([("a", 9, NOW), ("a", 5, NOW), ("b", 5, NOW), ("b", 4, NOW)], ago=0.0)
    assert known._marks == {"a": {9: NOW, 5: last.due_at}, "b": {5: last.due_at}}


def test_marks_behind_the_last_run_of_a_look_are_forgotten() -> None:
    """Many may have come there at once, and a second is for one look of them only."""
    known = slow_marks()
    known.claimed([run_of(queue, priority, 1) for queue in "ab" for priority in (9, 5, 4)])
    last = run_of("a", 5, minutes_ago=60)
    known.looked([last], LONG_SECONDS / 2, now=0.0, jobs=(), limit=1)
    recent = NOW - timedelta(minutes=1)
    assert known._marks == {queue: {9: recent, 5: last.due_at} for queue in "ab"}
    known.looked([run_of("a", 4, 50)], LONG_SECONDS / 2, now=1.0, jobs=(), limit=2)
    assert known._marks["a"][5] == last.due_at  # it went to the end, and has no more than that
    assert known.passed_at is None


def test_more_lines_than_marks_may_be_are_not_marked() -> None:
    known = slow_marks()
    known.looked([], LONG_SECONDS * 2, now=0.0, jobs=(), limit=1)
    known.passed([("a", priority, NOW) for priority in range(MOST_MARKS + 1)], ago=0.0)
    assert known._marks == {}
    assert known.usable(0.1, ())


def test_another_list_of_jobs_wants_a_look() -> None:
    known = slow_marks()
    assert known.usable(0.1, ())
    assert not known.usable(0.1, ["learned"])


def test_marks_are_used_after_slow_looks_in_a_row_only() -> None:
    known = Marks()

    def look(seconds: float, now: float) -> None:
        known.looked([], seconds, now, jobs=(), limit=1)

    for now in range(SLOW_LOOKS - 1):
        look(SLOW_SECONDS * 2, now)
        assert not known.usable(now + 0.1, ())
    look(SLOW_SECONDS / 2, 10.0)
    assert not known.slow
    for now in range(20, 20 + SLOW_LOOKS):
        assert not known.slow
        look(SLOW_SECONDS * 2, now)
    assert known.usable(now + LOOK_SECONDS / 2, ())
    assert not known.usable(now + LOOK_SECONDS, ())
    look(SLOW_SECONDS * 2, 30.0)  # one more keeps them
    assert known.usable(30.1, ())
    look(SLOW_SECONDS / 2, 31.0)
    assert not known.usable(31.1, ())
