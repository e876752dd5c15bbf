"""The transaction of a SQL step on a DuckDB store.

It has a cursor of its own, and others write meanwhile. Its snapshot is as old as the step: so it
only inserts its mark, and whether its attempt still has the lease is read on another cursor, under
the write lock, just before the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import duckdb

from rota.errors import StorageError
from rota.storage.engine import Transaction

if TYPE_CHECKING:
    from rota.storage.duckdb.engine import DuckdbEngine


class DuckdbStep:
    holds_writes = False

    def __init__(
        self, engine: DuckdbEngine, name: str, connection: duckdb.DuckDBPyConnection
    ) -> None:
        self._engine, self._name, self.connection = engine, name, connection
        self._database = str(self._ask("SELECT current_database()")[0])
        connection.execute("BEGIN TRANSACTION")
        self._number = self._ask("SELECT txid_current()")

    @property
    def alone(self) -> bool:
        """A transaction can write one database: if it may have been another one, the mark cannot
        stand beside it. What was attached READ_ONLY was not."""
        self._come_back()
        sql = "SELECT count(*) FROM duckdb_databases() WHERE NOT internal AND NOT readonly"
        return self._ask(sql) == (1,)

    def commit(
        self, is_ours: Callable[[Transaction], bool], mark: Callable[[Transaction], None]
    ) -> bool:
        self._come_back()
        with self._engine._turn():
            if not self._engine.read(is_ours):
                self.connection.execute("ROLLBACK")
                return False
            mark(self._engine._transaction(self._name, self.connection))
            self._commit()
        self._engine._wake_others()
        return True

    def commit_plain(self) -> None:
        self._come_back()
        self._commit()

    def _commit(self) -> None:
        self._engine._at(self._name, "before")
        self.connection.execute("COMMIT")
        self._engine._at(self._name, "after")

    def _come_back(self) -> None:
        """To our own database, in the transaction that was begun here. DuckDB takes the COMMIT of
        a failed transaction for a ROLLBACK, and says nothing."""
        name = self._database.replace('"', '""')
        try:
            self.connection.execute(f'USE "{name}"')
            same = self._ask("SELECT txid_current()") == self._number
        except duckdb.TransactionException:
            same = False
        if not same:
            raise StorageError("the transaction of the step was ended by its own SQL")

    def end(self) -> None:
        """Nothing of it remains unless it was committed."""
        with suppress(duckdb.Error):
            self.connection.execute("ROLLBACK")
        self.connection.close()

    def _ask(self, sql: str) -> tuple[object, ...]:
        found = self.connection.execute(sql).fetchone()
        assert found is not None
        return tuple(found)
