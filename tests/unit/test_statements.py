"""Named statements: made when they are asked for."""

from __future__ import annotations

import pytest

from rota.storage.statements import Statements, load_statements

engines = pytest.mark.parametrize("engine", ["postgres", "sqlite", "duckdb"])


def test_a_statement_is_made_once_and_when_it_is_asked_for() -> None:
    made: list[str] = []

    def make(name: str, sql: str) -> tuple[str, str]:
        made.append(name)
        return name, sql

    statements = Statements({"one": "SELECT 1", "two": "SELECT 2"}, make)
    assert made == []
    assert statements["two"] == ("two", "SELECT 2")
    assert statements["two"] is statements["two"]
    assert made == ["two"]
    with pytest.raises(KeyError, match="three"):
        statements["three"]


@engines
def test_every_statement_has_a_name_and_an_end(engine: str) -> None:
    for name, sql in load_statements(engine, {"prefix": "here."}).items():
        assert name.isidentifier()
        assert sql == sql.strip()
        assert not sql.endswith(";")
        assert "-- name:" not in sql
        assert "{prefix}" not in sql
