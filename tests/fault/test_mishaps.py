"""Cancels, deadlocks, stepped clocks, herds, backlogs and long sleeps, in their short form."""

import pytest

from tests.fault.bench import Bench
from tests.fault.parts import PARTS

pytestmark = pytest.mark.timeout(240)

# Part, engine, times; the others are long.
SHORT = [
    ("cancels", "sqlite", 500),
    ("deadlocks", "postgres", 1),
    ("strangers", "postgres", 1),
    ("backlog", "sqlite", 2),
    ("past-retention", "sqlite", 1),
]
LONG = [
    ("cancels", "postgres", 500),
    ("clock-steps", "sqlite", 4),
    ("clock-steps", "postgres", 4),
    ("herd", "sqlite", 10),
    ("herd", "postgres", 10),
    ("backlog", "postgres", 5),
    ("past-retention", "postgres", 1),
]


@pytest.mark.parametrize(
    ("part", "engine", "times"),
    [*SHORT, *(pytest.param(*one, marks=pytest.mark.long) for one in LONG)],
)
def test_a_mishap_breaks_no_promise(
    postgres_bench: Bench, part: str, engine: str, times: int
) -> None:
    counts = postgres_bench.run(part, engine, seed=1, times=times).counts
    assert counts[PARTS[part].fault] >= times
