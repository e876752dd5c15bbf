"""Rota's own views inside the SQL of a DuckDB target, whatever the store is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.duckdb_instances import open_instance
from rota.model.run import Run
from rota.storage import operations
from tests.executors.sql_support import World


@pytest.fixture(params=["sqlite", "postgres", "duckdb"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "postgres":
        database = request.getfixturevalue("postgres_url")
    else:
        database = f"{request.param}:///{tmp_path / 'store'}"
    made = World(tmp_path, database, f"duckdb:///{tmp_path / 'warehouse.duckdb'}")
    yield made
    made.close()


def rows(run: Run) -> list[list[Any]]:
    assert run.error is None
    assert run.result is not None
    found: list[list[Any]] = json.loads(run.result)["rows"]
    return found


def test_every_step_sees_the_views_as_they_are_then(world: World) -> None:
    world.write(
        a="CREATE TABLE seen AS SELECT * FROM _rota.job_runs",
        b="INSERT INTO seen SELECT * FROM _ROTA.job_runs",
        c="SELECT file_name, status FROM seen ORDER BY id, status",
    )
    ended = world.run(world.job())
    assert rows(ended) == [
        [None, "running"], [None, "running"],
        ["a.sql", "running"], ["a.sql", "success"], ["b.sql", "running"],
    ]  # fmt: skip


def test_types_are_those_of_a_duckdb_store(world: World) -> None:
    world.write(
        a="SELECT name, running, queued, typeof(running), typeof(queue_max) FROM _rota.jobs",
        b="SELECT typeof(id), typeof(started_at), now() - started_at < INTERVAL 1 HOUR,"
        " finished_at IS NULL, run_id = '${ROTA_RUN_ID}' FROM _rota.job_runs"
        " WHERE record_type = 'run'",
        c="SELECT typeof(queued_at), started_at >= queued_at FROM _rota.job_queue",
    )
    ended = world.run(world.job())
    results = [
        json.loads(step["result"])["rows"]
        for step in world.store.read(operations.list_steps, ended.seq)
    ]
    assert results == [
        [["job", True, 0, "BOOLEAN", "INTEGER"]],
        [["BIGINT", "TIMESTAMP WITH TIME ZONE", True, True, True]],
        [["TIMESTAMP WITH TIME ZONE", True]],
    ]


def test_it_is_there_for_who_asks_and_goes_with_the_run(world: World) -> None:
    shown = "SELECT count(*) FROM duckdb_databases() WHERE database_name LIKE '%rota'"
    instance = open_instance(world.targets.find().path)
    try:
        world.write(a=shown)
        assert rows(world.run(world.job())) == [[0]]
        world.write(a=f"SELECT 1 FROM _rota.jobs; {shown}")
        assert rows(world.run(world.job())) == [[1]]
        assert world.query(shown) == [(0,)]
        world.write(a="SELECT 1 FROM _rota.nothing")
        assert "nothing" in (world.run(world.job()).error or "")
        assert world.query(shown) == [(0,)]
    finally:
        instance.close()


def test_a_schema_of_that_name_is_left_alone(world: World) -> None:
    world.query("CREATE SCHEMA _rota")
    world.query("CREATE TABLE _rota.jobs AS SELECT 'mine' AS name")
    world.write(a="SELECT name FROM _rota.jobs")
    assert rows(world.run(world.job())) == [["mine"]]


def test_a_database_of_that_name_is_left_alone(world: World, tmp_path: Path) -> None:
    """As startdb.d attaches it."""
    instance = open_instance(world.targets.find().path)
    try:
        world.query(f"ATTACH '{tmp_path / 'other.duckdb'}' AS _rota")
        world.query("CREATE TABLE _rota.jobs AS SELECT 'mine' AS name")
        world.write(a="SELECT name FROM _rota.jobs")
        for _ in range(2):
            assert rows(world.run(world.job())) == [["mine"]]
    finally:
        instance.close()
