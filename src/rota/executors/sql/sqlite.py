"""Scripts on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rota.errors import Unavailable
from rota.executors.sql.session import FETCH_ROWS, Answer, Interrupted, SqlFailed
from rota.model.secrets import NO_SECRETS, Secrets
from rota.model.sql_script import Statement, statements
from rota.model.steps import StepDone

LOOK_MILLISECONDS = 100
LOOKS = 100  # of LOOK_MILLISECONDS each: how long another writer is waited for


class SqliteSession:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def begin(self, stopped: Callable[[], bool]) -> None:
        """With the write lock from the start: a transaction that reads first cannot always get it
        later. A file that cannot be written can still be read."""
        self.connection.execute(f"PRAGMA busy_timeout = {LOOK_MILLISECONDS}")
        for _ in range(LOOKS):
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
            f"the target was locked by another transaction for {LOOKS * LOOK_MILLISECONDS // 1000} "
            "s; look for a long one in another program"
        )

    def act_as(self, role: str, *, in_transaction: bool) -> None:
        raise SqlFailed(f"run_as = {role!r} needs a PostgreSQL target; SQLite has no roles")

    def run(
        self, script: str, check: Callable[[], None], secrets: Secrets = NO_SECRETS
    ) -> StepDone:
        answer = Answer(secrets)
        for statement in statements(script, "sqlite"):
            check()
            self._run(script, statement, answer, check)
        return answer.done()

    def _run(
        self, script: str, statement: Statement, answer: Answer, check: Callable[[], None]
    ) -> None:
        cursor = self.connection.cursor()
        cursor.row_factory = None
        try:
            cursor.execute(script[statement.start : statement.end])
            answer.add_changed(cursor.rowcount)
            if cursor.description is None:
                answer.no_rows()
            else:
                columns = [column[0] for column in cursor.description]
                answer.read(columns, _batches(cursor, check))
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
        if not self.connection.in_transaction:  # an interrupt may have ended it already
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
