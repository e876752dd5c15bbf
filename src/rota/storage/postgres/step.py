"""The transaction of a SQL step on a PostgreSQL store.

It has a session of its own: what our sessions are set to is not for other people's SQL, and what
that sets must not reach our statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg.pq import TransactionStatus

from rota.errors import StorageError
from rota.storage.engine import Transaction
from rota.storage.postgres.session import Session

if TYPE_CHECKING:
    from rota.storage.postgres.engine import PostgresEngine

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
# The user's own deferred constraints and triggers run first, under his role and path.
_LAST_OF_THEIRS = "SET CONSTRAINTS ALL IMMEDIATE"
_OURS = "SET LOCAL ROLE NONE; SET LOCAL search_path = pg_catalog; SET LOCAL statement_timeout = 0"


class PostgresStep:
    holds_writes = False

    def __init__(self, engine: PostgresEngine, name: str, connection: Session) -> None:
        self._engine, self._name, self.connection = engine, name, connection

    @property
    def alone(self) -> bool:
        """A transaction that its SQL set to READ ONLY cannot hold the mark."""
        self._check_open()
        return self._shown("transaction_read_only") == "off"

    def commit(
        self, is_ours: Callable[[Transaction], bool], mark: Callable[[Transaction], None]
    ) -> bool:
        self._check_open()
        self.connection.execute(_LAST_OF_THEIRS)
        with self._engine.translated(), self._fence() as fence:
            self.connection.execute(_OURS, prepare=False)
            if not is_ours(self._engine._transaction(self._name, fence)):
                self.connection.execute("ROLLBACK")
                return False
            mark(self._engine._transaction(self._name, self.connection))
            self.commit_plain()
        return True

    @contextmanager
    def _fence(self) -> Iterator[Session]:
        """The session that locks the row of the run until the commit. A snapshot as old as the
        step cannot: the row was renewed since. Then it is another one, which nothing ends early."""
        if self._shown("transaction_isolation") == "read committed":
            yield self.connection
            return
        other = self._engine.address.connect(ours=False)
        try:
            other.execute(_BEGIN, prepare=False)
            yield other
        finally:
            other.close()

    def _shown(self, setting: str) -> str:
        row = self.connection.execute(f"SHOW {setting}".encode(), prepare=False).fetchone()
        return str(row[0]) if row else ""

    def commit_plain(self) -> None:
        self._check_open()
        self._engine._at(self._name, "before")
        self._engine._commit(self.connection)
        self._engine._at(self._name, "after")

    def _check_open(self) -> None:
        # A COMMIT of a failed transaction is a ROLLBACK, and no error.
        if self.connection.info.transaction_status != TransactionStatus.INTRANS:
            raise StorageError("the transaction of the step was ended by its own SQL")


# A server that notices that its client is gone ends the statement. Not every platform can.
NOTICES_ENDS = 140_000
_NOTICE_ENDS = "SET LOCAL client_connection_check_interval = '5s'"


def begin_step(connection: Session) -> None:
    """Nothing here takes a snapshot: the SQL to come may still choose its isolation level."""
    connection.execute(_BEGIN, prepare=False)
    if connection.info.server_version >= NOTICES_ENDS:
        try:
            connection.execute(_NOTICE_ENDS, prepare=False)
        except psycopg.errors.InvalidParameterValue:
            connection.execute("ROLLBACK", prepare=False)
            connection.execute(_BEGIN, prepare=False)
