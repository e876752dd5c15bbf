"""Databases that are busy, full or cut off, and rolling restarts, in their short form."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import rota
from tests.fault.bench import Bench
from tests.fault.campaign import Impossible
from tests.fault.observer import query
from tests.fault.parts import PARTS
from tests.fault.proxy import Proxy
from tests.fault.zygote import ROOT, Zygote
from tests.support.postgres import Cluster

pytestmark = pytest.mark.timeout(240)


def test_no_locked_database_reaches_a_user_in_a_storm(file_bench: Bench) -> None:
    file_bench.run("storm", "sqlite", seed=1, times=4)


def test_a_full_disk_that_is_freed_breaks_no_promise(file_bench: Bench) -> None:
    try:
        file_bench.run("disk-full", "sqlite", seed=1, times=2)
    except Impossible as why:
        pytest.skip(str(why))


def test_rolling_restarts_lose_no_attempt(file_bench: Bench) -> None:
    file_bench.run("rolling-restarts", "sqlite", seed=1, times=6)


def test_sessions_that_the_server_ends_break_no_promise(postgres_bench: Bench) -> None:
    postgres_bench.run("terminations", "postgres", seed=1, times=60)


def test_a_bad_network_breaks_no_promise(postgres_bench: Bench) -> None:
    assert postgres_bench.run("network", "postgres", seed=1, times=8).counts["connections cut"]


@pytest.fixture
def narrow_bench(zygote: Zygote, tmp_path: Path) -> Iterator[Bench]:
    with Cluster(settings={"max_connections": "60"}) as cluster:
        yield Bench(zygote, tmp_path, cluster)


def test_a_server_without_a_connection_left_breaks_no_promise(narrow_bench: Bench) -> None:
    narrow_bench.run("connection-limit", "postgres", seed=1, times=2)


def test_an_enqueue_is_acknowledged_once_wherever_its_connection_is_cut(postgres_url: str) -> None:
    """The answers of the server are cut after n bytes, n swept: one cut eats that to COMMIT."""
    with Proxy(postgres_url) as proxy:
        app = rota.Rota(proxy.url)

        @app.job()
        def job(ctx: rota.Context) -> None: ...

        app.load()
        acknowledged, refused, resolved = set(), 0, 0
        for allowed in range(0, 2_000, 40):
            for options in ({}, {"concurrency_key": "key", "key": f"key {allowed}"}):
                cuts, proxy.cut_after = proxy.cuts, allowed
                try:
                    acknowledged.add(app.enqueue("job", **options).id)
                    resolved += proxy.cuts > cuts
                except rota.Unavailable:
                    refused += 1
                proxy.heal()
        app.close()
    stored = query(postgres_url, "SELECT count(*) FROM {prefix}runs")
    assert refused, "no cut was felt"
    assert resolved, "no answer to COMMIT was lost"
    assert len(acknowledged) <= stored <= len(acknowledged) + refused
    with psycopg.connect(postgres_url) as connection:
        found = [str(row[0]) for row in connection.execute("SELECT id FROM rota_data.runs")]
        named = [str(row[0]) for row in connection.execute("SELECT id FROM rota_data.run_ids")]
    assert acknowledged <= set(found)
    assert sorted(found) == sorted(named)  # where an id can be once


DRIBBLED = """
import sys, rota
from tests.fault.proxy import Proxy

with Proxy(sys.argv[1]) as proxy:
    app = rota.Rota(proxy.url)
    app.job(name="job")(lambda: None)
    app.load()
    proxy.dribble = True
    print([len(app.enqueue("job").id) for _ in range(20)])
    app.close()
"""


def test_an_answer_that_comes_in_pieces_stops_no_other_thread(postgres_url: str) -> None:
    """The pieces come from a thread of the same process: one that cannot run brings none."""
    command = [sys.executable, "-c", DRIBBLED, postgres_url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{[36] * 20}\n", done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("part", "engine"),
    [
        ("storm-long", "sqlite"),
        ("soak", "sqlite"),
        ("soak", "postgres"),
        ("held-transaction", "postgres"),
        ("all-asleep", "sqlite"),
        ("all-asleep", "postgres"),
    ],
)
def test_the_parts_that_measure_work(postgres_bench: Bench, part: str, engine: str) -> None:
    verdict = postgres_bench.run(part, engine, seed=1, times=4 if part == "all-asleep" else 20)
    assert verdict.counts[PARTS[part].fault] > 0
