"""Marks: when a claim begins where the last look ended, and where that is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from rota.model.run import Claimed
from rota.storage.postgres.marks import (
    LONG_SECONDS,
    LOOK_SECONDS,
    LOOK_SHARE,
    MOST_LOOK_SECONDS,
    SLOW_LOOKS,
    SLOW_SECONDS,
    Marks,
)

BLANK: dict[str, Any] = dict.fromkeys(Claimed.__struct_fields__)


def slow_marks() -> Marks:
    known = Marks()
    for _ in range(SLOW_LOOKS):
        known.looked([], SLOW_SECONDS * 2, now=0.0, jobs=(), limit=1)
    return known


def test_a_look_that_took_all_it_could_passed_by_what_is_before_its_last_run() -> None:
    known = slow_marks()
    now = datetime(2026, 1, 1, tzinfo=UTC)
    last = Claimed(**BLANK | {"queue": "a", "priority": 5, "due_at": now - timedelta(hours=1)})
    known.looked([last], LONG_SECONDS * 2, now=0.0, jobs=(), limit=1)
    assert known.passed_at == 0.0
    known.passed([("a", 9, now), ("a", 5, now), ("b", 5, now), ("b", 4, now)])
    assert known.passed_at is None
    assert known._marks == {"a": {9: now, 5: last.due_at}, "b": {5: last.due_at}}


def test_a_look_that_takes_long_comes_less_often() -> None:
    known = slow_marks()
    known.looked([], 5.0, now=0.0, jobs=(), limit=1)  # it may have waited for something else
    assert not known.usable(LOOK_SECONDS, ())
    known.looked([], 0.2, now=10.0, jobs=(), limit=1)
    assert known.usable(10.0 + 0.2 * LOOK_SHARE - 0.1, ())
    assert not known.usable(10.0 + 0.2 * LOOK_SHARE, ())
    for _ in range(2):
        known.looked([], 60.0, now=20.0, jobs=(), limit=1)
    assert not known.usable(20.0 + MOST_LOOK_SECONDS, ())


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
