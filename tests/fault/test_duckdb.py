"""The campaign on DuckDB, whose file one process at a time has, in its short form."""

import pytest

from tests.fault.bench import Bench

pytestmark = pytest.mark.timeout(600)


def test_kills_of_the_only_process_break_no_promise(file_bench: Bench) -> None:
    assert file_bench.run("kills", "duckdb", seed=1, times=20).counts["SIGKILL"] == 20


def test_a_crash_while_the_store_is_made_leaves_it_to_the_next(file_bench: Bench) -> None:
    assert file_bench.run("beginnings", "duckdb", seed=1, times=1).counts["crash point"] > 3


@pytest.mark.long
def test_a_crash_at_every_point_breaks_no_promise(file_bench: Bench) -> None:
    assert file_bench.run("crash-points", "duckdb", seed=1, times=1).counts["crash point"] > 100
