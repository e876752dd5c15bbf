"""What a schedule does when one of its runs dies."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.model.on_error import MOST_RETRIES, DeadRunAction, on_dead_run, retry_id
from rota.model.run import Run
from rota.model.schedule import WAITING_FOR_RUN, Schedule

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
BLANK: dict[str, Any] = {field.name: None for field in fields(Run)}
DEAD = Run(**{**BLANK, "id": "run-7", "created_at": NOON, "due_at": NOON, "redo": 0})
NOTHING = DeadRunAction()


def schedule(**told: Any) -> Schedule:
    fixed = {
        "name": "s",
        "job": "j",
        "kind": "every",
        "expr": "1d",
        "next_fire_at": NOON + 9 * HOUR,
    }
    return Schedule(**{**fixed, **told})


@pytest.mark.parametrize(
    ("told", "deaths", "reaction"),
    [
        ({}, 1, NOTHING),
        ({}, 99, NOTHING),
        ({"on_error": "pause"}, 1, DeadRunAction(pause_reason="run run-7 died (on_error = pause)")),
        ({"on_error": "retry"}, 1, DeadRunAction(retry_at=NOON + MINUTE)),
        ({"on_error": "retry", "enabled": False}, 1, NOTHING),
        ({"pause_after": 3}, 2, NOTHING),
        (
            {"on_error": "pause", "pause_after": 3}, 1,
            DeadRunAction(pause_reason="run run-7 died (on_error = pause, which does not wait for "
                                  "pause_after = 3)"),
        ),
        (
            {"pause_after": 3}, 3,
            DeadRunAction(pause_reason="3 runs in a row died (pause_after = 3; attempts are not "
                                  "counted), the last: run-7"),
        ),
        (
            {"pause_after": 3, "on_error": "retry"}, 4,
            DeadRunAction(pause_reason="4 runs in a row died (pause_after = 3; attempts are not "
                                  "counted), the last: run-7"),
        ),
        ({"pause_after": 3, "on_error": "retry"}, 2, DeadRunAction(retry_at=NOON + MINUTE)),
        ({"pause_after": 1, "paused": True, "on_error": "pause"}, 5, NOTHING),
    ],
)  # fmt: skip
def test_what_a_death_leads_to(told: dict[str, Any], deaths: int, reaction: DeadRunAction) -> None:
    assert on_dead_run(schedule(**told), DEAD, NOON, deaths, 0) == reaction


@pytest.mark.parametrize(
    ("retries", "wait"),
    [(0, MINUTE), (1, 2 * MINUTE), (2, 4 * MINUTE), (10, 1024 * MINUTE), (MOST_RETRIES, None)],
)
def test_each_retry_waits_twice_as_long_up_to_a_day(retries: int, wait: timedelta | None) -> None:
    endless = schedule(on_error="retry", next_fire_at=None)
    # What its row says of times is of its last attempt.
    died = replace(DEAD, retry_of="run-6" if retries else None, due_at=NOON + 5 * HOUR)
    reaction = on_dead_run(endless, died, NOON, 2, retries)
    assert reaction.retry_at == (None if wait is None else NOON + wait)


@pytest.mark.parametrize(
    ("following", "retried"),
    [
        (NOON + MINUTE - timedelta(microseconds=1), False),
        (NOON + MINUTE, False),
        (NOON + MINUTE + timedelta(microseconds=1), True),
        (None, True),
        (WAITING_FOR_RUN, True),
    ],
)
def test_a_retry_never_goes_past_the_next_occurrence(
    following: datetime | None, retried: bool
) -> None:
    reaction = on_dead_run(schedule(on_error="retry", next_fire_at=following), DEAD, NOON, 1, 0)
    assert (reaction.retry_at is not None) is retried


def test_a_dead_run_is_tried_again_by_the_same_run_in_every_process() -> None:
    assert retry_id(DEAD) == "566cbc3b-40f9-5178-9d95-5784ffd9e16d"
    assert retry_id(replace(DEAD, due_at=NOON + HOUR)) == retry_id(DEAD)
    assert retry_id(replace(DEAD, redo=1)) != retry_id(DEAD)
    assert retry_id(replace(DEAD, id="run-8")) != retry_id(DEAD)
