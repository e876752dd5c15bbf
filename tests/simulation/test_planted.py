"""The simulation finds bugs that were put in on purpose, soon, and says how to replay them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.history import Failed
from tests.simulation.planted import PLANTED
from tests.simulation.scenario import Plant, simulate

SEEDS = 200


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def first_failure(plant: Plant) -> Failed | None:
    for seed in range(SEEDS):
        try:
            simulate(seed, plant)
        except Failed as failed:
            return failed
    return None


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    failed = first_failure(PLANTED[bug])
    assert failed is not None, f"{SEEDS} seeds, and nobody noticed: {bug}"
    simulate(failed.seed)  # it was the bug: without it the same seed is clean


def test_a_failure_tells_how_to_replay_it() -> None:
    failed = first_failure(PLANTED["settle without fence"])
    assert f"python -m tests.simulation {failed.seed}" in str(failed)
