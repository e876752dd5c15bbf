"""Variables in SQL: whatever a value holds, each engine gives back exactly it, as data."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import psycopg
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from rota.errors import Invalid
from rota.model.interpolate import interpolate
from rota.model.sql_lexer import DIALECTS, WIDE_BLANK
from tests.support.postgres import Server

EVIL = "x'; DROP TABLE t; --"
# The characters that mean something to a lexer, and a few that only look like it.
MARKS = list("'\"`[]\\$;-/*{}EUXeux&a_0 \n\r\t\f\v\xa0é\u2003\u3000\ufeff😀")
WORDS = ["--", "/*", "*/", "$$", "$a$", "''", "\\'", "${A}", "$${A}", EVIL]
hard_values = st.lists(
    st.sampled_from(MARKS) | st.sampled_from(WORDS) | st.characters(exclude_categories=["Cs"]),
    max_size=12,
).map(lambda parts: "".join(parts).replace("\0", ""))

# Expressions that give back the value, with what stands before it.
LITERALS = [
    ("sqlite", "'${A}'", ""),
    ("sqlite", "'it''s ${A}'", "it's "),
    ("sqlite", "/* /* ' */ '${A}' -- '", ""),
    ("duckdb", "'${A}'", ""),
    ("duckdb", "E'\\'${A}'", "'"),
    ("duckdb", "E'\\\\'\n'${A}'", "\\"),
    ("duckdb", "e'' -- '\n '${A}'", ""),
    ("duckdb", "/* /* ' */ ' */ '${A}' -- '", ""),
    ("postgres", "'${A}'", ""),
    ("postgres", "E'\\'${A}'", "'"),
    ("postgres", "E'\\\\'\n'${A}'", "\\"),
    ("postgres", "e'' -- '\n '${A}'", ""),
    ("postgres", "N'${A}'", ""),
    ("postgres", "/* /* ' */ ' */ '${A}' -- '", ""),
]
# Their end cannot be escaped: a value that holds it is refused.
TAGGED = [
    ("duckdb", "$$${A}$$"),
    ("duckdb", "$a$${A}$a$"),
    ("postgres", "$$${A}$$"),
    ("postgres", "$a$${A}$a$"),
]
NAMES = [
    ("sqlite", '"${A}"'),
    ("sqlite", "`${A}`"),
    ("sqlite", "[${A}]"),
    ("duckdb", '"${A}"'),
    ("postgres", '"${A}"'),
]
NAME_BYTES = 63  # PostgreSQL cuts longer ones


@pytest.fixture(scope="session")
def connections(postgres_server: Server) -> Iterator[Mapping[str, Any]]:
    """A target of each kind, with a table that a value may want to drop."""
    with postgres_server.database() as url:
        opened = {
            "sqlite": sqlite3.connect(":memory:", isolation_level=None),
            "duckdb": duckdb.connect(":memory:"),
            "postgres": psycopg.connect(url, autocommit=True),
        }
        for connection in opened.values():
            connection.execute("CREATE TABLE t (x TEXT)")
        yield opened
        for connection in opened.values():
            connection.close()


def answer(connection: Any, sql: str) -> Any:
    """The only value of the only row; the table is still there."""
    ((value,),) = connection.execute(sql).fetchall()
    connection.execute("SELECT count(*) FROM t").fetchall()
    return value


def misread(dialect: str, literal: str, value: str) -> bool:
    return dialect == "duckdb" and literal[0] in "eE$" and WIDE_BLANK.search(value) is not None


@pytest.mark.parametrize(("dialect", "literal", "before"), LITERALS)
@given(value=hard_values)
@example(value=EVIL)
def test_a_value_in_a_literal_arrives_as_it_is(
    connections: Mapping[str, Any], dialect: str, literal: str, before: str, value: str
) -> None:
    text = f"SELECT {literal}"
    if misread(dialect, literal, value):
        with pytest.raises(Invalid, match="blank that DuckDB would change"):
            interpolate(text, {"A": value}, dialect)
    else:
        made = interpolate(text, {"A": value}, dialect)
        assert answer(connections[dialect], made) == before + value


@pytest.mark.parametrize(("dialect", "literal"), TAGGED)
@given(value=hard_values)
@example(value=EVIL)
def test_a_value_in_a_dollar_quote_arrives_or_is_refused(
    connections: Mapping[str, Any], dialect: str, literal: str, value: str
) -> None:
    tag = literal[: literal.index("$", 1) + 1]
    try:
        sql = interpolate(f"SELECT {literal}", {"A": value}, dialect)
    except Invalid:
        assert tag in value + tag[:-1] or misread(dialect, literal, value)
    else:
        assert answer(connections[dialect], sql) == value


@pytest.mark.parametrize(("dialect", "name"), NAMES)
@given(value=hard_values)
@example(value=EVIL)
def test_a_value_in_a_quoted_name_arrives_as_it_is(
    connections: Mapping[str, Any], dialect: str, name: str, value: str
) -> None:
    assume(0 < len(value.encode()) <= NAME_BYTES)
    try:
        sql = interpolate(f"SELECT 1 AS {name}", {"A": value}, dialect)
    except Invalid:
        assert name == "[${A}]"
        assert "]" in value
        return
    connection = connections[dialect]
    assert [column[0] for column in connection.execute(sql).description] == [value]


@given(value=hard_values)
@example(value=EVIL)
def test_a_value_in_a_body_arrives_as_it_is(connections: Mapping[str, Any], value: str) -> None:
    body = "DO $a$ BEGIN TRUNCATE t; INSERT INTO t VALUES ('${A}'); END $a$"
    connection = connections["postgres"]
    try:
        connection.execute(interpolate(body, {"A": value}, "postgres"))
    except Invalid:
        assert "$a$" in value
    else:
        assert answer(connection, "SELECT x FROM t") == value


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_megabyte_arrives_as_it_is(connections: Mapping[str, Any], dialect: str) -> None:
    value = ("x" * 1023 + "\n") * 1024 + EVIL
    sql = interpolate("SELECT '${A}'", {"A": value}, dialect)
    assert answer(connections[dialect], sql) == value


def test_duckdb_would_change_wide_blanks(connections: Mapping[str, Any]) -> None:
    """It takes them for blanks where it misreads a quote: the reason why they are refused."""
    ((found,),) = connections["duckdb"].execute("SELECT E'\\'\xa0'").fetchall()
    assert found == "' "
