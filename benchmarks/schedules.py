"""Many schedules from one that Rota made: making them one by one is not what is measured."""

from __future__ import annotations

import sqlite3

import psycopg

POSTGRES = ("rota_data.schedules", "generate_series(2, {count}) AS n")
SQLITE = (
    "_rota_schedules",
    "(WITH RECURSIVE numbers(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})"
    " SELECT n FROM numbers)",
)


def multiply_schedules(url: str, count: int) -> None:
    """Copies of the one schedule there is, so that there are `count`."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as lite:
            table, numbers = SQLITE
            found = lite.execute(f"SELECT name FROM pragma_table_info('{table}')").fetchall()
            lite.execute(_copy(table, numbers, [name for (name,) in found], count))
        return
    with psycopg.connect(url) as connection:
        table, numbers = POSTGRES
        description = connection.execute(f"SELECT * FROM {table}").description
        assert description is not None
        connection.execute(_copy(table, numbers, [column.name for column in description], count))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CHECKPOINT")


def _copy(table: str, numbers: str, names: list[str], count: int) -> str:
    kept = [name for name in names if name != "id"]
    made = ["s.name || n" if name == "name" else f"s.{name}" for name in kept]
    return (
        f"INSERT INTO {table} ({', '.join(kept)}) "
        f"SELECT {', '.join(made)} FROM {table} AS s, {numbers.format(count=count)}"
    )
