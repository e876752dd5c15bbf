"""Statements on one SQLite connection: instants as microseconds, lists as JSON."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from rota.model.duration import EPOCH, micros
from rota.storage.engine import Probed, Row
from rota.storage.rows import is_instant

if TYPE_CHECKING:
    from rota.storage.sqlite.engine import SqliteEngine


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[tuple[Any, ...]]).decode
_decode_values = msgspec.json.Decoder(list[Any]).decode


class SqliteTransaction(Probed):
    def __init__(self, engine: SqliteEngine, name: str, connection: sqlite3.Connection) -> None:
        super().__init__(name, engine.probe)
        self.engine, self.connection = engine, connection
        self.cursor = plain_cursor(connection)
        self.now = micros(engine.clock())

    def _sent(self, name: str, params: Mapping[str, object]) -> sqlite3.Cursor:
        bound = {key: _bind(value) for key, value in params.items()}
        bound["now"] = self.now
        sent: sqlite3.Cursor = self.cursor.execute(self.engine.statements[name], bound)
        return sent

    def _execute(self, name: str, params: Mapping[str, object]) -> list[Row]:
        return self._rows(self._sent(name, params))

    def _execute_many(self, name: str, rows: Sequence[Mapping[str, object]]) -> list[Row]:
        sql = self.engine.statements[name]
        instants = [key for key in rows[0] if is_instant(key)]
        bound = [self._bound(row, instants) for row in rows]
        if "RETURNING" not in sql:
            self.cursor.executemany(sql, bound)
            return []
        answer: list[Row] = []
        for one in bound:
            answer += self._rows(self.cursor.execute(sql, one))
        return answer

    def _bound(self, row: Mapping[str, object], instants: Sequence[str]) -> dict[str, object]:
        bound = {**row, "now": self.now}
        for key in instants:
            if bound[key] is not None:
                bound[key] = micros(bound[key])  # type: ignore[arg-type]
        return bound

    def _execute_tuples(self, name: str, params: Mapping[str, object]) -> list[tuple[Any, ...]]:
        return self._tuples(self._sent(name, params))[1]

    def _execute_values(self, name: str, params: Mapping[str, object]) -> list[Any]:
        """Those that come as one JSON array are not made rows first: a herd has many."""
        ((text,),) = self._sent(name, params).fetchall()
        values: list[Any] = _decode_values(text)
        return values

    def _execute_columns(
        self, name: str, columns: Mapping[str, Sequence[object]], shared: Mapping[str, object]
    ) -> list[tuple[Any, ...]]:
        """One statement over `json_each(:rows)`, each row an array."""
        plain = [
            [None if value is None else micros(value) for value in values]  # type: ignore[arg-type]
            if is_instant(column)
            else values
            for column, values in columns.items()
        ]
        bound = {key: _bind(value) for key, value in shared.items()}
        bound |= {"rows": _json(list(zip(*plain, strict=True))), "now": self.now}
        return self._tuples(self.cursor.execute(self.engine.statements[name], bound))[1]

    def _rows(self, cursor: sqlite3.Cursor) -> list[Row]:
        names, found = self._tuples(cursor)
        return [dict(zip(names, values, strict=True)) for values in found]

    def _tuples(self, cursor: sqlite3.Cursor) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Column names, and rows with their instants made."""
        if cursor.description is None:
            return (), []
        names = tuple(column[0] for column in cursor.description)
        found = cursor.fetchall()
        # Many rows as one JSON value: to fetch them one by one would mean to wait for the
        # interpreter's lock as many times, while handlers run. Of one column it has the values.
        if names[0].endswith(","):
            names, found = (names[0][:-1],), list(zip(_decode_values(found[0][0]), strict=True))
        elif "," in names[0]:
            names, found = tuple(names[0].split(", ")), _decode(found[0][0])
        instants = self.engine._shapes.get(names)
        if instants is None:
            instants = tuple(n for n, name in enumerate(names) if is_instant(name))
            self.engine._shapes[names] = instants
        return names, [_timed(values, instants) for values in found] if instants else found

    def text(self, sql: str, params: Mapping[str, object]) -> None:
        self.connection.execute(sql, {key: _bind(value) for key, value in params.items()})

    def script(self, sql: str) -> None:
        self.connection.execute(sql)

    def savepoint(self) -> Savepoint:
        return Savepoint(self.connection, self.cursor)


class Savepoint:
    """Not a generator: one that an interrupt left behind would be ended when it is collected, in
    the middle of somebody else's transaction."""

    def __init__(self, connection: sqlite3.Connection, cursor: sqlite3.Cursor) -> None:
        self._connection, self._cursor = connection, cursor

    def __enter__(self) -> None:
        self._connection.execute("SAVEPOINT rota")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._connection.execute("RELEASE rota")
            return
        if not issubclass(kind, Exception):
            # A statement that was interrupted among its rows would refuse what follows.
            self._cursor.close()
        if self._connection.in_transaction:  # a full disk may have ended it already
            self._connection.execute("ROLLBACK TO rota")
            self._connection.execute("RELEASE rota")


def plain_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """Rows as tuples, whatever kind of row the owner of the connection prefers."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


def _bind(value: object) -> Any:
    match value:
        case datetime():
            return micros(value)
        case list() | tuple() | dict():
            return _json(value)
        case _:
            return value


def _json(value: object) -> str:
    return _encode(value).decode()


def _timed(values: tuple[Any, ...], instants: tuple[int, ...]) -> tuple[Any, ...]:
    """The row with datetimes at these places, where there is one."""
    timed = list(values)
    for place in instants:
        if timed[place] is not None:
            timed[place] = _instant(timed[place])
    return tuple(timed)


@lru_cache(maxsize=1_000)
def _instant(microseconds: int) -> datetime:
    """Made once where many rows are of one instant, as those of a bulk or a herd."""
    return EPOCH + timedelta(microseconds=microseconds)
