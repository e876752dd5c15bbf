"""The simulation finds bugs that were put in on purpose, soon, and says how to replay them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.history import Failed
from tests.simulation.planted import PLANTED, Bug
from tests.simulation.scenario import simulate

SEEDS = 200

# Some show only after many seeds.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def first_failure(bug: Bug) -> Failed | None:
    for seed in range(SEEDS):
        try:
            simulate(seed, bug.plant, bug.focus)
        except Failed as failed:
            return failed
    return None


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    bug = PLANTED[name]
    failed = first_failure(bug)
    assert failed is not None, f"{SEEDS} seeds, and nobody noticed: {name}"
    simulate(failed.seed, focus=bug.focus)  # it was the bug: without it the same seed is clean


def test_a_failure_tells_how_to_replay_it() -> None:
    failed = first_failure(PLANTED["settle without fence"])
    assert f"python -m tests.simulation {failed.seed}" in str(failed)
