"""What a file makes of the session: the next files find it, also in an attempt that passes it over.

`a.sql` attaches a database, as in the example of the first document, and does work that would show
if it were done twice. Later files read what it attached.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.duckdb_instances import open_instance
from rota.model.retry import Retry
from rota.storage import operations
from tests.executors.sql_support import ME, World
from tests.executors.test_sql_runs import make_world

TWICE = Retry(max_attempts=2, delay="0s")
ENDS_LATER = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
    "WHERE ${ROTA_ATTEMPT} = 1) SELECT count(*) FROM n",
    # Of both sides, so that there is nothing to be decided before all pairs are made.
    "duckdb": "SELECT count(*) FROM range(1000000000000) a, range(1000) b "
    "WHERE ${ROTA_ATTEMPT} = 1 AND a.range + b.range = -1",
}


@pytest.fixture(params=["duckdb", "duckdb-store", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Where a database that one file attaches is there for the next one."""
    made = make_world(request.param, tmp_path, request)
    made.query("CREATE TABLE log (step TEXT)")
    made.query("CREATE TABLE copied (i INTEGER)")
    write_source(made, tmp_path)
    made.write(
        a=f"INSERT INTO log VALUES ('a');\n-- where it is read from\nATTACH '${{SOURCE:-{tmp_path}"
        "/source.db}' AS source;\nINSERT INTO log SELECT 'read' FROM source.orders",
    )
    yield made
    made.close()


@pytest.fixture
def duck(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = make_world("duckdb", tmp_path, request)
    yield made
    made.close()


def write_source(world: World, folder: Path) -> None:
    source = World(
        folder / "source", f"sqlite:///{folder}/other.db", f"{world.kind}:///{folder}/source.db"
    )
    source.query("CREATE TABLE orders AS SELECT 7 AS i")
    source.close()


def was_read_once(world: World) -> None:
    """The work of a.sql was done once, and what it attached could be read by the last file."""
    assert world.query("SELECT step FROM log ORDER BY step") == [("a",), ("read",)]
    assert world.query("SELECT i FROM copied") == [(7,)]


COPY = "INSERT INTO copied SELECT i FROM source.orders"


def test_a_retry_finds_what_was_attached(world: World) -> None:
    world.write(b=f"{COPY}; SELECT * FROM later")
    job = world.job(retry=TWICE)
    assert world.run(job, max_attempts=2).state == "waiting"
    world.query("CREATE TABLE later (i INTEGER)")
    run = world.again(job)
    assert (run.state, run.error) == ("succeeded", None)
    was_read_once(world)


def test_a_redo_finds_what_was_attached(world: World) -> None:
    world.write(b="SELECT 1", c=COPY)
    run = world.run(world.job())
    assert (run.state, run.error) == ("succeeded", None)
    world.query("DELETE FROM copied")
    world.store.write(operations.redo_run, run.id, None, ME, from_step="c.sql")
    run = world.again()
    assert (run.state, run.error) == ("succeeded", None)
    assert [name for name, _ in world.steps(run)] == ["a.sql", "b.sql", "c.sql", "c.sql"]
    was_read_once(world)


def test_a_run_that_a_stopping_worker_gave_back_finds_it(world: World) -> None:
    world.write(b=ENDS_LATER[world.kind], c=COPY)
    job = world.job()
    world.enqueue()
    assert world.begin(job).until_step("b.sql").stop("stopping").ended().state == "queued"
    run = world.again(job)
    assert (run.state, run.error) == ("succeeded", None)
    was_read_once(world)


def test_what_cannot_be_attached_again_is_told_by_its_file(world: World, tmp_path: Path) -> None:
    world.write(b=f"{COPY}; SELECT * FROM later")
    run = world.run(world.job(), args=json.dumps({"source": f"{tmp_path}/source.db"}))
    (tmp_path / "source.db").unlink()
    (tmp_path / "source.db").mkdir()
    world.store.write(operations.redo_run, run.id, None, ME)
    run = world.again()
    assert run.state == "dead"
    assert run.error is not None
    assert run.error.startswith("a.sql:3: ")
    assert run.error.endswith(" (a.sql is not run again, but its ATTACH is: for b.sql)")
    assert world.store.read(operations.list_steps, run.seq)[-1]["error"] == run.error


def test_what_was_detached_again_stays_so(world: World) -> None:
    if world.kind == "duckdb":
        world.write(a2="DETACH source")
    else:
        world.write(a2="-- rota: autonomous\nDETACH source")
    world.write(b="SELECT * FROM later", c=COPY)
    run = world.run(world.job())
    world.query("CREATE TABLE later (i INTEGER)")
    world.store.write(operations.redo_run, run.id, None, ME)
    run = world.again()
    assert run.state == "dead"
    assert (run.error or "").startswith("c.sql:1: ")
    assert "source" in (run.error or "")


def test_a_detach_of_what_is_gone_already_is_no_error(duck: World, tmp_path: Path) -> None:
    """Of what a startdb.d script attached, say: it was detached by the first attempt."""
    duck.query("CREATE TABLE t (i INTEGER)")
    duck.write(a="ATTACH ':memory:' AS one; DETACH one", b="DETACH DATABASE IF EXISTS two")
    duck.write(c="SELECT * FROM later")
    run = duck.run(duck.job())
    duck.query("CREATE TABLE later (i INTEGER)")
    duck.write(a="DETACH one", b="SELECT 1")
    duck.store.write(operations.redo_run, run.id, None, ME, latest=True, from_step="c.sql")
    run = duck.again()
    assert (run.state, run.error) == ("succeeded", None)


def test_settings_are_made_again_in_their_order(duck: World) -> None:
    duck.write(
        a="CREATE SCHEMA one; CREATE SCHEMA two; USE one; SET VARIABLE x = ${X}; SET VARIABLE x = "
        "getvariable('x') + 1; CREATE TABLE made (i INTEGER)",
        b="USE two; PRAGMA errors_as_json = true; SELECT * FROM memory.later",
        c="CREATE TABLE made AS SELECT getvariable('x') AS x, current_setting('errors_as_json')",
    )
    job = duck.job()
    run = duck.run(job, args='{"x": 4}')
    assert run.state == "dead"
    duck.store.write(operations.redo_run, run.id, None, ME, from_step="c.sql")
    run = duck.again(job)
    assert (run.state, run.error) == ("succeeded", None)
    assert duck.query("SELECT * FROM two.made") == [(5, True)]


@pytest.mark.parametrize("place", ["postgres", "postgres-store"])
def test_a_session_of_postgresql_is_set_again(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """On the store each file begins anew, so nothing is set for the next one in any attempt."""
    world = make_world(place, tmp_path, request)
    world.write(
        a="CREATE SCHEMA kept; SET search_path = kept; SET LOCAL work_mem = '1MB'",
        b="CREATE TABLE t AS SELECT current_schema() AS at, current_setting('work_mem') AS memory",
        c="SELECT * FROM later",
    )
    job = world.job()
    first = world.run(job)
    assert first.state == "dead"
    at = "kept" if place == "postgres" else "public"
    found = world.query(f"SELECT at FROM {at}.t")
    assert found == [(at,)]
    memory = world.query("SHOW work_mem")
    assert world.query(f"SELECT memory FROM {at}.t") == memory
    world.query(f"DROP TABLE {at}.t")
    world.store.write(operations.redo_run, first.id, None, ME, from_step="b.sql")
    assert world.again(job).state == "dead"  # as before, at c.sql
    assert world.query(f"SELECT at, memory FROM {at}.t") == [(at, *memory[0])]
    world.close()


def test_settings_of_a_connection_to_sqlite_are_made_again(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    world = make_world("sqlite", tmp_path, request)
    world.write(
        a="-- rota: autonomous\nPRAGMA case_sensitive_like = on; PRAGMA user_version = 3",
        b="SELECT * FROM later",
        c="SELECT 'A' LIKE 'a'",
    )
    job = world.job()
    run = world.run(job)
    world.query("PRAGMA user_version = 4")
    world.store.write(operations.redo_run, run.id, None, ME, from_step="c.sql")
    run = world.again(job)
    assert json.loads(run.result or "")["rows"] == [[0]]
    assert world.query("PRAGMA user_version") == [(4,)]  # kept in the file: work, done once
    world.close()


@pytest.mark.parametrize("place", ["duckdb", "sqlite", "postgres"])
def test_a_temporary_table_is_made_again_by_restart_alone(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    world = make_world(place, tmp_path, request)
    world.write(a="CREATE TEMP TABLE x AS SELECT 7 AS i", b="SELECT i FROM x; SELECT i FROM later")
    job = world.job(retry=TWICE)
    world.run(job, max_attempts=2)
    world.query("CREATE TABLE later AS SELECT 8 AS i")
    run = world.again(job)
    assert run.state == "dead"
    assert (run.error or "").startswith("b.sql:1: ")
    restarted = world.job(retry=TWICE, spec={"restart": True})
    world.store.write(operations.redo_run, run.id, None, ME)
    run = world.again(restarted)
    assert (run.state, run.error) == ("succeeded", None)
    world.close()


@pytest.mark.parametrize("place", ["sqlite-store", "duckdb-store", "postgres-store"])
def test_on_the_store_a_file_begins_with_a_session_of_its_own(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """As docs/jobs.d.md says, with the way out: one file, or a table that is not temporary."""
    world = make_world(place, tmp_path, request)
    world.write(a="CREATE TEMP TABLE x AS SELECT 7 AS i; SELECT i FROM x", b="SELECT i FROM x")
    run = world.run(world.job())
    assert world.steps(run) == [("a.sql", "succeeded"), ("b.sql", "failed")]
    assert (run.error or "").startswith("b.sql:1: ")
    world.write(a="CREATE TABLE x AS SELECT 7 AS i", b="SELECT i FROM x; DROP TABLE x")
    run = world.run(world.job())
    assert (run.state, run.error) == ("succeeded", None)
    world.close()


@pytest.mark.parametrize(("place", "stays"), [("sqlite-store", False), ("duckdb-store", True)])
def test_on_the_store_only_duckdb_keeps_what_is_attached(
    place: str, stays: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    world = make_world(place, tmp_path, request)
    write_source(world, tmp_path)
    world.write(a=f"ATTACH '{tmp_path}/source.db' AS source", b="SELECT i FROM source.orders")
    run = world.run(world.job())
    assert run.state == ("succeeded" if stays else "dead")
    world.close()


def kept_secrets(world: World) -> list[str]:
    return [name for (name,) in world.query("SELECT name FROM duckdb_secrets() ORDER BY name")]


@pytest.mark.parametrize("place", ["duckdb", "duckdb-store"])
def test_a_secret_ends_with_the_run_that_made_it(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Three times in a row, once failing after it; the instance stays open, as a worker's does."""
    world = make_world(place, tmp_path, request)
    instance = open_instance(world.targets.find().path)
    before = "CREATE SECRET before (TYPE http, BEARER_TOKEN 'x')"
    with instance.cursor() as cursor:
        cursor.execute(before)
    world.write(
        a="CREATE SECRET \"my \"\"own\" (TYPE http, BEARER_TOKEN 'x', SCOPE 'http://a')",
        b="CREATE SECRET (TYPE http, BEARER_TOKEN 'x'); SELECT ${FAILS:-1}",
        c="SELECT name FROM duckdb_secrets() ORDER BY name",
    )
    job = world.job()
    for fails, state in ((None, "succeeded"), ("nope", "dead"), (None, "succeeded")):
        run = world.run(job, args="{}" if fails is None else '{"fails": "nope"}')
        assert run.state == state, run.error
        assert kept_secrets(world) == ["before"]
    assert json.loads(run.result or "")["rows"] == [["__default_http"], ["before"], ['my "own']]
    instance.close()
    world.close()


def test_a_retry_has_the_secret_of_a_file_that_is_done(duck: World) -> None:
    duck.write(a="CREATE SECRET mine (TYPE http, BEARER_TOKEN 'x')", b="SELECT * FROM later")
    duck.write(c="SELECT name FROM duckdb_secrets()")
    job = duck.job(retry=TWICE)
    duck.run(job, max_attempts=2)
    duck.query("CREATE TABLE later (i INTEGER)")
    run = duck.again(job)
    assert (run.state, run.error) == ("succeeded", None)
    assert json.loads(run.result or "")["rows"] == [["mine"]]


def test_a_persistent_secret_stays(duck: World, tmp_path: Path) -> None:
    instance = open_instance(duck.targets.find().path)
    duck.write(
        a=f"SET secret_directory = '{tmp_path}/secrets'; "
        "CREATE PERSISTENT SECRET kept (TYPE http, BEARER_TOKEN 'x')",
        b="SELECT 1",
    )
    run = duck.run(duck.job())
    assert (run.state, run.error) == ("succeeded", None)
    assert kept_secrets(duck) == ["kept"]
    duck.write(a="CREATE TEMPORARY SECRET other (TYPE http, BEARER_TOKEN 'x')")
    run = duck.run(duck.job())
    assert (run.state, run.error) == ("succeeded", None)
    assert kept_secrets(duck) == ["kept"]
    instance.close()
