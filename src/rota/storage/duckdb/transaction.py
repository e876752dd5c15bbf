"""Statements on one DuckDB cursor: lists as JSON, instants in UTC.

DuckDB has no savepoints. What a savepoint would undo is undone by running the whole work again,
from the beginning and still alone, without that part: see `Undone`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import duckdb
import msgspec

from rota.storage.engine import Probed, Row
from rota.storage.statements import parameters, to_dollars

if TYPE_CHECKING:
    from rota.storage.duckdb.engine import DuckdbEngine


_encode = msgspec.json.Encoder().encode


class Undone(BaseException):
    """The part of a transaction with this number failed: run it again without. No Exception, so
    that nobody on the way takes it for one."""

    def __init__(self, number: int, fault: Exception) -> None:
        super().__init__(number, fault)
        self.number, self.fault = number, fault


class Statement:
    """SQL as the driver takes it, and the parameters that a caller must bring."""

    __slots__ = ("names", "sql", "timed")

    def __init__(self, sql: str) -> None:
        names = parameters(sql)
        self.sql = to_dollars(sql)
        self.names = tuple(name for name in names if name != "now")
        self.timed = "now" in names


class DuckdbTransaction(Probed):
    def __init__(
        self,
        engine: DuckdbEngine,
        name: str,
        cursor: duckdb.DuckDBPyConnection,
        failed: Mapping[int, Exception] | None = None,
    ) -> None:
        super().__init__(name, engine.probe)
        self.engine, self.cursor = engine, cursor
        self.now = engine.clock()
        self._failed = failed  # None: nobody runs it again
        self._savepoints = 0
        self._changed = 0
        self.broken = False  # DuckDB takes the COMMIT of a failed transaction for a ROLLBACK

    def _execute(self, name: str, params: Mapping[str, object]) -> list[Row]:
        self._send(name, params)
        return self._rows()

    def _execute_many(self, name: str, rows: Sequence[Mapping[str, object]]) -> list[Row]:
        self._send(name, {"rows": rows})
        return self._rows()

    def _execute_tuples(self, name: str, params: Mapping[str, object]) -> list[tuple[Any, ...]]:
        self._send(name, params)
        return self._tuples()[1]

    def _execute_columns(
        self, name: str, columns: Mapping[str, Sequence[object]], shared: Mapping[str, object]
    ) -> list[tuple[Any, ...]]:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return self._execute_tuples(name, {**shared, "rows": rows})

    def _send(self, name: str, params: Mapping[str, object]) -> None:
        statement = self.engine.statements[name]
        bound = {key: _bind(params[key]) for key in statement.names}
        if statement.timed:
            bound["now"] = self.now
        self._run(statement.sql, bound)

    def _rowcount(self) -> int:
        return self._changed

    def _run(self, sql: str, bound: Mapping[str, object]) -> None:
        try:
            self.cursor.execute(sql, bound)
        except BaseException:
            self.broken = True
            raise

    def _rows(self) -> list[Row]:
        names, found = self._tuples()
        return [dict(zip(names, values, strict=True)) for values in found]

    def _tuples(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Column names, and rows with their instants in our own UTC."""
        shape = self.cursor.description or []
        names = tuple(column[0] for column in shape)
        found = self.cursor.fetchall()
        if names == ("Count",):  # what a statement without RETURNING answers
            self._changed = int(found[0][0])
            return (), []
        instants = [n for n, column in enumerate(shape) if "TIME ZONE" in str(column[1])]
        return names, [_timed(values, instants) for values in found] if instants else found

    def text(self, sql: str, params: Mapping[str, object]) -> None:
        bound = {name: _bind(params[name]) for name in parameters(sql)}
        self._run(to_dollars(sql), bound)

    def script(self, sql: str) -> None:
        """Any number of statements without parameters or answers."""
        self.cursor.execute(sql)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        if self._failed is None:  # a caller's transaction: he cannot commit what has failed
            yield
            return
        number = self._savepoints
        self._savepoints += 1
        if number in self._failed:
            raise self._failed[number]
        try:
            yield
        except Exception as fault:
            raise Undone(number, fault) from fault


def _bind(value: object) -> object:
    return _encode(value).decode() if isinstance(value, (list, tuple, dict)) else value


def _timed(values: tuple[Any, ...], instants: Sequence[int]) -> tuple[Any, ...]:
    """The row with datetimes in `datetime.UTC`: DuckDB makes them with pytz's."""
    timed = list(values)
    for place in instants:
        moment: datetime | None = timed[place]
        if moment is not None:
            timed[place] = moment.replace(tzinfo=UTC)
    return tuple(timed)
