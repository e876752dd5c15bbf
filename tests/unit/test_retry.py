"""The wait before the next attempt, for every backoff and any number of failures."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import Invalid
from rota.model.duration import LONGEST
from rota.model.retry import BACKOFFS, MAX_ATTEMPTS, ONCE, Retry

MICROSECOND = timedelta(microseconds=1)

retries = st.builds(
    lambda first, second, **rest: Retry(
        delay=min(first, second), max_delay=max(first, second), **rest
    ),
    st.timedeltas(timedelta(0), LONGEST),
    st.timedeltas(timedelta(0), LONGEST),
    backoff=st.sampled_from(BACKOFFS),
    jitter=st.timedeltas(timedelta(0), LONGEST),
    max_attempts=st.integers(1, MAX_ATTEMPTS),
)


def seconds(retry: Retry, failures: int) -> list[float]:
    return [retry.delay_after(n, 0.0).total_seconds() for n in range(1, failures + 1)]


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        ("none", [0, 0, 0, 0, 0]),
        ("fixed", [10, 10, 10, 10, 10]),
        ("exponential", [10, 20, 40, 80, 160]),
        ("quadratic", [10, 40, 90, 160, 250]),
    ],
)
def test_each_backoff_waits_its_own_way(backoff: str, waits: list[float]) -> None:
    assert seconds(Retry(backoff=backoff, delay="10s"), 5) == waits


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        ("none", [0, 0, 0, 0]),
        ("fixed", [10, 10, 10, 10]),
        ("exponential", [10, 20, 40, 60]),
        ("quadratic", [10, 40, 60, 60]),
    ],
)
def test_max_delay_ends_the_growth(backoff: str, waits: list[float]) -> None:
    assert seconds(Retry(backoff=backoff, delay="10s", max_delay="60s"), 4) == waits


@pytest.mark.parametrize("backoff", ["exponential", "quadratic"])
@pytest.mark.parametrize("delay", ["1us", "1s", "7h", "3660d"])
def test_a_thousand_failures_do_not_overflow(backoff: str, delay: str) -> None:
    retry = Retry(backoff=backoff, delay=delay, max_delay="3660d")
    factor = 2**999 if backoff == "exponential" else 1_000**2
    microseconds = min(LONGEST // MICROSECOND, retry.delay // MICROSECOND * factor)
    assert retry.delay_after(1_000, 0.0) == microseconds * MICROSECOND


@pytest.mark.parametrize("backoff", BACKOFFS)
def test_without_a_delay_nothing_waits(backoff: str) -> None:
    assert Retry(backoff=backoff, delay=0).delay_after(1_000, 0.999) == timedelta(0)


def test_jitter_spreads_by_luck() -> None:
    retry = Retry(delay="10s", jitter="4s")
    assert [retry.delay_after(1, luck).total_seconds() for luck in (0, 0.25, 0.5)] == [10, 11, 12]


@given(retries, st.integers(1, MAX_ATTEMPTS), st.floats(0, 1, exclude_max=True))
def test_a_wait_is_never_past_max_delay_and_jitter(
    retry: Retry, failures: int, luck: float
) -> None:
    wait = retry.delay_after(failures, luck)
    assert timedelta(0) <= wait <= retry.max_delay + retry.jitter


@given(retries, st.integers(1, MAX_ATTEMPTS - 1))
def test_a_wait_never_becomes_shorter(retry: Retry, failures: int) -> None:
    assert retry.delay_after(failures, 0.0) <= retry.delay_after(failures + 1, 0.0)


@given(retries)
def test_the_stored_form_reads_back(retry: Retry) -> None:
    assert Retry.from_dict(retry.to_dict()) == retry


def test_what_is_said_nowhere_is_three_attempts_five_seconds_apart() -> None:
    assert Retry().to_dict() == {
        "max_attempts": 3, "backoff": "fixed", "delay": "5s", "max_delay": "1h", "jitter": "0s",
    }  # fmt: skip
    assert ONCE.max_attempts == 1


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"max_attempts": 0}, "max_attempts 0 must be a whole number from 1 to 1000"),
        ({"max_attempts": 1_001}, "max_attempts 1001 must be a whole number from 1 to 1000"),
        ({"max_attempts": "3"}, "max_attempts '3' must be a whole number"),
        ({"backoff": "linear"}, "backoff 'linear' is unknown; use none, fixed, exponential"),
        ({"delay": "soon"}, "delay 'soon' is not a duration; use text like"),
        ({"max_delay": -1}, "max_delay -1 must be zero or more"),
        ({"jitter": "1x"}, "jitter '1x' is not a duration"),
        ({"delay": "2h"}, "delay 2h is longer than max_delay 1h; raise max_delay"),
        ({"max_attempt": 3}, "retry 'max_attempt' is unknown; did you mean 'max_attempts'"),
        ({"zzz": 3}, "retry 'zzz' is unknown; use max_attempts, backoff, delay"),
    ],
)
def test_each_bad_value_is_named(told: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=f"^{message}"):
        Retry.from_dict(told)
