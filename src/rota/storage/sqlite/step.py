"""The transaction of a SQL step on a SQLite store.

It has a connection of its own and holds the only write lock there is: while it is open nobody can
renew, and nobody can rescue. `SqliteEngine.blocked_within` says so to both.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rota.errors import StorageError, Unavailable
from rota.storage.engine import Transaction
from rota.storage.sqlite.faults import is_busy

if TYPE_CHECKING:
    from rota.storage.sqlite.engine import SqliteEngine

LOOK_SECONDS = 0.1


class SqliteStep:
    holds_writes = True

    def __init__(self, engine: SqliteEngine, name: str, connection: sqlite3.Connection) -> None:
        self._engine, self._name, self.connection = engine, name, connection

    @property
    def alone(self) -> bool:
        """In WAL mode each attached file commits for itself."""
        found = self.connection.execute("PRAGMA database_list").fetchall()
        return {name for _, name, *_ in found} <= {"main", "temp"}

    def commit(
        self, is_ours: Callable[[Transaction], bool], mark: Callable[[Transaction], None]
    ) -> bool:
        self._check_open()
        transaction = self._engine._transaction(self._name, self.connection)
        if not is_ours(transaction):
            self.connection.rollback()
            return False
        mark(transaction)
        self.commit_plain()
        return True

    def commit_plain(self) -> None:
        self._check_open()
        self._at("before")
        self.connection.commit()
        self._at("after")

    def _check_open(self) -> None:
        if not self.connection.in_transaction:
            raise StorageError("the transaction of the step was ended by its own SQL")

    def _at(self, side: str) -> None:
        if self._engine.probe is not None:
            self._engine.probe(f"{self._name}.commit.{side}")


def begin_step(connection: sqlite3.Connection, path: str, stopped: Callable[[], bool]) -> None:
    """Take the write lock, however long another process's step keeps it."""
    connection.execute(f"PRAGMA busy_timeout = {int(LOOK_SECONDS * 1000)}")
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as fault:
            if not is_busy(fault):
                raise
        if stopped():
            raise Unavailable(f"stopped while another transaction held {path}")
        time.sleep(0)
