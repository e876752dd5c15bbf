"""PostgreSQL that ends without a word, and comes back."""

import pytest

from tests.fault.bench import Bench

pytestmark = pytest.mark.timeout(240)


def test_five_crashes_of_the_server_break_no_promise(durable_bench: Bench) -> None:
    verdict = durable_bench.run("server-crashes", "postgres", seed=1, times=5)
    assert verdict.counts["PostgreSQL crash"] == 5
