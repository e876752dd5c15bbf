"""What the executor asks of a connection to a target, whatever the engine.

A session runs the statements of a script one after the other, in a transaction or without one.
Everything a statement answers is read to its end, because an error may come with its last row;
only the first rows of the last answer are kept.
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
    """A statement failed, or was refused; `line` is where it stands in its script, if known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message, self.line = message, line

    def at(self, name: str, script: Script) -> str:
        """The message with the place: the file that the script was made of, and its line."""
        place = f"{name}:{script.line(self.line)}" if self.line else name
        return f"{place}: {self.message}"


class NotBroughtBack(SqlFailed):
    """What a file that is done had made of its session could not be made again."""

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
        """Open a transaction; where it waits for others, it hears `stopped`."""

    def act_as(self, role: str, *, in_transaction: bool) -> None:
        """Go on with the rights of a role, until the transaction or the session ends."""

    def run(
        self, script: str, check: Callable[[], None], secrets: Secrets = NO_SECRETS
    ) -> StepDone:
        """Run every statement; `check` is called before each of them, and may raise."""

    def commit(self) -> None: ...

    def rollback(self) -> bool:
        """Undo what is open, and say whether anything was; the session can be used again."""

    def interrupt(self) -> None:
        """End the statement that runs now, from another thread; nothing happens if none does."""

    def close(self) -> None: ...


@contextmanager
def around(session: Session, *, wrapped: bool, stopped: Callable[[], bool]) -> Iterator[None]:
    """The transaction of a script, committed if all goes well. An autonomous one, not `wrapped`,
    has those that it begins itself, and must end them: what it left open would be lost."""
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
        with suppress(Exception):  # the connection may be what failed
            session.rollback()
        raise


class Answer:
    """What the statements of a script said so far."""

    def __init__(self, secrets: Secrets = NO_SECRETS) -> None:
        self.secrets = secrets  # of the run, gone before a cell is cut
        self.changed: int | None = None
        self.columns: list[str] | None = None
        self.rows: list[Sequence[Any]] = []
        self.more = False

    def add_changed(self, count: int) -> None:
        if count >= 0:
            self.changed = (self.changed or 0) + count

    def read(self, columns: list[str], batches: Iterator[Sequence[Sequence[Any]]]) -> None:
        """Read an answer to its end and keep its first rows."""
        from rota.model.limits import STEP_RESULT_ROWS

        self.columns, self.rows, self.more = columns, [], False
        for batch in batches:
            room = STEP_RESULT_ROWS - len(self.rows)
            self.rows += batch[:room]
            self.more = self.more or len(batch) > room

    def no_rows(self) -> None:
        """The last statement answered nothing: an earlier answer is not the result."""
        self.columns, self.rows, self.more = None, [], False

    def done(self) -> StepDone:
        from rota.executors.sql.results import encode_rows

        result = None
        if self.columns is not None:
            result = encode_rows(self.columns, self.rows, more=self.more, secrets=self.secrets)
        return StepDone(rows=self.changed, result=result)
