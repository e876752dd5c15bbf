"""What a campaign leaves to be judged: the notes of all processes, and the rows at the end.

The rows are read with the driver alone, not through Rota. Instants are microseconds since 1970.
Both are kept as JSON, so that a history can be archived and judged again.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import duckdb
import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads

from rota.model.schedule import OPTIONS, to_json_value
from rota.storage.rows import JSON_OPTIONS
from tests.fault.notes import Note, read_notes

Row = dict[str, Any]
Rows = Mapping[str, list[Row]]

TABLES = ("runs", "attempts", "schedules", "occurrences", "slots", "run_keys")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOTES, ROWS = "notes.jsonl", "rows.json"


@dataclass(frozen=True, kw_only=True)
class History:
    """`lease` and `max_lost` are what the processes were told."""

    notes: list[Note]
    rows: Rows
    lease: float
    max_lost: int
    runs: dict[str, Row] = field(init=False)
    attempts: dict[tuple[str, int], Row] = field(init=False)

    def __post_init__(self) -> None:
        runs = {row["id"]: row for row in self.rows["runs"]}
        assert len(runs) == len(self.rows["runs"]), "an id belongs to two runs"
        ids = {row["seq"]: row["id"] for row in self.rows["runs"]}
        object.__setattr__(self, "runs", runs)
        object.__setattr__(
            self,
            "attempts",
            {
                (ids[row["run_seq"]], row["number"]): row
                for row in self.rows["attempts"]
                if row["run_seq"] in ids
            },
        )

    def noted(self, *what: str) -> list[Note]:
        return [note for note in self.notes if note["what"] in what]

    def by_attempt(self, *what: str) -> dict[tuple[str, int], list[Note]]:
        found = defaultdict(list)
        for note in self.noted(*what):
            found[note["run"], note["attempt"]].append(note)
        return dict(found)

    def save(self, folder: Path) -> None:
        with (folder / NOTES).open("w") as file:
            file.writelines(json.dumps(note) + "\n" for note in self.notes)
        told = {"lease": self.lease, "max_lost": self.max_lost, "rows": dict(self.rows)}
        (folder / ROWS).write_text(json.dumps(told))

    @classmethod
    def load(cls, folder: Path) -> Self:
        return cls(
            notes=list(read_notes(folder / NOTES)), **json.loads((folder / ROWS).read_text())
        )


# Of a schedule's options its row has what differs from these.
DEFAULTS = {name: to_json_value(OPTIONS[name].default) for name in JSON_OPTIONS}


def read_rows(database: str, tables: Sequence[str] = TABLES) -> dict[str, list[Row]]:
    """Tables as they are, in one snapshot; those that the checker looks at unless told."""
    if database.startswith("sqlite"):
        path = database.removeprefix("sqlite:///")
        connection: Any = sqlite3.connect(path, isolation_level=None)
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")
        prefix = "_rota_"
    elif database.startswith("duckdb"):
        return read_duckdb(database.removeprefix("duckdb:///"), tables)
    else:
        connection = psycopg.connect(database, row_factory=dict_row)
        set_json_loads(bytes.decode, connection)  # JSON is text, as it is on SQLite
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        prefix = "rota_data."
    try:
        rows = {
            table: [plain(row) for row in connection.execute(f"SELECT * FROM {prefix}{table}")]
            for table in tables
        }
        if database.startswith("postgresql") and "runs" in tables:
            named = connection.execute("SELECT seq, id::text FROM rota_data.run_ids").fetchall()
            ids = {row["seq"]: row["id"] for row in named}
            assert ids == {row["seq"]: row["id"] for row in rows["runs"]}, "ids are not the runs'"
        return rows
    finally:
        connection.close()


def read_duckdb(path: str, tables: Sequence[str]) -> dict[str, list[Row]]:
    """The same, when no other process has the file."""
    with duckdb.connect(path, read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'; BEGIN")
        rows = {}
        for table in tables:
            found = connection.execute(f"SELECT * FROM _rota_data.{table}")
            names = [column[0] for column in found.description]
            rows[table] = [plain(dict(zip(names, row, strict=True))) for row in found.fetchall()]
        return rows


def plain(row: Mapping[str, Any]) -> Row:
    values = {name: _plain(row[name]) for name in row.keys()}  # noqa: SIM118 (sqlite3.Row)
    return (
        {**DEFAULTS, **json.loads(values["options"]), **values} if "plan_key" in values else values
    )


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return micros(value)
        case UUID():
            return str(value)
        case _:
            return value


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def count(notes: Iterable[Note], what: str) -> int:
    return sum(note["what"] == what for note in notes)
