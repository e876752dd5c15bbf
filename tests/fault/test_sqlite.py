"""The campaign on SQLite, in its short form."""

import pytest

from tests.fault.bench import Bench

pytestmark = pytest.mark.timeout(240)


def test_a_hundred_kills_break_no_promise(file_bench: Bench) -> None:
    assert file_bench.run("kills", "sqlite", seed=1, times=100).counts["SIGKILL"] == 100


def test_a_crash_at_every_point_breaks_no_promise(file_bench: Bench) -> None:
    assert file_bench.run("crash-points", "sqlite", seed=1, times=1).counts["crash point"] > 100


def test_those_who_wake_after_their_lease_break_no_promise(file_bench: Bench) -> None:
    assert file_bench.run("zombies", "sqlite", seed=1, times=15).counts["zombie"] == 15


def test_a_crash_while_the_store_is_made_leaves_it_to_the_next(file_bench: Bench) -> None:
    assert file_bench.run("beginnings", "sqlite", seed=1, times=1).counts["crash point"] > 5
