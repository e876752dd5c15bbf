"""What a SQL file says about its own transactions, and where its statements begin."""

from __future__ import annotations

import pytest

from rota.model.sql_lexer import DIALECTS
from rota.model.sql_script import is_autonomous, own_transaction, session_statements, statements

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


@pytest.mark.parametrize(
    "text",
    ["-- rota: autonomous\nVACUUM", "--rota:autonomous", "\ufeff-- rota: autonomous  \r\nVACUUM"],
)
def test_the_first_line_asks_for_no_transaction(text: str) -> None:
    assert is_autonomous(text)


@pytest.mark.parametrize(
    "text",
    ["", "VACUUM -- rota: autonomous", "\n-- rota: autonomous", "-- rota: autonomously\n", "'"],
)
def test_elsewhere_it_asks_nothing(text: str) -> None:
    assert not is_autonomous(text)


@every_dialect
@pytest.mark.parametrize(
    "statement",
    ["BEGIN", "begin transaction", "COMMIT", "ROLLBACK", "Rollback WORK", "END", "ABORT",
     "START TRANSACTION", "/* x */ COMMIT", "-- x\nCOMMIT", "; COMMIT"],
)  # fmt: skip
def test_a_transaction_of_its_own_is_told_by_its_line(dialect: str, statement: str) -> None:
    line = 2 + statement.count("\n")
    assert own_transaction(f"SELECT 'a;';\n{statement};\nSELECT 1", dialect) == line
    assert own_transaction(f"SELECT 'a;';\n{statement}", dialect) == line


@every_dialect
@pytest.mark.parametrize(
    "text",
    ["SELECT 1", "-- COMMIT;\nSELECT 1", "SELECT ';\nCOMMIT;'", 'SELECT "; COMMIT; "',
     "/* ; COMMIT; */ SELECT 1", "SAVEPOINT s; ROLLBACK TO s; RELEASE s",
     "SAVEPOINT s; ROLLBACK TRANSACTION TO SAVEPOINT s", "SELECT CASE x WHEN 1 THEN 2 END",
     "CREATE TABLE t (begin int); SELECT 1", "PREPARE p AS SELECT 1", "", ";;", "committed"],
)  # fmt: skip
def test_other_texts_have_none(dialect: str, text: str) -> None:
    assert own_transaction(text, dialect) is None


def test_the_body_of_a_trigger_is_part_of_it() -> None:
    trigger = """CREATE TEMP TRIGGER IF NOT EXISTS g AFTER INSERT ON t
    BEGIN
        UPDATE t SET x = CASE WHEN 1 THEN 2 END;
        SELECT 1;
    END"""
    assert own_transaction(f"{trigger};\nSELECT 1", "sqlite") is None
    assert own_transaction(f"{trigger};\nCOMMIT", "sqlite") == 6
    assert [one.line for one in statements(f"{trigger};\nSELECT 1", "sqlite")] == [1, 6]


def test_the_body_of_a_function_is_part_of_it() -> None:
    function = "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END"
    assert own_transaction(f"{function};\nSELECT 1", "postgres") is None
    assert own_transaction(f"{function};\nEND", "postgres") == 2
    assert own_transaction("CREATE PROCEDURE p() BEGIN ATOMIC END; COMMIT", "postgres") == 1
    assert own_transaction("DO $$ BEGIN COMMIT; END $$; SELECT 1", "postgres") is None


def test_a_column_named_begin_hides_nothing() -> None:
    for dialect in DIALECTS:
        assert own_transaction("CREATE TABLE t (begin int);\nCOMMIT", dialect) == 2


def test_a_prepared_transaction_is_one() -> None:
    assert own_transaction("PREPARE TRANSACTION 'x'", "postgres") == 1


@every_dialect
def test_statements_are_told_with_their_first_words(dialect: str) -> None:
    text = "-- a\nselect 1\n+ 2;\n\n;  'quoted';\n(values (1))"
    found = [(one.keywords, one.line) for one in statements(text, dialect)]
    assert found == [(("SELECT",), 2), (("",), 5), (("VALUES",), 6)]


def texts(script: str, dialect: str) -> list[tuple[int, str]]:
    return [(one.line, script[one.start : one.end].strip()) for one in statements(script, dialect)]


@every_dialect
def test_a_script_is_cut_at_its_semicolons(dialect: str) -> None:
    script = "SELECT 1;\n\n-- a; b\nSELECT ';'; (SELECT 3);;\n 4 ; 'x'\n-- end"
    assert texts(script, dialect) == [
        (1, "SELECT 1"),
        (4, "-- a; b\nSELECT ';'"),
        (4, "(SELECT 3)"),
        (5, "4"),
        (5, "'x'\n-- end"),
    ]
    assert texts("-- nothing\n;\n /* ; */ ", dialect) == []
    assert texts("SELECT 1 \n;\n+", dialect) == [(1, "SELECT 1"), (3, "+")]


def test_a_rule_of_postgresql_holds_statements() -> None:
    rule = "CREATE RULE r AS ON INSERT TO t DO ALSO (INSERT INTO a VALUES (1); SELECT 2)"
    assert texts(f"{rule}; SELECT 1", "postgres") == [(1, rule), (1, "SELECT 1")]


@pytest.mark.parametrize(
    ("dialect", "text", "again"),
    [
        ("duckdb", "ATTACH 'x.db' AS x; CREATE TABLE x.t (i INT); USE x; SELECT 'USE y'", [1, 3]),
        ("duckdb", "-- rota: autonomous\nset threads = 1; reset threads; load json", [1, 2, 3]),
        ("duckdb", "INSTALL spatial; FORCE INSTALL spatial; UPDATE EXTENSIONS", [1]),
        ("duckdb", "CREATE SECRET (TYPE s3); CREATE OR REPLACE TEMPORARY SECRET s (a b)", [1, 2]),
        ("duckdb", "CREATE SECRET s IN here (a b); CREATE SECRET IN here (a b)", []),
        ("duckdb", "CREATE SECRET \"in (\" (a (b in c)); DROP SECRET s FROM here", [1]),
        ("duckdb", "CREATE PERSISTENT SECRET s (TYPE s3); CREATE TABLE secret (i INT)", []),
        ("duckdb", "DROP SECRET IF EXISTS s; DROP PERSISTENT SECRET s; DROP TABLE secret", [1]),
        ("duckdb", "CREATE OR REPLACE TABLE secret AS SELECT 1; CREATE VIEW secret AS FROM t", []),
        ("duckdb", "PRAGMA threads=2; PRAGMA threads /*;*/ = 2; PRAGMA table_info('a=b')", [1, 2]),
        ("duckdb", "PRAGMA x = 'y'; PRAGMA x 'y=z'; PRAGMA x /* = */ ('y')", [1]),
        ("duckdb", "PRAGMA create_fts_index('t', 'i', stemmer = 'none'); PRAGMA version", []),
        ("duckdb", "DETACH x; COPY t TO 'x'; CREATE TEMP TABLE t (i INT)", [1]),
        ("postgres", "SET a.b = 1; SET LOCAL a.b = 1; SET SESSION a.b = 1; RESET ALL", [1, 3, 4]),
        ("postgres", "SET TRANSACTION READ ONLY; SET CONSTRAINTS ALL DEFERRED; LOAD 'x'", [3]),
        ("postgres", "DO $$ BEGIN SET a.b = 1; END $$; CREATE SECRET s; ATTACH x", []),
        ("sqlite", "ATTACH 'x' AS x; DETACH x; PRAGMA main.cache_size = 1", [1, 2, 3]),
        ("sqlite", "PRAGMA optimize; PRAGMA user_version = 1; PRAGMA foreign_keys(1)", [3]),
        ("sqlite", "PRAGMA wal_checkpoint; REINDEX; SET x = 1; USE x", []),
    ],
)  # fmt: skip
def test_what_only_makes_the_session_is_told_apart(
    dialect: str, text: str, again: list[int]
) -> None:
    every = list(statements(text, dialect))
    found = [every.index(one) + 1 for one in session_statements(text, dialect)]
    assert found == again
