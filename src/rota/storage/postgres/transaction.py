"""One open transaction: named statements, sent and answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import Format
from psycopg.rows import dict_row, tuple_row

from rota.storage.engine import Probed, Row
from rota.storage.postgres.bind import array, bind
from rota.storage.statements import parameters, to_pyformat

if TYPE_CHECKING:
    from rota.storage.postgres.engine import PostgresEngine


class Statement:
    """SQL as the driver takes it, and the parameters that a caller must bring."""

    __slots__ = ("names", "sql")

    def __init__(self, sql: str) -> None:
        self.sql = to_pyformat(sql).encode()
        self.names = tuple(name for name in parameters(sql) if name != "now")


class PostgresTransaction(Probed):
    def __init__(
        self, engine: PostgresEngine, name: str, connection: psycopg.Connection[Any]
    ) -> None:
        super().__init__(name, engine.probe)
        self.engine = engine
        # Our own kind of cursor, whatever the owner of the connection prefers.
        self.cursor = psycopg.Cursor(connection, row_factory=dict_row)
        self.cursor.format = Format.BINARY
        self.now = None if engine.clock is None else bind(engine.clock())

    def _execute(self, name: str, params: Mapping[str, object]) -> list[Row]:
        statement = self.engine.statements[name]
        return self._rows(statement, {key: bind(params[key]) for key in statement.names})

    def _execute_many(self, name: str, rows: Sequence[Mapping[str, object]]) -> list[Row]:
        statement = self.engine.statements[name]
        return self._rows(
            statement, {key: array([row[key] for row in rows]) for key in statement.names}
        )

    def _execute_tuples(self, name: str, params: Mapping[str, object]) -> list[tuple[Any, ...]]:
        self.cursor.row_factory = tuple_row
        try:
            return self._execute(name, params)  # type: ignore[return-value]
        finally:
            self.cursor.row_factory = dict_row

    def _execute_columns(
        self, name: str, columns: Mapping[str, Sequence[object]]
    ) -> list[tuple[Any, ...]]:
        return self._execute_tuples(name, columns)  # a list is bound as an array

    def _rows(self, statement: Statement, bound: dict[str, str | None]) -> list[Row]:
        bound["now"] = self.now
        result = self.cursor.execute(statement.sql, bound).pgresult
        return self.cursor.fetchall() if result is not None and result.nfields else []

    def text(self, sql: str, params: Mapping[str, object]) -> None:
        self.cursor.execute(to_pyformat(sql), params)

    def script(self, sql: str) -> None:
        """Any number of statements without parameters or answers."""
        psycopg.Cursor(self.cursor.connection).execute(sql, prepare=False)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self.script("SAVEPOINT rota")
        try:
            yield
        except BaseException:
            if not self.cursor.connection.broken:
                self.script("ROLLBACK TO rota; RELEASE rota")
            raise
        self.script("RELEASE rota")

    def meta(self) -> dict[str, str]:
        return {row["key"]: row["value"] for row in self.all("all_meta")}

    def version(self) -> int:
        """The schema's number; 0 where there is no store yet."""
        table = f"{self.engine.prefix}meta"
        found = self.cursor.execute("SELECT to_regclass(%s) AS found", (table,)).fetchone()
        if not found or found["found"] is None:
            return 0
        return int(self.meta().get("schema_version", 0))

    def home(self) -> dict[str, str]:
        """The server and database we are in, so that a copy of a store can be told apart."""
        try:
            with self.savepoint():
                self.cursor.execute(
                    "SELECT system_identifier::text, current_database()::text AS database "
                    "FROM pg_control_system()"
                )
                found = self.cursor.fetchone()
        except psycopg.errors.InsufficientPrivilege:
            return {}
        return {} if found is None else {key: str(value) for key, value in found.items()}
