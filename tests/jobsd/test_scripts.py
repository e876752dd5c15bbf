"""initdb.d and startdb.d: when they run, on what, and what a failing one does."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rota.jobsd.check import check_folder
from tests.jobsd.support import Jobs, Served

pytest.importorskip("duckdb")
Serve = Callable[..., Served]


def script(folder: Path, name: str, sql: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(sql)


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def warehouse(path: Path) -> dict[str, object]:
    return {"targets": {"w": f"sqlite:///{path}"}, "default_target": "w"}


def test_init_runs_where_the_target_is_created_and_start_at_every_start(
    serve: Serve, jobs: Jobs, tmp_path: Path
) -> None:
    target = tmp_path / "w.db"
    script(tmp_path / "initdb.d", "01.sql", "CREATE TABLE log (at TEXT)")
    script(tmp_path / "initdb.d", "02.sql", "INSERT INTO log VALUES ('init')")
    script(tmp_path / "startdb.d", "01.sql", "INSERT INTO log VALUES ('start')")
    for _ in range(2):
        served = serve(jobs, **warehouse(target))
        served.app.start()
        served.app.stop()
    assert rows(target, "SELECT at FROM log ORDER BY rowid") == [
        ("init",), ("start",), ("start",),
    ]  # fmt: skip


def test_init_runs_on_a_store_that_is_new(serve: Serve, jobs: Jobs, tmp_path: Path) -> None:
    script(tmp_path / "initdb.d", "01.sql", "CREATE TABLE mine (x INT)")
    for _ in range(2):
        served = serve(jobs)
        served.app.start()
        assert served.folder.failed_scripts == {}
        served.app.stop()
    assert rows(tmp_path / "rota.db", "SELECT count(*) FROM mine") == [(0,)]


def test_a_failing_script_is_shown_and_the_others_and_jobs_go_on(
    serve: Serve, jobs: Jobs, tmp_path: Path
) -> None:
    jobs.sql("accounting")
    target = tmp_path / "w.db"
    script(tmp_path / "startdb.d", "01.sql", "CREATE TABLE a (x INT);\nSELEC 1")
    script(tmp_path / "startdb.d", "02.sql", "CREATE TABLE b (x INT)")
    script(tmp_path / "startdb.d", "_not.sql", "SELEC")
    served = serve(jobs, **warehouse(target))
    served.app.start()
    (told,) = served.app.problems()
    assert told.startswith("startdb.d/01.sql: 01.sql:2: ")
    assert served.names() == ["accounting"]
    assert rows(target, "SELECT name FROM sqlite_master") == [("b",)]


@pytest.mark.parametrize("name", ["startdb.d", "initdb.d"])
def test_a_folder_of_scripts_that_cannot_be_read_is_shown_and_the_others_go_on(
    serve: Serve, jobs: Jobs, tmp_path: Path, name: str
) -> None:
    jobs.sql("accounting")
    target = tmp_path / "w.db"
    (tmp_path / name).symlink_to(name)  # a ring: nobody can look into it, not even root
    other = "initdb.d" if name == "startdb.d" else "startdb.d"
    script(tmp_path / other, "01.sql", "CREATE TABLE a (x INT)")
    served = serve(jobs, **warehouse(target))
    served.app.start()
    (told,) = served.app.problems()
    assert told.startswith(f"{name}: cannot be read: ")
    assert served.names() == ["accounting"]
    assert rows(target, "SELECT name FROM sqlite_master") == [("a",)]
    (found,) = check_folder(served.app, {}, datetime.now(UTC)).findings
    assert (found.kind, found.display_path) == ("error", name)
    assert found.message in told


def test_without_a_worker_nothing_runs(serve: Serve, jobs: Jobs, tmp_path: Path) -> None:
    target = tmp_path / "w.db"
    script(tmp_path / "startdb.d", "01.sql", "CREATE TABLE a (x INT)")
    served = serve(jobs, **warehouse(target))
    served.app.start(["scheduler"])
    served.app.load()
    assert not target.exists()


def test_what_a_script_attaches_to_duckdb_stays_for_jobs(
    serve: Serve, jobs: Jobs, tmp_path: Path
) -> None:
    from rota.executors.sql import SqlExecutor
    from tests.jobsd.support import wait_until

    script(tmp_path / "startdb.d", "01.sql", "ATTACH ':memory:' AS extra")
    jobs.sql("fill", "schedule = false", **{"01": "CREATE TABLE extra.t AS SELECT 1 AS x"})
    served = serve(jobs, targets={"w": f"duckdb:///{tmp_path / 'w.duckdb'}"}, default_target="w")
    served.app.executor("sql", SqlExecutor())
    served.app.start()
    run_id = served.app.enqueue("fill").id
    wait_until(lambda: served.app.control.run(run_id).finished_at, "the run's end")
    run = served.app.control.run(run_id)
    assert (run.state, run.error) == ("succeeded", None)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("place", ["store", "target"])
def test_init_that_could_not_be_read_runs_once_when_it_can_be(
    serve: Serve, jobs: Jobs, tmp_path: Path, place: str, restart: bool
) -> None:
    target = tmp_path / ("rota.db" if place == "store" else "w.db")
    options = {} if place == "store" else warehouse(target)
    (tmp_path / "initdb.d").symlink_to("initdb.d")
    script(tmp_path / "startdb.d", "01.sql", "SELECT 1")  # makes the target
    served = serve(jobs, **options)
    served.app.start()
    served.folder._loop.stop(9)
    served.look()
    assert served.app.problems() != []
    (tmp_path / "initdb.d").unlink()
    script(tmp_path / "initdb.d", "01.sql", "CREATE TABLE log (at TEXT)")
    script(tmp_path / "initdb.d", "02.sql", "INSERT INTO log VALUES ('init')")
    for _ in range(2):
        if restart:
            served.app.stop()
            served = serve(jobs, **options)
            served.app.start()
            served.folder._loop.stop(9)
        served.look()
    assert rows(target, "SELECT at FROM log") == [("init",)]
    assert served.app.problems() == []


def test_init_that_was_owed_runs_once_also_where_nobody_made_the_target(
    serve: Serve, jobs: Jobs, tmp_path: Path
) -> None:
    target = tmp_path / "w.db"
    (tmp_path / "initdb.d").symlink_to("initdb.d")
    serve(jobs, **warehouse(target)).folder.prepare()
    assert not target.exists()
    (tmp_path / "initdb.d").unlink()
    script(tmp_path / "initdb.d", "01.sql", "CREATE TABLE log (at TEXT)")
    for _ in range(2):
        served = serve(jobs, **warehouse(target))
        served.folder.prepare()
        assert served.folder.failed_scripts == {}


def test_init_that_can_be_read_too_late_for_a_target_of_others_does_not_run(
    serve: Serve, jobs: Jobs, tmp_path: Path
) -> None:
    target = tmp_path / "w.db"
    sqlite3.connect(target).execute("CREATE TABLE theirs (x INT)").connection.close()
    (tmp_path / "initdb.d").symlink_to("initdb.d")
    served = serve(jobs, **warehouse(target))
    served.app.start()
    served.folder._loop.stop(9)
    (tmp_path / "initdb.d").unlink()
    script(tmp_path / "initdb.d", "01.sql", "CREATE TABLE mine (x INT)")
    served.look()
    assert served.app.problems() == []
    assert rows(target, "SELECT name FROM sqlite_master") == [("theirs",)]
