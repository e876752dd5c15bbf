"""Statements on one SQLite connection: instants as microseconds, lists as JSON."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rota.model.duration import EPOCH, micros
from rota.storage.engine import Probed, Row
from rota.storage.rows import is_instant

if TYPE_CHECKING:
    from rota.storage.sqlite.engine import SqliteEngine


class SqliteTransaction(Probed):
    def __init__(self, engine: SqliteEngine, name: str, connection: sqlite3.Connection) -> None:
        super().__init__(name, engine.probe)
        self.engine, self.connection = engine, connection
        self.cursor = plain_cursor(connection)
        self.now = micros(engine.clock())

    def _execute(self, name: str, params: Mapping[str, object]) -> list[Row]:
        bound = {key: _bind(value) for key, value in params.items()}
        bound["now"] = self.now
        return self._rows(self.cursor.execute(self.engine.statements[name], bound))

    def _execute_many(self, name: str, rows: Sequence[Mapping[str, object]]) -> list[Row]:
        sql, answer = self.engine.statements[name], []
        for row in rows:
            bound = {key: _bind(value) for key, value in row.items()}
            bound["now"] = self.now
            answer += self._rows(self.cursor.execute(sql, bound))
        return answer

    def _rows(self, cursor: sqlite3.Cursor) -> list[Row]:
        if cursor.description is None:
            return []
        names = tuple(column[0] for column in cursor.description)
        instants = self.engine._shapes.get(names)
        if instants is None:
            instants = tuple(n for n, name in enumerate(names) if is_instant(name))
            self.engine._shapes[names] = instants
        found = []
        for values in cursor.fetchall():
            if instants:
                values = list(values)
                for place in instants:
                    if values[place] is not None:
                        values[place] = EPOCH + timedelta(microseconds=values[place])
            found.append(dict(zip(names, values, strict=True)))
        return found

    def text(self, sql: str, params: Mapping[str, object]) -> None:
        self.connection.execute(sql, {key: _bind(value) for key, value in params.items()})

    def script(self, sql: str) -> None:
        self.connection.execute(sql)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self.connection.execute("SAVEPOINT rota")
        try:
            yield
        except BaseException:
            if self.connection.in_transaction:  # a full disk may have ended it already
                self.connection.execute("ROLLBACK TO rota")
                self.connection.execute("RELEASE rota")
            raise
        self.connection.execute("RELEASE rota")


def plain_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """Rows as tuples, whatever kind of row the owner of the connection prefers."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


def _bind(value: object) -> Any:
    match value:
        case datetime():
            return micros(value)
        case list() | tuple():
            return json.dumps(value)
        case _:
            return value
