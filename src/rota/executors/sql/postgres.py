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

from rota.executors.sql.session import FETCH_ROWS, Answer, SqlFailed
from rota.model.secrets import NO_SECRETS, Secrets
from rota.model.sql_lexer import lex, line_of
from rota.model.sql_script import Statement, statements
from rota.model.steps import StepDone

CANCEL_SECONDS = 5.0
# What always answers with rows: read piece by piece, however many there are. Not if it holds one
# of the others, outside of quotes: then it may change rows instead, and answer nothing.
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
            raise SqlFailed(f"run_as: {_said(fault)}") from fault

    def run(
        self, script: str, check: Callable[[], None], secrets: Secrets = NO_SECRETS
    ) -> StepDone:
        answer = Answer(secrets)
        if self._reads_backslashes():  # the default of a database or role
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
                self._run(script[statement.start : statement.end], statement, answer, check)
            except psycopg.Error as fault:
                raise SqlFailed(_said(fault), _line(script, statement, fault)) from fault
        if self._status() == TransactionStatus.INTRANS:
            # Here it can be interrupted, and at the commit not: a trigger may take long.
            self._plain("SET CONSTRAINTS ALL IMMEDIATE", " (at its commit)")
        return answer.done()

    def _reads_backslashes(self) -> bool:
        """If so a value that ends its quote by \\' is not data any more. Asks no server."""
        return self.connection.info.parameter_status(_BACKSLASHES) == "off"

    def _run(
        self, text: str, statement: Statement, answer: Answer, check: Callable[[], None]
    ) -> None:
        cursor = psycopg.Cursor(self.connection)
        for name in _PLAIN:  # 'infinity' and the year 10000 are none to Python
            cursor.adapters.register_loader(name, TextLoader)
        if _only_reads(statement, text):
            size = FETCH_ROWS if psycopg.capabilities.has_stream_chunked() else 1
            rows = cursor.stream(text, size=size)
            first = next(rows, None)
            columns = [column.name for column in cursor.description or ()]
            answer.read(columns, _batches(first, rows, check))
            return
        cursor.execute(text, prepare=False)
        if cursor.description is None:
            answer.add_changed(cursor.rowcount)
            answer.no_rows()
        else:
            if statement.keywords[0] in ("INSERT", "UPDATE", "DELETE", "MERGE"):
                answer.add_changed(cursor.rowcount)
            answer.read([column.name for column in cursor.description], iter([cursor.fetchall()]))

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
            raise SqlFailed(_said(fault) + where) from fault

    def interrupt(self) -> None:
        try:
            self.connection.cancel_safe(timeout=CANCEL_SECONDS)
        except psycopg.errors.CancellationTimeout:
            # Nobody is there. Who waits for an answer stops waiting. Not after any other fault:
            # the next try may be heard, and a statement that nobody cancelled is done to its end.
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
    words = (text[one.start : one.end] for one in lex(text, "postgres") if one.kind == "word")
    return not any(word.upper() in _WRITES for word in words)


def _batches(
    first: Sequence[Any] | None, rows: Iterator[Sequence[Any]], check: Callable[[], None]
) -> Iterator[Sequence[Any]]:
    batch = [] if first is None else [first]
    while batch:
        yield batch
        check()
        batch = list(islice(rows, FETCH_ROWS))


def _said(fault: psycopg.Error) -> str:
    """Without the line of SQL that the driver repeats: a value in it may be a secret."""
    if isinstance(fault, psycopg.ProgrammingError) and "copy() instead" in str(fault):
        return "COPY to STDOUT or from STDIN has nobody to talk to here; use a table, or a file"
    if not fault.diag.message_primary:
        return (str(fault).strip().splitlines() or [type(fault).__name__])[0]
    told = fault.diag.message_primary
    if fault.diag.message_detail:
        told += f" ({fault.diag.message_detail})"
    if fault.diag.message_hint:
        told += f"; {fault.diag.message_hint}"
    return told


def _line(script: str, statement: Statement, fault: psycopg.Error) -> int:
    place = fault.diag.statement_position
    if place is None or fault.diag.internal_position is not None:
        return statement.line
    return line_of(script, statement.start + int(place) - 1)
