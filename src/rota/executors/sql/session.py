"""A connection to a target as the executor uses it, the same for all engines.

A session runs the statements of a script in order, with or without a transaction. All rows of a
statement are read, because an error may follow the last row. Only the first rows of the last
statement are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from rota.model.interpolate import Script
from rota.model.secrets import NO_SECRETS, Secrets
from rota.model.steps import StepDone

FETCH_ROWS = 1_000


class SqlFailed(Exception):
    """A statement failed or was refused; `line` is its line in the script, if known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message, self.line = message, line

    def at(self, name: str, script: Script) -> str:
        """The message after the name of the script's file and the line."""
        location = f"{name}:{script.line(self.line)}" if self.line else name
        return f"{location}: {self.message}"


class RestoreFailed(SqlFailed):
    """The session state that a finished file had set could not be set again."""

    def __init__(self, fault: SqlFailed, done: str, script: Script, word: str) -> None:
        super().__init__(fault.at(done, script))
        self.done, self.word = done, word

    def at(self, name: str, script: Script) -> str:
        return f"{self.message} ({self.done} is not run again, but its {self.word} is: for {name})"


class Interrupted(Exception):
    """The step should end before its next statement."""


class Session(Protocol):
    connection: Any

    def begin(self, stopped: Callable[[], bool]) -> None:
        """Open a transaction; a wait for a lock ends when `stopped` is true."""

    def act_as(self, role: str, *, in_transaction: bool) -> None:
        """Use the rights of a role, until the transaction or the session ends."""

    def run(
        self, script: str, check: Callable[[], None], secrets: Secrets = NO_SECRETS
    ) -> StepDone:
        """Run all statements; `check` is called before each, and may raise."""

    def commit(self) -> None: ...

    def rollback(self) -> bool:
        """Roll back an open transaction; False if there was none."""

    def interrupt(self) -> None:
        """End the running statement, if any; called from another thread."""

    def close(self) -> None: ...


@contextmanager
def transaction_of(
    session: Session, *, wrapped: bool, stopped: Callable[[], bool]
) -> Iterator[None]:
    """Run the block in a transaction, rolled back on an error.

    An autonomous script, not `wrapped`, controls its transactions itself; it fails if it leaves one
    open, because that would be lost."""
    try:
        if wrapped:
            session.begin(stopped)
        yield
        if wrapped:
            session.commit()
        elif session.rollback():
            raise SqlFailed(
                "it ends inside a transaction that it began, so that was rolled back; "
                "end it with COMMIT"
            )
    except BaseException:
        with suppress(Exception):  # the connection itself may have failed
            session.rollback()
        raise


class ScriptResult:
    """Collects the row count and first rows of a script's statements."""

    def __init__(self, secrets: Secrets = NO_SECRETS) -> None:
        self.secrets = secrets  # redacted before a cell is cut
        self.changed: int | None = None
        self.columns: list[str] | None = None
        self.rows: list[Sequence[Any]] = []
        self.more = False

    def add_changed(self, count: int) -> None:
        if count >= 0:
            self.changed = (self.changed or 0) + count

    def read(self, columns: list[str], batches: Iterator[Sequence[Sequence[Any]]]) -> None:
        """Read all rows of a statement and store the first."""
        from rota.model.limits import STEP_RESULT_ROWS

        self.columns, self.rows, self.more = columns, [], False
        for batch in batches:
            room = STEP_RESULT_ROWS - len(self.rows)
            self.rows += batch[:room]
            self.more = self.more or len(batch) > room

    def no_rows(self) -> None:
        """Record a statement without rows: earlier rows are not the result."""
        self.columns, self.rows, self.more = None, [], False

    def done(self) -> StepDone:
        from rota.executors.sql.results import encode_rows

        result = None
        if self.columns is not None:
            result = encode_rows(self.columns, self.rows, more=self.more, secrets=self.secrets)
        return StepDone(rows=self.changed, result=result)
