"""Every statement is one that its engine understands, also those that are hardly ever sent."""

from __future__ import annotations

from typing import Any

from rota.storage.statements import load_statements, parameters, to_dollars, to_numbered
from rota.storage.store import Store
from tests.conformance.support import Place


def test_the_engine_understands_every_statement(store: Store, place: Place) -> None:
    engine: Any = store.engine
    texts = load_statements(place.engine, engine._substitutions)
    assert len(texts) > 200
    connection = place.autocommit()
    refused = {}
    for name, sql in texts.items():
        try:
            understand(place.engine, connection, sql)
        except Exception as fault:
            refused[name] = str(fault)
    connection.close()
    assert refused == {}


def understand(engine: str, connection: Any, sql: str) -> None:
    """Have the engine read the statement and look up what it names."""
    # DuckDB reads the types of JSON rows when it reads the statement.
    values = {name: "[]" if name == "rows" else None for name in parameters(sql)}
    if engine == "sqlite":
        connection.execute(f"EXPLAIN {sql}", values)
    elif engine == "duckdb":
        connection.execute(f"EXPLAIN {to_dollars(sql)}", values)
    elif not sql.startswith("LOCK TABLE"):  # which PostgreSQL does not prepare
        connection.execute(f"PREPARE understood AS {to_numbered(sql)}")
        connection.execute("DEALLOCATE understood")
