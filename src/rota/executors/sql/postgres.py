"""Scripts on PostgreSQL."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL, Identifier
from psycopg.types.string import TextLoader

from rota.executors.sql.session import FETCH_ROWS, ScriptResult, SqlFailed
from rota.model.secrets import NO_SECRETS, Secrets
from rota.model.sql_lexer import lex, line_of
from rota.model.sql_script import Statement, statements
from rota.model.steps import StepDone

CANCEL_SECONDS = 5.0
# Statements that return rows, which are then read in batches. A statement that also has a word of
# _WRITES outside of quotes may change rows instead and return none.
_READS = frozenset({"SELECT", "VALUES", "TABLE", "WITH"})
_WRITES = frozenset({"INTO", "INSERT", "UPDATE", "DELETE", "MERGE"})
_PLAIN = ("date", "time", "timestamp", "timestamptz", "interval")
_BACKSLASHES = "standard_conforming_strings"


class PostgresSession:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def begin(self, stopped: Callable[[], bool]) -> None:
        self._plain("BEGIN")

    def act_as(self, role: str, *, in_transaction: bool) -> None:
        how = SQL("SET LOCAL ROLE {}" if in_transaction else "SET ROLE {}")
        try:
            self.connection.execute(how.format(Identifier(role)), prepare=False)
        except psycopg.Error as fault:
            raise SqlFailed(f"run_as: {_message(fault)}") from fault

    def run(
        self, script: str, check: Callable[[], None], secrets: Secrets = NO_SECRETS
    ) -> StepDone:
        result = ScriptResult(secrets)
        if self._reads_backslashes():  # set as the default of a database or role
            self._plain(f"SET {_BACKSLASHES} = on")
        for statement in statements(script, "postgres"):
            check()
            if self._reads_backslashes():
                raise SqlFailed(
                    f"{_BACKSLASHES} is off: Rota reads quotes as it is on; leave it on, and "
                    "write E'…' for backslashes",
                    statement.line,
                )
            try:
                self._run(script[statement.start : statement.end], statement, result, check)
            except psycopg.Error as fault:
                raise SqlFailed(_message(fault), _line(script, statement, fault)) from fault
        if self._status() == TransactionStatus.INTRANS:
            # Check deferred constraints now: this can be interrupted, a commit cannot.
            self._plain("SET CONSTRAINTS ALL IMMEDIATE", " (at its commit)")
        return result.done()

    def _reads_backslashes(self) -> bool:
        """True if backslashes are escapes: a value could end its quote. Sends no query."""
        return self.connection.info.parameter_status(_BACKSLASHES) == "off"

    def _run(
        self, text: str, statement: Statement, result: ScriptResult, check: Callable[[], None]
    ) -> None:
        cursor = psycopg.Cursor(self.connection)
        for name in _PLAIN:  # Python has no 'infinity' and no year 10000
            cursor.adapters.register_loader(name, TextLoader)
        if _only_reads(statement, text):
            size = FETCH_ROWS if psycopg.capabilities.has_stream_chunked() else 1
            rows = cursor.stream(text, size=size)
            first = next(rows, None)
            columns = [column.name for column in cursor.description or ()]
            result.read(columns, _batches(first, rows, check))
            return
        cursor.execute(text, prepare=False)
        if cursor.description is None:
            result.add_changed(cursor.rowcount)
            result.no_rows()
        else:
            if statement.keywords[0] in ("INSERT", "UPDATE", "DELETE", "MERGE"):
                result.add_changed(cursor.rowcount)
            result.read([column.name for column in cursor.description], iter([cursor.fetchall()]))

    def commit(self) -> None:
        self._plain("COMMIT", " (at its commit)")

    def rollback(self) -> bool:
        if self.connection.closed or self._status() == TransactionStatus.IDLE:
            return False
        self._plain("ROLLBACK")
        return True

    def _status(self) -> TransactionStatus:
        return self.connection.info.transaction_status

    def _plain(self, sql: str, where: str = "") -> None:
        try:
            self.connection.execute(sql.encode(), prepare=False)
        except psycopg.Error as fault:
            raise SqlFailed(_message(fault) + where) from fault

    def interrupt(self) -> None:
        try:
            self.connection.cancel_safe(timeout=CANCEL_SECONDS)
        except psycopg.errors.CancellationTimeout:
            # The server does not respond: shut the socket down, so that the statement's thread
            # stops waiting. Not after another error: the next cancel may succeed, and a statement
            # that is not cancelled would run to its end.
            with (
                suppress(OSError, psycopg.Error),
                socket.socket(fileno=os.dup(self.connection.fileno())) as ours,
            ):
                ours.shutdown(socket.SHUT_RDWR)
            raise

    def close(self) -> None:
        self.connection.close()


def _only_reads(statement: Statement, text: str) -> bool:
    if statement.keywords[0] not in _READS:
        return False
    tokens = lex(text, "postgres")
    return not any(
        token.kind == "word" and text[token.start : token.end].upper() in _WRITES
        for token in tokens
    )


def _batches(
    first: Sequence[Any] | None, rows: Iterator[Sequence[Any]], check: Callable[[], None]
) -> Iterator[Sequence[Any]]:
    batch = [] if first is None else [first]
    while batch:
        yield batch
        check()
        batch = list(islice(rows, FETCH_ROWS))


def _message(fault: psycopg.Error) -> str:
    """The message without the quoted line of SQL, which may hold a secret value."""
    if isinstance(fault, psycopg.ProgrammingError) and "copy() instead" in str(fault):
        return "COPY to STDOUT or from STDIN has no client here; use a table, or a file"
    if not fault.diag.message_primary:
        return (str(fault).strip().splitlines() or [type(fault).__name__])[0]
    message = fault.diag.message_primary
    if fault.diag.message_detail:
        message += f" ({fault.diag.message_detail})"
    if fault.diag.message_hint:
        message += f"; {fault.diag.message_hint}"
    return message


def _line(script: str, statement: Statement, fault: psycopg.Error) -> int:
    position = fault.diag.statement_position
    if position is None or fault.diag.internal_position is not None:
        return statement.line
    return line_of(script, statement.start + int(position) - 1)
