"""Rota's views inside a DuckDB target whose store is another database: copies, made as a file
begins that speaks of `_rota`. They are attached in memory, and detached with the run."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.model.steps import Steps

NAME = "_rota"
# As DuckDB's own views have them; with the names under which the store hands them over.
VIEWS = {
    "jobs": {
        "name": "VARCHAR", "schedule": "VARCHAR", "enabled": "BOOLEAN", "queue_max": "INTEGER",
        "timeout": "VARCHAR", "file_count": "INTEGER", "queued": "INTEGER", "running": "BOOLEAN",
        "error": "VARCHAR",
    },
    "job_queue": {
        "job_name": "VARCHAR", "queued_at": "TIMESTAMPTZ", "started_at": "TIMESTAMPTZ",
    },
    "job_runs": {
        "id": "BIGINT", "run_id": "VARCHAR", "job_name": "VARCHAR", "record_type": "VARCHAR",
        "file_name": "VARCHAR", "started_at": "TIMESTAMPTZ", "finished_at": "TIMESTAMPTZ",
        "status": "VARCHAR", "error_message": "VARCHAR",
    },
}  # fmt: skip


def is_free(cursor: Any) -> bool:
    """False if the file has a schema or database of that name, which we did not make: it is
    another Rota's store, and its views are the ones that are meant."""
    schemas = cursor.execute(
        "SELECT count(*) FROM duckdb_schemas() WHERE schema_name = ?", [NAME]
    ).fetchone()
    others = cursor.execute(
        "SELECT count(*) FROM duckdb_databases() WHERE database_name = ? AND path IS NOT NULL",
        [NAME],
    ).fetchone()
    return bool(schemas[0] == 0 and others[0] == 0)


def fill(cursor: Any, steps: Steps) -> None:
    """The views as they are now."""
    cursor.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {NAME}")
    for view, columns in VIEWS.items():
        rows = [_row(row, columns) for row in steps.view(view)]
        shape = msgspec.json.encode([columns]).decode()
        wanted = ", ".join(columns)
        cursor.execute(
            f"CREATE OR REPLACE TABLE {NAME}.{view} AS SELECT {wanted} FROM "
            f"(SELECT unnest(from_json(?, '{shape}'), recursive := true))",
            [msgspec.json.encode(rows).decode()],
        )


def _row(row: dict[str, Any], columns: dict[str, str]) -> dict[str, Any]:
    """A row by the names of its columns; SQLite has numbers for truth."""
    values = dict(zip(columns, row.values(), strict=True))
    return {
        name: bool(value) if columns[name] == "BOOLEAN" and value is not None else value
        for name, value in values.items()
    }
