"""Settle: what every kind of outcome makes of a run, at and around each limit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from rota.model import secrets
from rota.model.limits import ERROR_LENGTH, REASON_LENGTH
from rota.model.outcome import KINDS, Outcome, error_line, error_text, settle
from rota.model.retry import Retry
from rota.model.run import ClaimedRun
from rota.model.secrets import NO_SECRETS, know
from rota.model.transitions import TERMINAL

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
RUN = ClaimedRun(
    seq=7, id="run-7", job="job", queue="default", attempt=1, failures=0, lost=0, max_attempts=3,
    args="{}", timeout=None, backoff=None, overlap_key=None, concurrency_key=None,
    schedule_id=None, occurrence=None, due_at=NOON, missed_count=1,
)  # fmt: skip
RETRY = Retry(max_attempts=3, delay="10s", backoff="exponential")

# kind, failures and lost before -> state, failures and lost after, delay in seconds.
# Three attempts, three lost leases.
DECISIONS = [
    ("succeeded", 0, 0, "succeeded", 0, 0, 0),
    ("succeeded", 2, 2, "succeeded", 2, 2, 0),
    ("failed", 0, 0, "waiting", 1, 0, 10),
    ("failed", 1, 0, "waiting", 2, 0, 20),
    ("failed", 2, 0, "dead", 3, 0, 0),
    ("failed", 9, 0, "dead", 10, 0, 0),
    ("failed", 0, 2, "waiting", 1, 2, 10),
    ("timed_out", 0, 0, "waiting", 1, 0, 10),
    ("timed_out", 1, 0, "waiting", 2, 0, 20),
    ("timed_out", 2, 0, "dead", 3, 0, 0),
    ("lost", 0, 0, "queued", 0, 1, 0),
    ("lost", 0, 1, "queued", 0, 2, 0),
    ("lost", 0, 2, "dead", 0, 3, 0),
    ("lost", 2, 0, "queued", 2, 1, 0),
    ("cancelled", 0, 0, "cancelled", 0, 0, 0),
    ("cancelled", 2, 2, "cancelled", 2, 2, 0),
    ("released", 0, 0, "queued", 0, 0, 0),
    ("released", 2, 2, "queued", 2, 2, 0),
    ("snoozed", 0, 0, "waiting", 0, 0, 0),
    ("snoozed", 2, 2, "waiting", 2, 2, 0),
    ("paused", 0, 0, "paused", 0, 0, 0),
    ("paused", 2, 2, "paused", 2, 2, 0),
]


@pytest.mark.parametrize(
    ("kind", "failures", "lost", "state", "failures_after", "lost_after", "delay"), DECISIONS
)
def test_what_an_outcome_makes_of_its_run(
    kind: str,
    failures: int,
    lost: int,
    state: str,
    failures_after: int,
    lost_after: int,
    delay: int,
) -> None:
    run = replace(RUN, failures=failures, lost=lost)
    made = settle(run, Outcome(kind=kind), retry=RETRY, max_lost=3)
    assert (made.state, made.failures, made.lost) == (state, failures_after, lost_after)
    assert made.delay == timedelta(seconds=delay)
    assert made.terminal == (state in TERMINAL)
    assert made.expired_only == (kind == "lost")
    assert made.gives_back_slots == (state in TERMINAL or kind == "snoozed")


def test_every_kind_of_outcome_is_in_the_table() -> None:
    assert {row[0] for row in DECISIONS} == set(KINDS)


@pytest.mark.parametrize("kind", ["failed", "timed_out"])
def test_the_outcome_may_choose_its_own_wait(kind: str) -> None:
    for after in (timedelta(0), timedelta(hours=5)):
        made = settle(RUN, Outcome(kind=kind, after=after), retry=RETRY, max_lost=3)
        assert (made.state, made.delay, made.failures) == ("waiting", after, 1)


def test_a_chosen_wait_gives_no_further_attempt() -> None:
    last = replace(RUN, failures=2)
    made = settle(last, Outcome(kind="failed", after=timedelta(1)), retry=RETRY, max_lost=3)
    assert (made.state, made.delay) == ("dead", timedelta(0))


def test_a_snooze_waits_as_long_as_it_says() -> None:
    made = settle(RUN, Outcome(kind="snoozed", after=timedelta(5)), retry=RETRY, max_lost=3)
    assert (made.state, made.delay, made.failures) == ("waiting", timedelta(5), 0)


def test_one_attempt_is_one_attempt() -> None:
    made = settle(RUN, Outcome(kind="failed"), retry=Retry(max_attempts=1), max_lost=1)
    assert made.state == "dead"
    assert settle(RUN, Outcome(kind="lost"), retry=RETRY, max_lost=1).state == "dead"


def test_luck_is_passed_to_the_jitter() -> None:
    retry = Retry(max_attempts=2, delay="10s", jitter="10s")
    made = settle(RUN, Outcome(kind="failed"), retry=retry, max_lost=3, random_value=0.5)
    assert made.delay == timedelta(seconds=15)


@pytest.mark.parametrize("kind", KINDS)
def test_the_attempts_own_outcome(kind: str) -> None:
    made = settle(RUN, Outcome(kind=kind), retry=RETRY, max_lost=3)
    assert made.attempt_outcome == ("released" if kind in ("snoozed", "paused") else kind)


@pytest.mark.parametrize(
    ("changes", "plain"),
    [
        ({}, True),
        ({"attempt": 2}, False),
        ({"overlap_key": "job x"}, False),
        ({"concurrency_key": "tenant"}, False),
        ({"schedule_id": 3}, False),
    ],
)
def test_only_a_first_success_without_slots_is_plain(
    changes: dict[str, object], plain: bool
) -> None:
    run = replace(RUN, **changes)
    assert (
        settle(run, Outcome(kind="succeeded"), retry=RETRY, max_lost=3).is_simple_success is plain
    )
    assert not settle(run, Outcome(kind="failed"), retry=RETRY, max_lost=3).is_simple_success


def test_errors_and_reasons_are_stored_within_their_limits() -> None:
    told = Outcome(kind="failed", error="x" * 100_000 + "\0", reason="y" * 100_000).redacted()
    assert told.error is not None
    assert told.reason is not None
    assert len(told.error) <= ERROR_LENGTH
    assert len(told.reason) <= REASON_LENGTH
    assert "\0" not in told.error


def test_an_outcome_of_no_known_kind_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        Outcome(kind="exploded")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, ""),
        ("", ""),
        (
            "Traceback (most recent call last):\n  File …\nValueError: no bread\n",
            "ValueError: no bread",
        ),
        (
            "01.sql:4: Catalog Error: no such table!\nDid you mean orders?",
            "01.sql:4: Catalog Error: no such table!",
        ),
        ("x" * 101, "x" * 99 + "…"),
    ],
)
def test_the_line_that_names_an_error(text: str | None, line: str) -> None:
    assert error_line(text) == line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, ""),
        ("Catalog Error: no t\nDid you mean u?\n", "Catalog Error: no t\nDid you mean u?"),
        ("x" * 50, "x" * 39 + "…"),
        ("Traceback (most recent call last):\n  File\nValueError: bad", "ValueError: bad"),
    ],
)
def test_all_of_an_error_is_told_as_far_as_it_fits(text: str | None, told: str) -> None:
    assert error_text(text, 40) == told


@pytest.mark.parametrize("shown", [error_line, error_text])
def test_of_a_secret_that_stands_where_an_error_is_cut_nothing_is_left(
    shown: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "_known", secrets._Known({}, NO_SECRETS))
    know(["geheim-geheim"])
    for said in ("geheim-geheim", "postgresql://me:geheim@db", "password=geheim"):
        for length in range(30):
            assert "geh" not in shown("x" * length + f" {said} and more", limit=30)
