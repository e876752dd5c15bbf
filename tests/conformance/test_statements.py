"""Every statement is one that its engine understands, also those that are hardly ever sent."""

from __future__ import annotations

from typing import Any

from rota.storage.statements import parameters, to_dollars, to_numbered
from rota.storage.store import Store


def test_the_engine_understands_every_statement(store: Store) -> None:
    engine: Any = store.engine
    texts = engine.statements._texts
    assert len(texts) > 200
    refused = {}
    for name, sql in texts.items():
        try:
            engine.write("test", lambda tx, sql=sql: understand(engine.name, tx, sql))
        except Exception as fault:
            refused[name] = str(fault)
    assert refused == {}


def understand(engine: str, tx: Any, sql: str) -> None:
    """Have the engine read the statement and look up what it names."""
    # DuckDB reads the types of JSON rows when it reads the statement.
    values = {name: "[]" if name == "rows" else None for name in parameters(sql)}
    match engine:
        case "sqlite":
            tx.connection.execute(f"EXPLAIN {sql}", values)
        case "duckdb":
            tx.cursor.execute(f"EXPLAIN {to_dollars(sql)}", values)
        case "postgres":
            if not sql.startswith("LOCK TABLE"):  # which PostgreSQL does not prepare
                tx.script(f"PREPARE understood AS {to_numbered(sql)}")
                tx.script("DEALLOCATE understood")
        case _:
            raise AssertionError(f"say here how {engine} reads a statement without running it")
