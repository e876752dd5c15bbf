"""Scripts on DuckDB, by cursors of this process's instance of the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import duckdb

from rota.executors.sql.session import FETCH_ROWS, ScriptResult, SqlFailed
from rota.model.secrets import NO_SECRETS, Secrets
from rota.model.sql_lexer import all_of, line_of
from rota.model.steps import StepDone

_LINE = re.compile(r"\n\nLINE (\d+):.*\Z", re.S)
_LEADING = re.compile(all_of(r"[\s;]", r"--[^\n]*(?:\n|\Z)", r"/\*.*?\*/"), re.S)
_CHANGED = duckdb.ExpectedResultType.CHANGED_ROWS


class DuckSession:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def begin(self, stopped: Callable[[], bool]) -> None:
        self._plain("BEGIN")

    def act_as(self, role: str, *, in_transaction: bool) -> None:
        raise SqlFailed(f"run_as = {role!r} needs a PostgreSQL target; DuckDB has no roles")

    def run(
        self, script: str, check: Callable[[], None], secrets: Secrets = NO_SECRETS
    ) -> StepDone:
        result, position = ScriptResult(secrets), 0
        for statement in self._split(script):
            check()
            text = statement.query
            start = _find(script, text, position)
            try:
                # As text where it stands in the file: only then an error has a line. DuckDB splits
                # a PIVOT into several statements, whose `query` must not be executed as text.
                self.connection.execute(statement if start is None else text)
                self._read(statement, result, check)
            except duckdb.Error as fault:
                begin = position if start is None else start
                raise _failed(fault, script, begin, exact=start is not None) from fault
            except (ArithmeticError, ValueError) as fault:  # out of range for a Python type
                begin = position if start is None else start
                raise SqlFailed(
                    f"a value of the result cannot be read ({fault}); cast it to text",
                    _first_line(script, begin),
                ) from fault
            position = position if start is None else start + len(text)
        return result.done()

    def _split(self, script: str) -> list[Any]:
        try:
            statements: list[Any] = self.connection.extract_statements(script)
            return statements
        except duckdb.Error as fault:
            raise _failed(fault, script, 0, exact=True) from fault

    def _read(self, statement: Any, result: ScriptResult, check: Callable[[], None]) -> None:
        columns = [column[0] for column in self.connection.description or ()]
        if not columns:
            result.no_rows()
        elif columns == ["Count"] and _CHANGED in statement.expected_result_type:
            for (count,) in self.connection.fetchall():
                result.add_changed(count)
            result.no_rows()
        else:
            result.read(columns, self._batches(check))

    def _batches(self, check: Callable[[], None]) -> Iterator[Sequence[Any]]:
        while batch := self.connection.fetchmany(FETCH_ROWS):
            yield batch
            check()

    def commit(self) -> None:
        self._plain("COMMIT", " (at its commit)")

    def rollback(self) -> bool:
        try:
            self.connection.execute("ROLLBACK")
        except duckdb.TransactionException:  # none is open
            return False
        return True

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
    rows = cursor.execute("SELECT database_name FROM duckdb_databases() WHERE NOT internal")
    return {name for (name,) in rows.fetchall()}


def detach(cursor: Any, names: set[str]) -> None:
    for name in sorted(names):
        quoted = name.replace('"', '""')
        cursor.execute(f'DETACH DATABASE IF EXISTS "{quoted}"')


def temporary_secrets(cursor: Any) -> set[str]:
    """Names of the instance's temporary secrets.

    Reading them initializes DuckDB's secret manager: `SET secret_directory` fails after that."""
    rows = cursor.execute("SELECT name FROM duckdb_secrets() WHERE NOT persistent")
    return {name for (name,) in rows.fetchall()}


def drop_secrets(cursor: Any, names: set[str]) -> None:
    for name in sorted(names):
        quoted = name.replace('"', '""')
        cursor.execute(f'DROP TEMPORARY SECRET IF EXISTS "{quoted}"')


def _find(script: str, text: str, position: int) -> int | None:
    """The position of a statement in the script, if its text is there unchanged."""
    start = script.find(text, position) if text else -1
    end = start + len(text)
    whole = script[max(start - 1, 0) : start] in ("", ";") and script[end : end + 1] in ("", ";")
    return start if start >= 0 and whole else None


def _first_line(script: str, position: int) -> int:
    """The line of the next token after blanks and comments."""
    leading = _LEADING.match(script, position)
    return line_of(script, leading.end() if leading else position)


def _failed(fault: Exception, script: str, start: int, *, exact: bool) -> SqlFailed:
    """The error with the line of the file.

    DuckDB counts lines from the statement's start, which is in the file only if `exact`."""
    message = str(fault)
    line = _LINE.search(message)
    # Cut the quoted line of SQL, which may hold the value of a variable.
    message = message[: line.start()] if line else message
    if line and exact:
        return SqlFailed(message, line_of(script, start) + int(line[1]) - 1)
    return SqlFailed(message, _first_line(script, start))
