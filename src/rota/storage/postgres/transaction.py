"""One open transaction: named statements, sent and answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import Format
from psycopg.rows import dict_row, tuple_row

from rota.storage.engine import Probed, Row
from rota.storage.postgres.bind import array, bind
from rota.storage.postgres.session import Session, Statement
from rota.storage.statements import to_pyformat

if TYPE_CHECKING:
    from rota.storage.postgres.engine import PostgresEngine


# The client that inserted a control row waits for its answer, and so does everybody with a row
# behind it. Longer than the second after which a server looks for a deadlock: what that undoes is
# done again.
REQUEST_LOCK_TIMEOUT = "1500ms"


class PostgresTransaction(Probed):
    def __init__(
        self, engine: PostgresEngine, name: str, connection: psycopg.Connection[Any]
    ) -> None:
        super().__init__(name, engine.probe)
        self.engine = engine
        self.connection = connection
        self._changed = 0
        # A caller's connection is used as its driver is meant to be, and keeps no plans of ours.
        self._session = connection if isinstance(connection, Session) else None
        self.now = None if engine.clock is None else bind(engine.clock())

    @cached_property
    def cursor(self) -> psycopg.Cursor[Any]:
        """Our own kind of cursor, whatever the owner of the connection prefers."""
        cursor = psycopg.Cursor(self.connection, row_factory=dict_row)
        cursor.format = Format.BINARY
        return cursor

    def _execute(self, name: str, params: Mapping[str, object]) -> list[Row]:
        statement = self.engine.statements[name]
        return self._answer(statement, {key: bind(params[key]) for key in statement.names}, False)

    def _execute_many(self, name: str, rows: Sequence[Mapping[str, object]]) -> list[Row]:
        statement = self.engine.statements[name]
        bound = {key: array([row[key] for row in rows]) for key in statement.names}
        return self._answer(statement, bound, False)

    def _execute_tuples(self, name: str, params: Mapping[str, object]) -> list[tuple[Any, ...]]:
        statement = self.engine.statements[name]
        return self._answer(statement, {key: bind(params[key]) for key in statement.names}, True)

    def _execute_columns(
        self, name: str, columns: Mapping[str, Sequence[object]], shared: Mapping[str, object]
    ) -> list[tuple[Any, ...]]:
        return self._execute_tuples(name, {**shared, **columns})  # a list is bound as an array

    def _answer(self, statement: Statement, bound: dict[str, Any], tuples: bool) -> list[Any]:
        bound["now"] = self.now
        session = self._session
        if session is not None:
            result = session.run(statement, bound)
            self._changed = result.command_tuples or 0
            return session.tuples(result) if tuples else session.rows(result)
        cursor = self.cursor
        cursor.row_factory = tuple_row if tuples else dict_row
        found = cursor.execute(statement.sql, bound).pgresult
        self._changed = cursor.rowcount
        cursor_rows = cursor.fetchall() if found is not None and found.nfields else []
        cursor.row_factory = dict_row
        return cursor_rows

    def _rowcount(self) -> int:
        return self._changed

    def text(self, sql: str, params: Mapping[str, object]) -> None:
        self.cursor.execute(to_pyformat(sql), params)

    def wait_briefly(self) -> None:
        self.script(f"SET LOCAL lock_timeout = '{REQUEST_LOCK_TIMEOUT}'")

    def script(self, sql: str) -> None:
        """Any number of statements without parameters or answers."""
        psycopg.Cursor(self.connection).execute(sql, prepare=False)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self.script("SAVEPOINT rota")
        try:
            yield
        except BaseException:
            if not self.connection.broken:
                self.script("ROLLBACK TO rota; RELEASE rota")
            raise
        self.script("RELEASE rota")

    def meta(self) -> dict[str, str]:
        return {row["key"]: row["value"] for row in self.all("all_meta")}

    def meta_if_there(self) -> dict[str, str]:
        """The same; nothing where there is no store yet."""
        table = f"{self.engine.prefix}meta"
        found = self.cursor.execute("SELECT to_regclass(%s) AS found", (table,)).fetchone()
        return {} if not found or found["found"] is None else self.meta()

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


class SingleStatement(PostgresTransaction):
    """A transaction that is one statement, and its own commit: one round trip."""

    def __init__(self, engine: PostgresEngine, name: str, connection: Session) -> None:
        super().__init__(engine, name, connection)
        self._own = connection
        self.is_sent = False

    def send(self, statement: str, send: Callable[[Session], list[Any]]) -> list[Any]:
        """A statement that is sent in a way of its own."""
        self._at(statement, "before")
        return self._sent(lambda: send(self._own))

    def _answer(self, statement: Statement, bound: dict[str, Any], tuples: bool) -> list[Any]:
        return self._sent(lambda: super(SingleStatement, self)._answer(statement, bound, tuples))

    def _sent(self, send: Callable[[], list[Any]]) -> list[Any]:
        try:
            answer = send()
        except psycopg.Error as fault:
            self.engine.raise_uncertain(self._own, fault)
            raise
        self.is_sent = True
        return answer

    def _at(self, statement: str, side: str) -> None:
        """Until it is sent nothing has happened, and then all of it has: its points come before."""
        if side == "after":
            return
        assert not self.is_sent, f"{self._name} is one statement, and then came {statement}"
        if self._probe is not None:
            with self.engine.translated():
                for point in (f"{statement}.before", f"{statement}.after", "commit.before"):
                    self._probe(f"{self._name}.{point}")
