"""Copies of Rota's views in a DuckDB target, for a store in another database.

They are made when a file that names `_rota` begins, in an attached in-memory database, which is
detached at the end of the run.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rota.model.steps import Steps

NAME = "_rota"
# Columns and types as in the views of a DuckDB store, in the order of `Steps.view`.
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
    """False if the file has a schema or database of that name that we did not create.

    Such a file is the store of another Rota; its views are used."""
    schemas = cursor.execute(
        "SELECT count(*) FROM duckdb_schemas() WHERE schema_name = ?", [NAME]
    ).fetchone()
    databases = cursor.execute(
        "SELECT count(*) FROM duckdb_databases() WHERE database_name = ? AND path IS NOT NULL",
        [NAME],
    ).fetchone()
    return bool(schemas[0] == 0 and databases[0] == 0)


def fill(cursor: Any, steps: Steps) -> None:
    """Copy the current rows of the views."""
    cursor.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {NAME}")
    for view, columns in VIEWS.items():
        rows = [_row(row, columns) for row in steps.view(view)]
        shape = msgspec.json.encode([columns]).decode()
        names = ", ".join(columns)
        cursor.execute(
            f"CREATE OR REPLACE TABLE {NAME}.{view} AS SELECT {names} FROM "
            f"(SELECT unnest(from_json(?, '{shape}'), recursive := true))",
            [msgspec.json.encode(rows).decode()],
        )


def _row(row: dict[str, Any], columns: dict[str, str]) -> dict[str, Any]:
    """A row with our column names; SQLite stores booleans as numbers."""
    values = dict(zip(columns, row.values(), strict=True))
    return {
        name: bool(value) if columns[name] == "BOOLEAN" and value is not None else value
        for name, value in values.items()
    }
