"""Scripts on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rota.errors import Unavailable
from rota.executors.sql.session import FETCH_ROWS, Interrupted, ScriptResult, SqlFailed
from rota.model.secrets import NO_SECRETS, Secrets
from rota.model.sql_script import Statement, statements
from rota.model.steps import StepDone

LOCK_MILLISECONDS = 100
LOCK_TRIES = 100  # of LOCK_MILLISECONDS each, while another writer has the lock


class SqliteSession:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def begin(self, stopped: Callable[[], bool]) -> None:
        """Begin with the write lock, or read-only if the file is read-only.

        A transaction that reads first may fail to get the write lock later."""
        self.connection.execute(f"PRAGMA busy_timeout = {LOCK_MILLISECONDS}")
        for _ in range(LOCK_TRIES):
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as fault:
                if fault.sqlite_errorname.startswith("SQLITE_READONLY"):
                    self.connection.execute("BEGIN")
                    return
                if not fault.sqlite_errorname.startswith("SQLITE_BUSY"):
                    raise SqlFailed(str(fault)) from fault
            if stopped():
                raise Interrupted
        raise Unavailable(
            "the target was locked by another transaction for "
            f"{LOCK_TRIES * LOCK_MILLISECONDS // 1000} s; look for a long one in another program"
        )

    def act_as(self, role: str, *, in_transaction: bool) -> None:
        raise SqlFailed(f"run_as = {role!r} needs a PostgreSQL target; SQLite has no roles")

    def run(
        self, script: str, check: Callable[[], None], secrets: Secrets = NO_SECRETS
    ) -> StepDone:
        result = ScriptResult(secrets)
        for statement in statements(script, "sqlite"):
            check()
            self._run(script, statement, result, check)
        return result.done()

    def _run(
        self, script: str, statement: Statement, result: ScriptResult, check: Callable[[], None]
    ) -> None:
        cursor = self.connection.cursor()
        cursor.row_factory = None
        try:
            cursor.execute(script[statement.start : statement.end])
            result.add_changed(cursor.rowcount)
            if cursor.description is None:
                result.no_rows()
            else:
                columns = [column[0] for column in cursor.description]
                result.read(columns, _batches(cursor, check))
        except (sqlite3.Error, sqlite3.Warning) as fault:
            raise SqlFailed(str(fault), statement.line) from fault
        finally:
            cursor.close()

    def commit(self) -> None:
        try:
            self.connection.commit()
        except sqlite3.Error as fault:
            raise SqlFailed(f"{fault} (at its commit)") from fault

    def rollback(self) -> bool:
        if not self.connection.in_transaction:  # an interrupt may have ended it
            return False
        self.connection.rollback()
        return True

    def interrupt(self) -> None:
        self.connection.interrupt()

    def close(self) -> None:
        self.connection.close()


def _batches(cursor: sqlite3.Cursor, check: Callable[[], None]) -> Iterator[Sequence[Any]]:
    while batch := cursor.fetchmany(FETCH_ROWS):
        yield batch
        check()
