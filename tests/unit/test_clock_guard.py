"""The guard against clocks that jump: one odd reading fires nothing, two that agree count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.model.clock import TOLERANCE, ClockGuard

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def readings(*pairs: tuple[float, float]) -> list[bool]:
    """What the guard says to (wall clock, monotonic) readings, in seconds after noon."""
    guard = ClockGuard()
    return [guard.accepts(NOON + timedelta(seconds=wall), real) for wall, real in pairs]


def test_time_that_passes_is_accepted() -> None:
    assert readings((0, 0), (1, 1), (60, 60), (61, 60.5), (3_600, 3_600)) == [True] * 5


def test_the_first_reading_is_accepted_whatever_it_says() -> None:
    assert readings((10**9, 0)) == [True]


def test_a_jump_ahead_is_believed_when_a_second_reading_agrees() -> None:
    assert readings((0, 0), (7_200, 1), (7_201, 2), (7_202, 3)) == [True, False, True, True]


def test_a_jump_back_is_believed_when_a_second_reading_agrees() -> None:
    assert readings((0, 0), (-7_200, 1), (-7_199, 2), (-7_198, 3)) == [True, False, True, True]


def test_two_readings_within_a_second_do_not_confirm_each_other() -> None:
    assert readings((0, 0), (7_200, 1), (7_200.5, 1.5), (7_200.9, 1.9), (7_201, 2)) == [
        True, False, False, False, True,
    ]  # fmt: skip


def test_one_odd_reading_between_good_ones_is_forgotten() -> None:
    assert readings((0, 0), (7_200, 1), (2, 2), (7_203, 3), (4, 4)) == [
        True, False, True, False, True,
    ]  # fmt: skip


def test_readings_that_never_agree_are_never_believed() -> None:
    jumping = [(step * 1_000.0, step) for step in range(1, 20)]
    assert readings((0, 0), *jumping) == [True] + [False] * 19


def test_a_laptop_that_slept_goes_on_after_a_second() -> None:
    # The monotonic clock stands still while the machine is suspended.
    night = 8 * 3_600
    assert readings((0, 0), (5, 5), (night + 6, 6), (night + 7, 7)) == [True, True, False, True]


def test_a_clock_that_counts_sleep_needs_no_second_reading() -> None:
    night = 8 * 3_600
    assert readings((0, 0), (night, night)) == [True, True]


@pytest.mark.parametrize("direction", [1, -1])
def test_small_corrections_are_ordinary(direction: int) -> None:
    edge = TOLERANCE.total_seconds()
    assert readings((0, 0), (1 + direction * edge, 1)) == [True, True]
    assert readings((0, 0), (1 + direction * (edge + 1), 1)) == [True, False]


def test_a_slow_drift_is_followed() -> None:
    drifting = [(step * 1.2, step) for step in range(0, 1_000, 10)]
    assert readings(*drifting) == [True] * 100


@given(st.lists(st.floats(0.01, 3_600), max_size=20), st.floats(-(10**6), 10**6))
def test_any_jump_is_believed_within_two_readings(steps: list[float], jump: float) -> None:
    guard, real = ClockGuard(), 0.0
    for step in steps:
        real += step
        assert guard.accepts(NOON + timedelta(seconds=real), real)
    answers = []
    for step in (0.5, 1.5, 1.5):
        real += step
        answers.append(guard.accepts(NOON + timedelta(seconds=real + jump), real))
    assert answers[1:] == [True, True] or (not steps and answers == [True] * 3)
