"""What SQL files can do that would lose their work, change its meaning, or outlast a stop."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.storage import operations
from tests.executors.sql_support import World
from tests.executors.test_sql_runs import PLACES, make_world


@pytest.fixture(params=PLACES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = make_world(request.param, tmp_path, request)
    yield made
    made.close()


@pytest.fixture(params=["postgres-store", "postgres"])
def postgres(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = make_world(request.param, tmp_path, request)
    yield made
    made.close()


@pytest.fixture(params=["duckdb-store", "duckdb"])
def duck(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = make_world(request.param, tmp_path, request)
    yield made
    made.close()


def test_a_transaction_that_an_autonomous_file_left_open_is_no_success(world: World) -> None:
    world.write(
        a="CREATE TABLE t (i INTEGER)",
        b="-- rota: autonomous\nBEGIN;\nINSERT INTO t VALUES (1)",
    )
    run = world.run(world.job())
    assert run.state == "dead"
    assert run.error is not None
    assert "b.sql: it ends inside a transaction" in run.error
    assert world.steps(run) == [("a.sql", "succeeded"), ("b.sql", "failed")]
    assert world.query("SELECT i FROM t") == []


def test_what_duckdb_rewrites_is_run_as_it_was_meant(duck: World) -> None:
    duck.write(
        a="CREATE TABLE t (a INTEGER, b INTEGER); INSERT INTO t VALUES (1, 2), (2, 3), (1, 5)",
        b="PIVOT t ON a USING sum(b); CREATE TABLE p AS PIVOT t ON a USING sum(b); FROM p",
        c="PRAGMA table_info('p'); PIVOT (SELECT * FROM t) ON a USING sum(b);",
    )
    run = duck.run(duck.job())
    assert (run.state, run.error) == ("succeeded", None)
    results = [row["result"] for row in duck.store.read(operations.list_steps, run.seq)]
    told = {"columns": ["1", "2"], "rows": [[7, 3]], "more": False}
    assert [json.loads(result) for result in results[1:]] == [told, told]


@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("SELECT 1;\n\nPIVOT t ON nope USING sum(b);\nSELECT 2", 3),
        ("PIVOT t ON a USING sum(b);\n;\n-- a comment\nSELECT nope FROM t;", 4),
        ("SELECT\u00a01;\nSELECT a,\n nope FROM t;", 3),
        ("SELECT 1;\nSELECT INTERVAL '1000000000 days'", 2),
    ],
)
def test_the_line_is_told_beside_what_duckdb_rewrites(duck: World, sql: str, line: int) -> None:
    duck.write(a="CREATE TABLE t AS SELECT 1 AS a, 2 AS b", b=sql)
    run = duck.run(duck.job())
    assert run.error is not None
    assert run.error.startswith(f"b.sql:{line}: "), run.error
    assert duck.steps(run)[-1] == ("b.sql", "failed")


def test_a_deferred_trigger_hears_a_stop(postgres: World) -> None:
    postgres.write(
        a="CREATE TABLE t (i INTEGER);"
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(600); RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION slow()",
        b="INSERT INTO t VALUES (1)",
    )
    postgres.enqueue()
    begun = postgres.begin(postgres.job()).until_step("b.sql")
    until = time.monotonic() + 20
    while not postgres.query("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"):
        assert time.monotonic() < until, "the trigger did not run"
    run = begun.stop("cancelled").ended()
    assert run.state == "cancelled"
    assert postgres.query("SELECT i FROM t") == []


VALUE = "\\'); DROP TABLE t; --"


def test_backslashes_that_end_a_quote_are_refused(
    postgres: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VALUE", VALUE)
    postgres.write(
        a="CREATE TABLE t (s TEXT)",
        b="SET standard_conforming_strings = off;\nINSERT INTO t VALUES ('${VALUE}')",
    )
    run = postgres.run(postgres.job())
    assert run.error is not None
    assert "b.sql:2: standard_conforming_strings is off" in run.error
    assert postgres.query("SELECT s FROM t") == []


def test_a_database_that_reads_backslashes_gets_values_as_data(
    postgres: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = postgres.query("SELECT quote_ident(current_database())")[0][0]
    postgres.query(f"ALTER DATABASE {name} SET standard_conforming_strings = off")
    monkeypatch.setenv("VALUE", VALUE)
    postgres.write(a="CREATE TABLE t (s TEXT)", b="INSERT INTO t VALUES ('${VALUE}')")
    run = postgres.run(postgres.job())
    assert (run.state, run.error) == ("succeeded", None)
    assert postgres.query("SELECT s FROM t") == [(VALUE,)]


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT 'infinity'::timestamptz, '-infinity'::date", ["infinity", "-infinity"]),
        ("SELECT ARRAY['infinity'::date], '24:00'::time", [["infinity"], "24:00:00"]),
        ("SELECT '200000-01-01'::timestamp", ["200000-01-01 00:00:00"]),
        ("WITH a AS (SELECT interval '170000000 years' AS i) TABLE a", ["170000000 years"]),
        ("WITH a AS (INSERT INTO t VALUES (1) RETURNING i) SELECT i FROM a", [1]),
    ],
)
def test_values_that_python_does_not_have_are_shown_as_text(
    postgres: World, sql: str, told: list[object]
) -> None:
    postgres.write(a="CREATE TABLE t (i INTEGER)", b=sql)
    run = postgres.run(postgres.job())
    assert (run.state, run.error) == ("succeeded", None)
    assert json.loads(run.result or "")["rows"] == [told]


def test_a_statement_with_common_tables_may_change_rows(postgres: World) -> None:
    postgres.write(
        a="CREATE TABLE t (i INTEGER)",
        b="WITH a AS (SELECT 1 AS i UNION ALL SELECT 2) INSERT INTO t SELECT i FROM a",
        c="WITH a AS (SELECT i FROM t) SELECT count(*) AS into_t, 'insert into' FROM a",
    )
    run = postgres.run(postgres.job())
    assert (run.state, run.error) == ("succeeded", None)
    assert postgres.store.read(operations.list_steps, run.seq)[1]["rows"] == 2
    assert json.loads(run.result or "")["rows"] == [[2, "insert into"]]


@pytest.mark.parametrize("sql", ["COPY (SELECT 1) TO STDOUT", "COPY t FROM STDIN"])
def test_a_copy_that_needs_a_client_is_told_where_to(postgres: World, sql: str) -> None:
    postgres.write(a="CREATE TABLE t (i INTEGER);\n" + sql)
    run = postgres.run(postgres.job())
    assert run.error is not None
    assert "a.sql:2: COPY to STDOUT or from STDIN has no client here" in run.error


@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("SELECT '${LINES}', '${LINES}';\nSELECT 1;\nSELECT nope FROM nowhere", 3),
        ("SELECT 1;\nSELECT '${LINES}' FROM nowhere", 2),
        ("SELECT 1;\n-- rota\nSELECT '${LINES}';\nCOMMIT;", 4),
    ],
)
def test_lines_are_those_of_the_file(
    world: World, monkeypatch: pytest.MonkeyPatch, sql: str, line: int
) -> None:
    monkeypatch.setenv("LINES", "a\nb\r\n\nc")
    world.write(a=sql)
    run = world.run(world.job())
    assert run.error is not None
    assert run.error.startswith(f"a.sql:{line}: "), run.error
