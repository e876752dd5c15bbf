"""SQL jobs on every kind of target, which is the store itself or another database."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from rota.errors import Invalid
from rota.model.job import Job
from rota.model.retry import Retry
from rota.model.steps import AT_LEAST_ONCE
from rota.storage import operations
from tests.executors.sql_support import ME, NEVER_ENDS, World, wait_for
from tests.support.postgres import Server

PLACES = ("sqlite-store", "postgres-store", "duckdb-store", "sqlite", "postgres", "duckdb")


def make_world(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> World:
    kind, _, is_store = place.partition("-")
    urls = {
        "sqlite": f"sqlite:///{tmp_path}/data.db",
        "duckdb": f"duckdb:///{tmp_path}/data.duckdb",
    }
    url = urls[kind] if kind in urls else request.getfixturevalue("postgres_url")
    if is_store:
        return World(tmp_path, url)
    return World(tmp_path, f"sqlite:///{tmp_path}/rota.db", url)


@pytest.fixture(params=PLACES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = make_world(request.param, tmp_path, request)
    yield made
    made.close()


@pytest.fixture
def duck(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    made = make_world("duckdb", tmp_path, request)
    yield made
    made.close()


@pytest.fixture
def postgres(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    made = make_world("postgres-store", tmp_path, request)
    yield made
    made.close()


def test_files_run_in_order_and_tell_what_they_did(world: World) -> None:
    world.write(
        a="CREATE TABLE t (i INTEGER); INSERT INTO t VALUES (1), (2);",
        b="UPDATE t SET i = i + 1;\n-- the result\nSELECT i FROM t ORDER BY i",
    )
    run = world.run(world.job())
    assert (run.state, run.error) == ("succeeded", None)
    first, second = world.store.read(operations.list_steps, run.seq)
    assert (first["name"], first["status"], first["rows"], first["result"]) == (
        "a.sql", "succeeded", 2, None,
    )  # fmt: skip
    assert (second["status"], second["rows"]) == ("succeeded", 2)
    told = {"columns": ["i"], "rows": [[2], [3]], "more": False}
    assert json.loads(second["result"]) == told
    assert run.result is not None
    assert json.loads(run.result) == told
    note = None if world.targets.find().is_store else AT_LEAST_ONCE
    assert [first["note"], second["note"]] == [note, note]
    assert world.query("SELECT i FROM t ORDER BY i") == [(2,), (3,)]


def test_a_failing_file_is_undone_and_ends_the_run(world: World) -> None:
    world.write(
        a="CREATE TABLE t (i INTEGER); INSERT INTO t VALUES (1)",
        b="INSERT INTO t VALUES (2);\n\nSELECT i,\n  nope FROM t;\n",
        c="INSERT INTO t VALUES (3)",
    )
    run = world.run(world.job())
    assert run.state == "dead"
    assert run.error is not None
    line = 3 if world.kind == "sqlite" else 4
    assert run.error.startswith(f"b.sql:{line}: ")
    assert "nope" in run.error
    assert world.steps(run) == [("a.sql", "succeeded"), ("b.sql", "failed")]
    assert world.store.read(operations.list_steps, run.seq)[1]["error"] == run.error
    assert world.query("SELECT i FROM t") == [(1,)]


def test_the_next_attempt_goes_on_at_the_file_that_failed(world: World) -> None:
    world.write(
        a="CREATE TABLE t (i INTEGER); INSERT INTO t VALUES (1)",
        b="INSERT INTO t SELECT i FROM later",
    )
    job = world.job(retry=Retry(max_attempts=2, delay="0s"))
    run = world.run(job, max_attempts=2)
    assert run.state == "waiting"
    world.query("CREATE TABLE later AS SELECT 2 AS i")
    world.write(a="SELECT 'edited'", b="SELECT 'edited'")
    run = world.again(job)
    assert run.state == "succeeded"
    assert world.query("SELECT i FROM t ORDER BY i") == [(1,), (2,)]
    assert world.steps(run) == [("a.sql", "succeeded"), ("b.sql", "failed"), ("b.sql", "succeeded")]


def test_with_restart_every_attempt_begins_at_the_first_file(world: World) -> None:
    world.write(
        a="CREATE TABLE IF NOT EXISTS t (i INTEGER); INSERT INTO t VALUES (1)",
        b="SELECT * FROM later",
    )
    job = world.job(spec={"restart": True}, retry=Retry(max_attempts=2, delay="0s"))
    world.run(job, max_attempts=2)
    world.query("CREATE TABLE later (i INTEGER)")
    assert world.again(job).state == "succeeded"
    assert world.query("SELECT i FROM t") == [(1,), (1,)]


def test_a_redo_uses_the_kept_texts_or_the_latest(world: World) -> None:
    world.write(a="CREATE TABLE IF NOT EXISTS t (i INTEGER); INSERT INTO t VALUES (1)")
    run = world.run(world.job())
    world.write(a="INSERT INTO t VALUES (2)")
    world.store.write(operations.redo_run, run.id, None, ME)
    assert world.again().state == "succeeded"
    assert world.query("SELECT i FROM t") == [(1,), (1,)]
    world.store.write(operations.redo_run, run.id, None, ME, latest=True)
    assert world.again().state == "succeeded"
    assert world.query("SELECT i FROM t ORDER BY i") == [(1,), (1,), (2,)]


def test_a_redo_begins_at_the_step_it_is_told(world: World) -> None:
    world.write(
        a="CREATE TABLE t (i INTEGER)", b="INSERT INTO t VALUES (1)", c="INSERT INTO t VALUES (2)"
    )
    run = world.run(world.job())
    world.store.write(operations.redo_run, run.id, None, ME, from_step="c.sql")
    assert world.again().state == "succeeded"
    assert world.query("SELECT i FROM t ORDER BY i") == [(1,), (2,), (2,)]


def test_a_redo_goes_on_at_a_step_with_mended_files(world: World) -> None:
    world.write(a="CREATE TABLE t (i INTEGER); INSERT INTO t VALUES (1)", b="SELECT nope FROM t")
    run = world.run(world.job())
    assert run.state == "dead"
    world.write(a="SELECT 'edited too'", b="INSERT INTO t VALUES (2)")
    world.store.write(operations.redo_run, run.id, None, ME, from_step="b.sql", latest=True)
    run = world.again()
    assert (run.state, run.error) == ("succeeded", None)
    assert world.query("SELECT i FROM t ORDER BY i") == [(1,), (2,)]
    assert world.steps(run) == [("a.sql", "succeeded"), ("b.sql", "failed"), ("b.sql", "succeeded")]


def test_a_redo_begins_at_the_step_it_is_told_also_with_restart(world: World) -> None:
    world.write(
        a="CREATE TABLE t (i INTEGER)", b="SELECT * FROM later", c="INSERT INTO t VALUES (1)"
    )
    job = world.job(spec={"restart": True}, retry=Retry(max_attempts=2, delay="0s"))
    run = world.run(job)
    for _ in range(2):
        world.store.write(operations.redo_run, run.id, None, ME, from_step="b.sql")
        assert world.again(job).state == "dead"
    world.query("CREATE TABLE later (i INTEGER)")
    world.store.write(operations.redo_run, run.id, None, ME, from_step="b.sql")
    assert world.again(job).state == "succeeded"
    assert world.query("SELECT i FROM t") == [(1,)]
    world.query("DROP TABLE t")
    world.store.write(operations.redo_run, run.id, None, ME)
    assert world.again(job).state == "succeeded", "a plain redo begins at the first file"


def test_missing_variables_are_all_named_before_anything_runs(world: World) -> None:
    world.write(
        a="CREATE TABLE t (i INTEGER); SELECT '${NOWHERE}'",
        b="SELECT '${NOT_SET}', '${ROTA_DATABASE}', '${WITH:-default}'",
    )
    run = world.run(world.job(retry=Retry(max_attempts=5)), max_attempts=5)
    assert (run.state, run.failures) == ("dead", 1)
    assert run.error is not None
    assert "NOWHERE, NOT_SET" in run.error
    assert "ROTA_DATABASE cannot be read" in run.error
    assert world.steps(run) == []
    assert [file.name for file in world.store.read(operations.kept_files, run.seq)] == [
        "a.sql",
        "b.sql",
    ]
    with pytest.raises(Exception, match=r"(?i)no such table|not exist"):
        world.query("SELECT * FROM t")


def test_values_are_read_anew_and_never_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write(a="CREATE TABLE IF NOT EXISTS t (v VARCHAR); INSERT INTO t VALUES ('${SECRET}')")
    monkeypatch.setenv("SECRET", "x'; DROP TABLE t; --")
    run = world.run(world.job())
    assert run.state == "succeeded"
    monkeypatch.setenv("SECRET", "second")
    world.store.write(operations.redo_run, run.id, None, ME)
    world.again()
    assert world.query("SELECT v FROM t ORDER BY v") == [("second",), ("x'; DROP TABLE t; --",)]
    (kept,) = world.store.read(operations.kept_files, run.seq)
    assert "${SECRET}" in kept.text
    assert kept.variables == ("SECRET",)


def test_a_run_knows_itself_and_its_arguments(world: World) -> None:
    world.write(
        a="SELECT '${ROTA_JOB_NAME}' AS job, '${ROTA_RUN_ID}' AS id, ${ROTA_ATTEMPT} AS attempt, "
        "'${DAY}' AS day, ${COUNT} AS n"
    )
    run = world.run(world.job(), args='{"day": "2026-03-01", "count": 7}')
    assert run.result is not None, run.error
    assert json.loads(run.result)["rows"] == [["job", run.id, 1, "2026-03-01", 7]]


def test_an_error_does_not_show_a_secret(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hunter2hunter2")
    world.write(a='SELECT "${DB_PASSWORD}" FROM nowhere')
    run = world.run(world.job())
    assert run.error is not None
    assert "hunter2" not in run.error
    assert "hunter2" not in world.store.read(operations.list_steps, run.seq)[0]["error"]


@pytest.mark.parametrize("statement", ["BEGIN", "COMMIT", "ROLLBACK", "END"])
def test_a_transaction_of_its_own_is_refused_before_anything_runs(
    world: World, statement: str
) -> None:
    world.write(a="CREATE TABLE t (i INTEGER)", b=f"SELECT 1;\n{statement};\n")
    run = world.run(world.job(), max_attempts=3)
    assert run.state == "dead"
    assert run.error is not None
    assert run.error.startswith("b.sql:2: begins or ends a transaction")
    assert "-- rota: autonomous" in run.error
    assert world.steps(run) == []


def test_an_autonomous_file_has_no_transaction_around_it(world: World) -> None:
    world.write(
        a="CREATE TABLE t (i INTEGER); INSERT INTO t VALUES (1)",
        b="-- rota: autonomous\nBEGIN; INSERT INTO t VALUES (2); COMMIT;\nVACUUM;\n",
        c="-- rota: autonomous\nINSERT INTO t VALUES (3); SELECT nope;",
    )
    run = world.run(world.job())
    assert (run.state, "c.sql:2: " in (run.error or "")) == ("dead", True), run.error
    assert world.query("SELECT i FROM t ORDER BY i") == [(1,), (2,), (3,)]
    assert world.store.read(operations.list_steps, run.seq)[1]["note"] == AT_LEAST_ONCE


@pytest.mark.parametrize(
    ("reason", "kind", "status"),
    [("timed_out", "timed_out", "timed_out"), ("cancelled", "cancelled", "cancelled"),
     ("stopping", "released", "cancelled"), ("lost", "lost", "cancelled")],
)  # fmt: skip
def test_a_statement_that_would_take_for_ever_is_interrupted_and_undone(
    world: World, reason: str, kind: str, status: str
) -> None:
    world.write(
        a="CREATE TABLE t (i INTEGER); INSERT INTO t VALUES (1)",
        b=f"INSERT INTO t VALUES (2); {NEVER_ENDS[world.kind]}",
    )
    world.job()
    world.enqueue()
    begun = world.begin().until_step("b.sql").stop(reason)
    assert begun.join().kind == kind
    assert world.steps(begun.run) == [("a.sql", "succeeded"), ("b.sql", status)]
    assert world.query("SELECT i FROM t") == [(1,)]
    world.query("INSERT INTO t VALUES (5)")  # nothing is locked any more


def test_a_step_has_a_timeout_of_its_own(world: World) -> None:
    world.write(a="CREATE TABLE t (i INTEGER)", b=f"DROP TABLE t; {NEVER_ENDS[world.kind]}")
    run = world.run(world.job(spec={"step_timeout": "1s"}))
    assert (run.state, run.error) == ("dead", "b.sql: timed out after 1s (step_timeout)")
    assert world.steps(run) == [("a.sql", "succeeded"), ("b.sql", "timed_out")]
    assert world.query("SELECT i FROM t") == []


def test_a_pause_is_heard_between_files(world: World) -> None:
    world.write(a="CREATE TABLE t (i INTEGER)", b="INSERT INTO t VALUES (2)")
    job = world.job()
    run_id = world.enqueue()
    run = world.claim()
    world.store.write(operations.pause_run, run_id, "lunch", ME)
    paused = world.begin(job, run).ended()
    assert (paused.state, paused.failures, paused.reason) == ("paused", 0, "lunch")
    assert world.steps(run) == []
    world.store.write(operations.resume_run, run_id, None, ME)
    assert world.again(job).state == "succeeded"
    assert world.query("SELECT i FROM t") == [(2,)]


def test_text_is_a_job_of_one_step(world: World) -> None:
    job = Job(name="job", executor="sql", spec={"text": "SELECT 1 AS one"})
    world.executor.check(job)
    world.store.write(operations.put_jobs, [job])
    run = world.run(job)
    assert run.state == "succeeded"
    assert world.steps(run) == [("sql", "succeeded")]


def test_a_target_by_another_name_with_the_same_address_is_the_store(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    world = World(tmp_path, f"sqlite:///{tmp_path}/x.db", f"sqlite:///{tmp_path}/link/x.db")
    assert world.targets.find("there").is_store
    world.close()


def test_an_unknown_target_is_named(world: World) -> None:
    world.write(a="SELECT 1")
    run = world.run(world.job(spec={"target": "warehouse"}))
    assert run.state == "dead"
    assert run.error is not None
    assert "target 'warehouse' is unknown; known are" in run.error


@pytest.mark.parametrize(
    "url",
    ["postgresql://rota:secretpass@127.0.0.1:1/none", "sqlite:////no/such/folder/x.db",
     "duckdb:////no/such/folder/x.duckdb"],
)  # fmt: skip
def test_a_target_that_is_away_fails_the_attempt(tmp_path: Path, url: str) -> None:
    world = World(tmp_path, f"sqlite:///{tmp_path}/rota.db", url)
    world.write(a="SELECT 1")
    run = world.run(world.job(retry=Retry(max_attempts=2)), max_attempts=2)
    assert run.state == "waiting"
    assert run.error
    assert "secretpass" not in run.error
    world.close()


def test_large_results_are_cut(world: World) -> None:
    many = {
        "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) "
        "SELECT i, 'xxxxxxxxxx' AS x FROM n",
        "postgres": "SELECT i, repeat('x', 10) AS x FROM generate_series(1, 5000) AS n(i)",
        "duckdb": "SELECT i, repeat('x', 10) AS x FROM range(1, 5001) AS n(i)",
    }
    world.write(a=many[world.kind])
    run = world.run(world.job())
    assert run.result is not None
    told = json.loads(run.result)
    assert (len(told["rows"]), told["more"]) == (50, True)


def test_an_error_in_the_last_row_of_a_result_fails_the_file(world: World) -> None:
    if world.kind == "sqlite":
        pytest.skip("SQLite finds no error in a value")
    bad = "SELECT CAST(CASE WHEN i = 5000 THEN 'x' ELSE '1' END AS INTEGER) FROM "
    rows = {"postgres": "generate_series(1, 5000) AS n(i)", "duckdb": "range(1, 5001) AS n(i)"}
    world.write(a=bad + rows[world.kind])
    assert world.run(world.job()).state == "dead"


# The files themselves


def break_files(world: World, how: str) -> None:
    path = world.folder / "a.sql"
    match how:
        case "gone":
            path.unlink()
        case "link":
            outside = world.folder.parent / "outside.sql"
            outside.write_text("SELECT 1")
            path.unlink()
            path.symlink_to(outside)
        case "fifo":
            path.unlink()
            os.mkfifo(path)
        case "folder":
            path.unlink()
            path.mkdir()
        case "binary":
            path.write_bytes(b"SELECT 1;\n\xff\xfe")
        case "nul":
            path.write_bytes(b"SELECT 1\0")
        case "large":
            with path.open("wb") as file:
                file.truncate(100 * 1024 * 1024)
        case "no folder":
            path.unlink()
            world.folder.rmdir()
        case "open quote":
            path.write_text("SELECT 1;\nSELECT 'never")


@pytest.mark.parametrize(
    ("how", "told"),
    [("gone", "a.sql is gone"), ("link", "a.sql is a link out of its folder"),
     ("fifo", "a.sql is not a plain file"), ("folder", "a.sql is not a plain file"),
     ("binary", "a.sql:2: is not UTF-8"), ("nul", "a.sql holds a NUL"),
     ("large", "a.sql is larger than"), ("no folder", "is gone; bring it back"),
     ("open quote", "a.sql: line 2: 'never … is never closed")],
)  # fmt: skip
def test_files_that_cannot_be_read_are_told(duck: World, how: str, told: str) -> None:
    duck.write(a="SELECT 1")
    job = duck.job()
    break_files(duck, how)
    run = duck.run(job)
    assert run.state == "dead"
    assert told in (run.error or "")


@pytest.mark.parametrize(
    "spec",
    [{}, {"folder": "/x", "files": []}, {"files": ["a.sql"]}, {"text": "x", "files": ["a.sql"]},
     {"text": "x", "step_timeout": "soon"}, {"text": "x", "target": "a b"}],
)  # fmt: skip
def test_a_job_that_nobody_could_run_is_refused(duck: World, spec: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        duck.executor.check(Job(name="job", executor="sql", spec=spec))


# What only some engines have


def test_a_run_acts_as_a_role(postgres: World, request: pytest.FixtureRequest) -> None:
    role = "rota_test_reader"
    postgres.query(f"DROP ROLE IF EXISTS {role}")
    postgres.query(f"CREATE ROLE {role}")
    try:
        postgres.write(a="CREATE TEMP TABLE t AS SELECT current_user AS who; SELECT who FROM t")
        run = postgres.run(postgres.job(spec={"run_as": role}))
        assert run.result is not None, run.error
        assert json.loads(run.result)["rows"] == [[role]]
        postgres.write(a="SELECT * FROM rota_data.runs")
        run = postgres.run(postgres.job(spec={"run_as": role}))
        assert "a.sql:1: permission denied" in (run.error or "")
        postgres.write(a="-- rota: autonomous\nSELECT current_user")
        run = postgres.run(postgres.job(spec={"run_as": role}))
        assert run.result is not None, run.error
        assert json.loads(run.result)["rows"] == [[role]]
        run = postgres.run(postgres.job(spec={"run_as": "nobody here"}))
        assert "run_as: role" in (run.error or "")
    finally:
        postgres.query(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_role_needs_postgresql(duck: World) -> None:
    duck.write(a="SELECT 1")
    run = duck.run(duck.job(spec={"run_as": "somebody"}))
    assert "run_as = 'somebody' needs a PostgreSQL target" in (run.error or "")


def test_functions_and_rules_of_postgresql_are_one_statement(postgres: World) -> None:
    postgres.write(
        a="""CREATE TABLE t (i INTEGER);
CREATE FUNCTION f() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN RETURN 1; END; $$;
CREATE FUNCTION g() RETURNS integer BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 2 END; END;
CREATE RULE r AS ON INSERT TO t DO ALSO (SELECT 1; SELECT 2);
SELECT f(), g()"""
    )
    run = postgres.run(postgres.job())
    assert run.result is not None, run.error
    assert json.loads(run.result)["rows"] == [[1, 2]]


def test_what_a_run_attaches_is_detached(duck: World, tmp_path: Path) -> None:
    """The example of the first document, three times in a row, once failing after the ATTACH."""
    duck.write(
        a=f"ATTACH '{tmp_path}/source.duckdb' AS source; "
        "CREATE TABLE IF NOT EXISTS source.orders (i INTEGER)",
        b=f"COPY source.orders TO '{tmp_path}/orders.parquet'; SELECT ${{FAILS:-1}} AS one",
    )
    job = duck.job()
    for fails, state in ((None, "succeeded"), ("nope", "dead"), (None, "succeeded")):
        args = "{}" if fails is None else '{"fails": "nope"}'
        run = duck.run(job, args=args)
        assert run.state == state, run.error
        assert duck.query("SELECT count(*) FROM duckdb_databases() WHERE NOT internal") == [(1,)]
    assert (tmp_path / "orders.parquet").exists()


def test_settings_of_a_run_do_not_reach_the_next(duck: World) -> None:
    duck.write(
        a="CREATE SCHEMA s; CREATE TABLE s.t (i INTEGER); USE s; CREATE TEMP TABLE x (i INT)"
    )
    assert duck.run(duck.job()).state == "succeeded"
    duck.write(a="SELECT current_schema() AS s")
    run = duck.run(duck.job())
    assert json.loads(run.result or "")["rows"] == [["main"]]


def test_runs_on_one_duckdb_file_go_one_at_a_time(duck: World) -> None:
    duck.write(a=NEVER_ENDS["duckdb"])
    job = duck.job()
    duck.enqueue()
    first = duck.begin(job).until_step("a.sql")
    duck.write(a="SELECT 1")
    duck.enqueue()
    second = duck.begin(job)
    wait_for(lambda: duck.store.read(operations.kept_files, second.run.seq))
    second.stop("cancelled")
    assert second.join().kind == "cancelled"
    assert duck.steps(second.run) == []
    duck.enqueue()
    third = duck.begin(job)
    first.stop("cancelled").join()
    assert third.join().kind == "succeeded"


def test_the_timeout_of_a_run_begins_with_its_turn(duck: World) -> None:
    duck.write(a=NEVER_ENDS["duckdb"])
    job = duck.job(timeout=timedelta(hours=1))
    duck.enqueue()
    first = duck.begin(job).until_step("a.sql")
    assert first.execution.deadline is not None
    duck.enqueue()
    second = duck.begin(job)
    wait_for(lambda: second.execution.context.waiting_since)
    assert second.execution.deadline is None
    began_to_wait = second.execution.context.waiting_since
    assert began_to_wait is not None
    ended_at = time.monotonic()
    first.stop("cancelled").join()
    second.until_step("a.sql")
    assert second.execution.deadline is not None
    assert second.execution.started_at is not None
    waited = second.execution.context.waited
    assert second.execution.deadline == second.execution.started_at + waited + 3600
    assert waited >= ended_at - began_to_wait
    second.stop("timed_out")
    assert second.join().error == "timed out after 1h"


@pytest.mark.parametrize("store", ["sqlite", "postgres", "duckdb"])
def test_the_views_are_readable_on_a_duckdb_target(
    tmp_path: Path, request: pytest.FixtureRequest, store: str
) -> None:
    """An alert job: it asks for the failures of the last day, on whatever store they are kept."""
    urls = {"sqlite": f"sqlite:///{tmp_path}/rota.db", "duckdb": f"duckdb:///{tmp_path}/r.duckdb"}
    database = urls.get(store) or request.getfixturevalue("postgres_url")
    world = World(tmp_path, database, f"duckdb:///{tmp_path}/data.duckdb")
    world.write(a="SELECT nope")
    failed = world.run(world.job())
    assert failed.state == "dead"
    world.write(
        a="CREATE TABLE alerts AS SELECT job_name, file_name, error_message, status "
        "FROM _rota.job_runs WHERE status = 'failed' "
        "AND started_at > now() - INTERVAL '24 hours' ORDER BY id;\n"
        "SELECT name, file_count, running FROM _rota.jobs",
        b="SELECT job_name, started_at <= now() FROM _rota.job_queue",
    )
    run = world.run(world.job())
    assert run.state == "succeeded", run.error
    first, second = world.store.read(operations.list_steps, run.seq)
    assert json.loads(first["result"])["rows"] == [["job", 2, True]]
    assert json.loads(second["result"])["rows"] == [["job", True]]
    found = world.query("SELECT job_name, file_name, status FROM alerts")
    assert found == [("job", None, "failed"), ("job", "a.sql", "failed")]
    assert world.query("SELECT count(*) FROM duckdb_databases() WHERE NOT internal") == [(1,)]
    world.close()


def test_postgres_server_is_there(postgres_server: Server) -> None:
    """The tests above must not be skipped by accident."""
    assert postgres_server
