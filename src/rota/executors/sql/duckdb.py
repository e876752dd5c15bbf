"""Scripts on DuckDB, by cursors of the one instance that this process has of a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import duckdb

from rota.executors.sql.session import FETCH_ROWS, Answer, SqlFailed
from rota.model.sql_lexer import line_of
from rota.model.steps import StepDone

_LINE = re.compile(r"\n\nLINE (\d+):.*\Z", re.S)
_LEADING = re.compile(r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.S)
_CHANGED = duckdb.ExpectedResultType.CHANGED_ROWS


class DuckSession:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def begin(self, stopped: Callable[[], bool]) -> None:
        self._plain("BEGIN")

    def act_as(self, role: str, *, in_transaction: bool) -> None:
        raise SqlFailed(f"run_as = {role!r} needs a PostgreSQL target; DuckDB has no roles")

    def run(self, script: str, check: Callable[[], None]) -> StepDone:
        answer, position = Answer(), 0
        for statement in self._split(script):
            check()
            text = statement.query
            start = script.find(text, position) if text else -1
            position = max(position, start)
            try:
                # As text where there is one: only then an error tells its line.
                self.connection.execute(text or statement)
                self._read(statement, answer, check)
            except duckdb.Error as fault:
                raise _failed(fault, script, text, start) from fault
            position += len(text) if start >= 0 else 0
        return answer.done()

    def _split(self, script: str) -> list[Any]:
        try:
            found: list[Any] = self.connection.extract_statements(script)
            return found
        except duckdb.Error as fault:
            raise _failed(fault, script, script, 0) from fault

    def _read(self, statement: Any, answer: Answer, check: Callable[[], None]) -> None:
        columns = [column[0] for column in self.connection.description or ()]
        if not columns:
            answer.no_rows()
        elif columns == ["Count"] and _CHANGED in statement.expected_result_type:
            for (count,) in self.connection.fetchall():
                answer.add_changed(count)
            answer.no_rows()
        else:
            answer.read(columns, self._batches(check))

    def _batches(self, check: Callable[[], None]) -> Iterator[Sequence[Any]]:
        while batch := self.connection.fetchmany(FETCH_ROWS):
            yield batch
            check()

    def commit(self) -> None:
        self._plain("COMMIT", " (at its commit)")

    def rollback(self) -> None:
        with suppress(duckdb.TransactionException):  # none is open
            self.connection.execute("ROLLBACK")

    def _plain(self, sql: str, where: str = "") -> None:
        try:
            self.connection.execute(sql)
        except duckdb.Error as fault:
            raise SqlFailed(str(fault) + where) from fault

    def interrupt(self) -> None:
        self.connection.interrupt()

    def close(self) -> None:
        self.connection.close()


def attached(cursor: Any) -> set[str]:
    """The databases that the instance has attached."""
    found = cursor.execute("SELECT database_name FROM duckdb_databases() WHERE NOT internal")
    return {name for (name,) in found.fetchall()}


def detach(cursor: Any, names: set[str]) -> None:
    for name in sorted(names):
        quoted = name.replace('"', '""')
        cursor.execute(f'DETACH DATABASE IF EXISTS "{quoted}"')


def _failed(fault: Exception, script: str, text: str, start: int) -> SqlFailed:
    """The line of the file: what DuckDB counts begins with the statement."""
    said = str(fault)
    told = _LINE.search(said)
    # The line of SQL that it repeats may hold the value of a variable.
    message = said[: told.start()] if told else said
    if start < 0:
        return SqlFailed(message)
    if told:
        return SqlFailed(message, line_of(script, start) + int(told[1]) - 1)
    leading = _LEADING.match(text)
    return SqlFailed(message, line_of(script, start + (leading.end() if leading else 0)))
