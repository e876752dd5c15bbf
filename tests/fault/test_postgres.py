"""The campaign on PostgreSQL, in its short form: with fast paths, and with plain operations alone.

What both share is not tried twice: waking after a lease, the making of a store, and crash points of
operations that have no fast path and give out no slots.
"""

import pytest

from tests.fault.bench import Bench

pytestmark = pytest.mark.timeout(240)

PLAIN = {"ROTA_TEST_PLAIN": "1"}
# What has a fast path, and what calls the plain `admit` most.
REPLACED = (
    "claiming.claim", "settling.settle", "firing.fire", "enqueueing.enqueue", "slots.admit",
    "slots.promote", "runs.cancel_run",
)  # fmt: skip


def test_a_hundred_kills_break_no_promise(postgres_bench: Bench) -> None:
    assert postgres_bench.run("kills", "postgres", seed=1, times=100).counts["SIGKILL"] == 100


def test_a_crash_at_every_point_breaks_no_promise(postgres_bench: Bench) -> None:
    verdict = postgres_bench.run("crash-points", "postgres", seed=1, times=1)
    assert verdict.counts["crash point"] > 100


def test_kills_break_no_promise_of_the_plain_operations(postgres_bench: Bench) -> None:
    verdict = postgres_bench.run("kills", "postgres", seed=1, times=40, environment=PLAIN)
    assert verdict.counts["SIGKILL"] == 40


def test_a_crash_at_every_point_of_the_plain_operations_breaks_no_promise(
    postgres_bench: Bench,
) -> None:
    asked = {**PLAIN, "ROTA_TEST_POINTS_OF": " ".join(REPLACED)}
    verdict = postgres_bench.run("crash-points", "postgres", seed=1, times=1, environment=asked)
    assert verdict.counts["crash point"] > 40


def test_those_who_wake_after_their_lease_break_no_promise(postgres_bench: Bench) -> None:
    assert postgres_bench.run("zombies", "postgres", seed=1, times=15).counts["zombie"] == 15


def test_a_crash_while_the_store_is_made_leaves_it_to_the_next(postgres_bench: Bench) -> None:
    assert postgres_bench.run("beginnings", "postgres", seed=1, times=1).counts["crash point"] > 5
