"""SQL written once: what an engine replaces, and what the macros stand for on each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rota.storage.dialects import DIALECTS, MacroError
from rota.storage.postgres.fast_paths import FAST_PATHS
from rota.storage.statements import read_statements

SRC = Path(__file__).resolve().parents[2] / "src" / "rota"
ENGINES = tuple(DIALECTS)
NAMES = {"prefix": "rota_", "views": "public_", "schema": "rota", "now": ":now"}
COMMON = read_statements("common.sql")
OWN = {engine: read_statements(f"{engine}/queries.sql") for engine in ENGINES}
FAST = read_statements("postgres/fast_paths.sql")  # on top of PostgreSQL's own
REPLACED = [(engine, name) for engine in ENGINES for name in OWN[engine] if name in COMMON]


each_replaced = pytest.mark.parametrize(("engine", "name"), REPLACED)


def written(engine: str, text: str) -> str:
    return DIALECTS[engine](NAMES).write("test", text)


def squeezed(sql: str) -> str:
    return " ".join(sql.split())


# What an engine replaces


@each_replaced
def test_a_statement_that_replaces_another_says_why(engine: str, name: str) -> None:
    assert OWN[engine][name].startswith("-- ")
    assert OWN[engine][name].partition("\n")[0] != COMMON[name].partition("\n")[0]


@each_replaced
def test_a_statement_that_replaces_another_differs_from_it(engine: str, name: str) -> None:
    try:
        common = written(engine, COMMON[name])
    except MacroError:
        return  # the engine cannot say it in the common way
    assert squeezed(written(engine, OWN[engine][name])) != squeezed(common)


def test_a_fast_path_has_statements_of_its_own() -> None:
    """So a plain operation never sends one of them by mistake."""
    assert {name for name in FAST if name in COMMON or name in OWN["postgres"]} == {"succeed_runs"}


def test_there_are_few_fast_paths_and_each_statement_is_one_of_theirs() -> None:
    assert len(FAST_PATHS) <= 6
    assert {name for path in FAST_PATHS.values() for name in path.statements} == FAST.keys()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_new_engine_brings_few_statements(engine: str) -> None:
    """Those of another engine are the model of a new one's; docs/architecture.md has the counts."""
    assert len(OWN[engine]) <= 60


def test_every_statement_is_named_by_code() -> None:
    code = "\n".join(path.read_text("utf-8") for path in SRC.rglob("*.py"))
    # One place makes a name of two parts.
    built = {f"view_{name}" for name in ("jobs", "job_queue") if f'"{name}"' in code}
    assert 'f"view_{name}"' in code
    names = COMMON.keys() | FAST.keys() | {name for texts in OWN.values() for name in texts}
    assert {name for name in names - built if f'"{name}"' not in code} == set()


def test_few_inserts_list_the_columns_of_runs() -> None:
    """The others take the list of rows.COLUMNS."""
    inserts = [
        columns
        for path in SRC.rglob("*.sql")
        for columns in re.findall(
            r"INSERT INTO \{prefix\}runs \(([^)]*)\)", path.read_text("utf-8")
        )
    ]
    assert len(inserts) > 10
    assert len([columns for columns in inserts if " queue," in columns]) <= 5


# Macros, as sqlite, postgres and duckdb have them

MACROS = {
    "FROM {prefix}runs WHERE a <= {now}": ("FROM rota_runs WHERE a <= :now",) * 3,
    "x {in :ids bigint}": (
        "x IN (SELECT value FROM json_each(:ids))",
        "x = ANY (:ids::bigint[])",
        """x IN (SELECT unnest(from_json_strict(:ids, '["BIGINT"]')))""",
    ),
    "x {in fenced :ids uuid}": (
        "x IN (SELECT value FROM json_each(:ids))",
        "x = ANY ((SELECT :ids::uuid[])::uuid[])",
        """x IN (SELECT unnest(from_json_strict(:ids, '["VARCHAR"]')))""",
    ),
    "x {not in :ids text}": (
        "x NOT IN (SELECT value FROM json_each(:ids))",
        "x <> ALL (:ids::text[])",
        """x NOT IN (SELECT unnest(from_json_strict(:ids, '["VARCHAR"]')))""",
    ),
    "DELETE FROM t WHERE x {in rows: seq bigint}": (
        "DELETE FROM t WHERE x = :seq",
        "DELETE FROM t WHERE x = ANY (:seq::bigint[])",
        "DELETE FROM t WHERE x IN (SELECT unnest(from_json_strict(:rows, "
        """'[{"seq": "BIGINT"}]'), recursive := true))""",
    ),
    "x {in SELECT seq FROM {prefix}runs LIMIT 1 {skip locked}}": (
        "x IN (SELECT seq FROM rota_runs LIMIT 1 )",
        "x = ANY (ARRAY(SELECT seq FROM rota_runs LIMIT 1 FOR UPDATE SKIP LOCKED))",
        "x IN (SELECT seq FROM rota_runs LIMIT 1 )",
    ),
    "SELECT {empty :queues}": (
        "SELECT :queues = '[]'",
        "SELECT :queues::text[] = '{}'",
        "SELECT :queues = '[]'",
    ),
    "SELECT {now} + {seconds :ttl}": (
        "SELECT :now + CAST(:ttl * 1000000 AS INTEGER)",
        "SELECT :now + make_interval(secs => :ttl)",
        "SELECT :now + to_microseconds(CAST(:ttl::DOUBLE * 1000000 AS BIGINT))",
    ),
    "SELECT {whole {micros due_at} / 2}": (
        "SELECT CAST(due_at / 2 AS INTEGER)",
        "SELECT floor((extract(epoch FROM due_at) * 1000000)::bigint / 2)::integer",
        "SELECT CAST(floor(epoch_us(due_at) / 2) AS INTEGER)",
    ),
    "SELECT {position}(a, b), {least}(a, b), {greatest}(a, b)": (
        "SELECT instr(a, b), min(a, b), max(a, b)",
        "SELECT strpos(a, b), least(a, b), greatest(a, b)",
        "SELECT instr(a, b), least(a, b), greatest(a, b)",
    ),
    "SELECT a.x::text, ':x::text' FROM t AS a WHERE :y::bigint IS NULL": (
        "SELECT a.x, ':x::text' FROM t AS a WHERE :y IS NULL",
        "SELECT a.x::text, ':x::text' FROM t AS a WHERE :y::bigint IS NULL",
        "SELECT a.x, ':x::text' FROM t AS a WHERE :y::bigint IS NULL",
    ),
    "UPDATE t AS r SET at = {moment}, until = {moment} WHERE {fence r.x = 1} RETURNING r.x, r.y": (
        "UPDATE t AS r SET at = :now, until = :now WHERE r.x = 1 RETURNING x, y",
        "WITH t AS MATERIALIZED (SELECT :now AS now) UPDATE t AS r SET at = (SELECT now FROM t), "
        "until = (SELECT now FROM t) WHERE CASE WHEN r.x = 1 THEN true ELSE false END "
        "RETURNING r.x, r.y",
        "UPDATE t AS r SET at = :now, until = :now WHERE r.x = 1 RETURNING r.x, r.y",
    ),
    "SELECT 1 FROM t {index runs_due} WHERE {run :id} AND {terminal t.state} {lock}": (
        "SELECT 1 FROM t INDEXED BY rota_runs_due WHERE id = :id AND (t.state = 'succeeded' "
        "OR t.state = 'dead' OR t.state = 'cancelled')",
        "SELECT 1 FROM t WHERE seq = (SELECT seq FROM rota_run_ids WHERE id = :id) "
        "AND t.state IN ('succeeded', 'dead', 'cancelled') FOR UPDATE",
        "SELECT 1 FROM t WHERE id = :id AND t.state IN ('succeeded', 'dead', 'cancelled')",
    ),
    "SELECT 1 FROM t AS o {skip locked o}": (
        "SELECT 1 FROM t AS o",
        "SELECT 1 FROM t AS o FOR UPDATE OF o SKIP LOCKED",
        "SELECT 1 FROM t AS o",
    ),
    "SELECT {columns files} FROM {prefix}files": (
        "SELECT id, name, content_type, size, sha256, job, run_id, created_at, until "
        "FROM rota_files",
        "SELECT id::text, name, content_type, size, sha256, job, run_id::text, created_at, until "
        "FROM rota_files",
        "SELECT id, name, content_type, size, sha256, job, run_id, created_at, until "
        "FROM rota_files",
    ),
    "INSERT INTO t ({names placed}) SELECT {placed a.due_at, {now}, a.key}": (
        "INSERT INTO t (state, due_at, created_at, queued_at) SELECT CASE WHEN a.due_at > :now "
        "THEN 'waiting' WHEN a.key IS NULL THEN 'queued' ELSE 'held' END, a.due_at, :now, "
        "CASE WHEN a.due_at <= :now THEN :now END",
    )
    * 3,
    "SELECT j.seqs FROM {lists j: :seqs bigint, :names text}": (
        "SELECT j.seqs FROM (SELECT seqs.value AS seqs, names.value AS names FROM "
        "json_each(:seqs) AS seqs JOIN json_each(:names) AS names ON names.key = seqs.key) AS j",
        "SELECT j.seqs FROM unnest((SELECT :seqs::bigint[]), (SELECT :names::text[])) "
        "AS j(seqs, names)",
        """SELECT j.seqs FROM (SELECT unnest(from_json_strict(:seqs, '["BIGINT"]')) AS seqs, """
        """unnest(from_json_strict(:names, '["VARCHAR"]')) AS names) AS j""",
    ),
    'UPDATE t AS r SET "by" = a."by" FROM {rows a: id uuid, by text} WHERE r.id = a.id': (
        'UPDATE t AS r SET "by" = :by WHERE r.id = :id',
        'UPDATE t AS r SET "by" = a."by" FROM unnest((SELECT :id::uuid[]), (SELECT :by::text[])) '
        "AS a(id, by) WHERE r.id = a.id",
        'UPDATE t AS r SET "by" = a."by" FROM (SELECT unnest(from_json_strict(:rows, '
        """'[{"id": "VARCHAR", "by": "VARCHAR"}]'), recursive := true)) AS a WHERE r.id = a.id""",
    ),
    "DELETE FROM t AS r USING {rows a: x instant} WHERE r.x = a.x AND r.y <> 'a.x'": (
        "DELETE FROM t AS r WHERE r.x = :x AND r.y <> 'a.x'",
        "DELETE FROM t AS r USING unnest((SELECT :x::timestamptz[])) AS a(x) "
        "WHERE r.x = a.x AND r.y <> 'a.x'",
        """DELETE FROM t AS r USING (SELECT unnest(from_json_strict(:rows, '[{"x": """
        """"TIMESTAMPTZ"}]'), recursive := true)) AS a WHERE r.x = a.x AND r.y <> 'a.x'""",
    ),
    "INSERT INTO t (x, y) SELECT a.x, a.y FROM {rows a: x float, y boolean} "
    "{ignore conflicts and repeats t: x = a.x}": (
        "INSERT INTO t (x, y) VALUES (:x, :y) ON CONFLICT (x) DO NOTHING",
        "INSERT INTO t (x, y) SELECT a.x, a.y FROM unnest((SELECT :x::float8[]), "
        "(SELECT :y::boolean[])) AS a(x, y) ON CONFLICT (x) DO NOTHING",
        """INSERT INTO t (x, y) SELECT a.x, a.y FROM (SELECT unnest(from_json_strict(:rows, """
        """'[{"x": "DOUBLE", "y": "BOOLEAN"}]'), recursive := true)) AS a WHERE NOT EXISTS """
        "(SELECT 1 FROM rota_t AS known WHERE known.x = a.x) "
        "QUALIFY row_number() OVER (PARTITION BY a.x) = 1",
    ),
    "INSERT INTO t (x) SELECT :x {ignore conflicts t: x = :x, y = :y}": (
        "INSERT INTO t (x) SELECT :x ON CONFLICT (x, y) DO NOTHING",
        "INSERT INTO t (x) SELECT :x ON CONFLICT (x, y) DO NOTHING",
        "INSERT INTO t (x) SELECT :x WHERE NOT EXISTS "
        "(SELECT 1 FROM rota_t AS known WHERE known.x = :x AND known.y = :y)",
    ),
}


@pytest.mark.parametrize("text", MACROS)
def test_a_macro_is_what_each_engine_writes(text: str) -> None:
    assert tuple(squeezed(written(engine, text)) for engine in ENGINES) == MACROS[text]


def test_values_are_of_the_columns_that_are_named() -> None:
    text = "INSERT INTO t ({names new_job}) SELECT {values a.new_job} FROM {rows a: new_job}"
    columns = "name, executor, source, origin, spec, args_schema"
    sqlite, postgres = written("sqlite", text), written("postgres", text)
    assert f"({columns}, " in sqlite
    assert f"VALUES (:{columns.replace(', ', ', :')}, " in sqlite
    assert f"SELECT a.{columns.replace(', ', ', a.')}, " in postgres
    assert "(SELECT :spec::json[])" in postgres
    assert "source = excluded.source, " in written("postgres", "{set new_job from excluded}")
    assert ":spec::json, " in written("postgres", "SELECT {values :new_job}")


def test_comments_are_for_those_who_read_the_file() -> None:
    assert written("sqlite", "-- {no macro} here\nSELECT 1\n-- :x\n FROM t") == "SELECT 1\n FROM t"


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "SELECT {colums runs}": "statement test for sqlite: {colums runs} is no macro",
        "SELECT {columns rums}": "'rums' is no list of columns; use one of runs, claimed_runs",
        "x {in ids bigint}": "'ids bigint' must be a parameter and its type, as in :ids bigint",
        "x {in :ids int}": "'int' is no type; use one of bigint, ",
        "x {in :ids}": "'' is no type; use one of bigint, ",
        "SELECT 1 FROM {rows seq bigint}": "must begin with an alias, as in {rows a: seq bigint}",
        "SELECT 1 FROM {rows a: seq int}": "'int' is no type",
        "SELECT 1 FROM {rows a: runs}": "'' is no type",
        "SELECT 1 FROM {lists :seqs bigint}": "as in {lists a: :seqs bigint}",
        "SELECT a.y FROM {rows a: x text}": "a.y is no column of {rows a: x text}",
        "SELECT 1 FROM {rows a: x text} JOIN t ON true": "be the last table there, because SQLite",
        "SELECT 1 FROM t JOIN {rows a: x text} ON true": "must follow FROM, USING or a comma",
        "INSERT INTO t SELECT 1 {ignore conflicts t}": "must name a table and its key, as in",
        "SELECT {placed due_at}": "as in {placed a.due_at, {now}, a.wanted_key}",
        "SELECT {types seq bigint}": "is for DuckDB",
    }.items(),
)
def test_a_macro_that_makes_no_sense_is_named(text: str, message: str) -> None:
    with pytest.raises(MacroError, match=re.escape(message)):
        written("sqlite", text)


def test_one_instant_for_a_statement_needs_its_first_with() -> None:
    with pytest.raises(MacroError, match="put `t` into it"):
        written("postgres", "WITH a AS (SELECT 1) SELECT {moment} FROM a")
