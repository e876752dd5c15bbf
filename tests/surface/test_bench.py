"""`rota bench` measures, and leaves the store as it was."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.cli import bench as bench_command
from rota.flow.control import Control
from rota.model.job import Job
from rota.storage import operations
from rota.storage.store import open_store
from tests.conformance.support import claim_one, enqueue, new_run
from tests.surface.conftest import Cli, shop

LONG_AGO = timedelta(hours=2)
RUNS = "40"


@pytest.fixture(params=["sqlite", "postgres", "duckdb"])
def url(request: pytest.FixtureRequest, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name == "postgres":
        found: str = request.getfixturevalue("postgres_url")
    else:
        found = {"sqlite": "sqlite:///rota.db", "duckdb": "duckdb:///rota.duckdb"}[name]
    monkeypatch.setenv("ROTA_DATABASE", found)
    return found


def test_it_measures_and_leaves_nothing_behind(
    cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_command, "SINGLES", 5)
    # What housekeeping would change at once: a lease that ran out, a run that is due.
    old = open_store(url, clock=lambda: datetime.now(UTC) - LONG_AGO)
    old.migrate()
    old.write(
        operations.put_jobs,
        [Job(name="job"), Job(name="rota-bench-killed", queue="rota-bench-killed")],
    )
    enqueue(old)
    claim_one(old)
    enqueue(old, due_at=datetime.now(UTC) - timedelta(hours=1))
    old.write(operations.enqueue, [new_run(job="rota-bench-killed", queue="rota-bench-killed")])
    enqueue(old)
    old.close()
    told = cli("bench", "--runs", RUNS, "--json").json
    assert told["runs"] == int(RUNS)
    assert all(told[name] > 0 for name in bench_command.MEANINGS)
    store = open_store(url)
    try:
        assert [run.state for run in store.read(operations.list_runs, limit=9)] == [
            "queued",
            "waiting",
            "running",
        ]
        assert [job.name for job in store.read(operations.list_jobs, limit=9)] == ["job"]
        assert [queue["name"] for queue in store.read(operations.list_queues, limit=9)] == [
            "default"
        ]
        assert store.read(operations.list_workers, limit=9) == []
        (row,) = [
            row for row in store.read(operations.list_audit, limit=9) if row["action"] == "bench"
        ]
        assert row["after"] == f"{RUNS} runs"
    finally:
        store.close()


def test_people_read_what_the_figures_mean(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_command, "SINGLES", 5)
    shop().close()
    answer = cli("bench", "--runs", "10")
    assert answer.code == 0
    assert "runs/s" in answer.out
    assert "claim, call an empty function, settle" in answer.out
    assert "compare figures of one machine" in answer.err


def test_it_cleans_up_when_it_is_stopped(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    shop().close()

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_command, "SINGLES", 5)
    monkeypatch.setattr(bench_command, "_until_done", interrupt)
    assert cli("bench", "--runs", RUNS).code == 130
    assert cli("runs", "--json").json == []
    assert "rota-bench" not in cli("jobs").out


def test_wrong_use(cli: Cli, database: str, store: Control) -> None:
    assert "runs 5 must be a whole number from 10" in cli("bench", "--runs", "5").error
    if database == "duckdb":
        answer = cli("bench")
        assert answer.code == 1
        assert "a process runs on this DuckDB store" in answer.error
