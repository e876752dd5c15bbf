"""Follow: the events that are read from the rows, by whoever had no part in what happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rota.flow.follow import Follow
from rota.storage import operations
from tests.api.support import Driven
from tests.conformance.support import claim, settle


@pytest.fixture(autouse=True)
def note(driven: Driven) -> None:
    driven.app.job("note")(lambda: None)
    driven.app.load()


@pytest.fixture
def followed(driven: Driven) -> Callable[[], list[str]]:
    """What is told of runs since the last call, each with its attempt."""
    told: list[str] = []

    def tell(name: str, event: Mapping[str, Any]) -> None:
        if name.startswith(("job.", "attempt.")):
            told.append(f"{name} {event['attempt']}")

    follow = Follow(lambda: driven.store, tell)
    follow.step()

    def step() -> list[str]:
        follow.step()
        found = told[:]
        told.clear()
        return found

    return step


def later(driven: Driven, span: str) -> None:
    driven.clock.advance(span)
    driven.store.write(operations.promote, 100)


def give_back(driven: Driven) -> None:
    (claimed,) = claim(driven.store, 1, jobs=["note"])
    settle(driven.store, claimed, "released", reason="the worker stopped")
    later(driven, "1s")


@pytest.mark.each_engine
def test_a_run_whose_first_attempt_was_given_back_starts_once_with_the_next(
    driven: Driven, followed: Callable[[], list[str]]
) -> None:
    driven.app.enqueue("note")
    give_back(driven)
    assert followed() == ["attempt.released 1"]
    (claimed,) = claim(driven.store, 1, jobs=["note"])
    assert followed() == ["job.started 2", "attempt.started 2"]
    settle(driven.store, claimed, "failed", ran_seconds=1)
    later(driven, "1m")
    claim(driven.store, 1, jobs=["note"])
    assert followed() == ["attempt.failed 2", "attempt.started 3"]


def test_a_run_that_was_given_back_and_ended_between_two_looks_started_once(
    driven: Driven, followed: Callable[[], list[str]]
) -> None:
    driven.app.enqueue("note")
    give_back(driven)
    give_back(driven)
    for kind in ("failed", "succeeded"):
        (claimed,) = claim(driven.store, 1, jobs=["note"])
        settle(driven.store, claimed, kind, ran_seconds=1)
        later(driven, "1s")
    assert followed() == [
        "attempt.released 1", "attempt.released 2",
        "job.started 3", "attempt.started 3", "attempt.failed 3",
        "attempt.started 4", "attempt.succeeded 4", "job.completed 4",
    ]  # fmt: skip


def test_a_start_that_was_told_is_not_told_again_when_the_attempt_is_given_back(
    driven: Driven, followed: Callable[[], list[str]]
) -> None:
    driven.app.enqueue("note")
    (claimed,) = claim(driven.store, 1, jobs=["note"])
    assert followed() == ["job.started 1", "attempt.started 1"]
    settle(driven.store, claimed, "released")
    claim(driven.store, 1, jobs=["note"])
    assert followed() == ["attempt.released 1", "attempt.started 2"]


def test_a_run_that_began_before_anybody_followed_does_not_start_again(
    driven: Driven, request: pytest.FixtureRequest
) -> None:
    for _ in range(3):
        driven.app.enqueue("note")
    lost, running, done = claim(driven.store, 3, jobs=["note"])
    settle(driven.store, lost, "failed", ran_seconds=1)
    settle(driven.store, done, ran_seconds=1)
    later(driven, "5s")
    followed: Callable[[], list[str]] = request.getfixturevalue("followed")
    settle(driven.store, running, "failed", ran_seconds=6)
    driven.control.redo(done.id)
    later(driven, "5s")
    assert len(claim(driven.store, 3, jobs=["note"])) == 3
    assert sorted(followed()) == ["attempt.failed 1", *["attempt.started 2"] * 3]
