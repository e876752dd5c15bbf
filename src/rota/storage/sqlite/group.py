"""Group commit: threads that want to write at the same time share a transaction, so that the
price of a synced commit is paid once for all of them.

An interrupt (Ctrl-C) may come between any two calls of the thread that writes for the others. It
belongs to that thread alone: each of the others gets its answer, or is told that nobody knows
whether its work was committed.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from rota.errors import StorageError, Unavailable
from rota.storage.engine import T, Transaction
from rota.storage.sqlite.faults import translate, translated

if TYPE_CHECKING:
    from rota.storage.sqlite.engine import SqliteEngine

GROUP = 1_000


class GroupCommit:
    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine
        self._guard = threading.Lock()  # protects the line
        self._line: deque[_Pending[Any]] = deque()

    def write(self, name: str, work: Callable[[Transaction], T]) -> T:
        """Queue the work; whoever gets the turn first commits for all that wait."""
        pending = _Pending(name, work)
        with self._guard:
            self._line.append(pending)
        with self._engine._turn:
            while not pending.taken:
                self._commit()
        return pending.answer()

    def _commit(self) -> None:
        engine, group = self._engine, self._take()
        try:
            with translated(engine.path):
                engine._begin()
                try:
                    if len(group) == 1:
                        self._run_alone(group[0])
                    else:
                        for pending in group:
                            self._run_in_savepoint(pending)
                    self._at(group, "before")
                    engine._writer.commit()
                except BaseException:
                    engine._writer.rollback()
                    raise
                for pending in group:
                    pending.committed = True
                self._at(group, "after")
        except Exception as fault:
            for pending in group:
                pending.fail(fault)

    def _take(self) -> list[_Pending[Any]]:
        group: list[_Pending[Any]] = []
        with self._guard:
            while self._line and len(group) < GROUP:
                pending = self._line[0]
                if not pending.taken:  # else somebody was interrupted right here
                    # Before it leaves the line: its thread never waits for what nobody will do.
                    pending.taken = True
                    group.append(pending)
                self._line.popleft()
        return group

    def _run_alone(self, pending: _Pending[Any]) -> None:
        """Where nobody shares the transaction, what raises ends all of it: no savepoint, for
        which SQLite would keep a copy of every page that it changes."""
        engine = self._engine
        transaction = engine._transaction(pending.name, engine._writer)
        try:
            pending.result = pending.work(transaction)
        except BaseException:
            # A statement that was interrupted among its rows would go on to see the store as it was
            # then, and keep this connection from writing.
            transaction.cursor.close()
            raise
        if not engine._writer.in_transaction:
            # A full disk or a ROLLBACK in somebody's own SQL did, and the work went on behind it.
            told = f"a statement of {pending.name} ended its transaction"
            raise StorageError(f"{engine.path}: {told}; it has to be tried again")

    def _run_in_savepoint(self, pending: _Pending[Any]) -> None:
        """One piece of work that raises does not undo its neighbours'."""
        engine = self._engine
        transaction = engine._transaction(pending.name, engine._writer)
        try:
            with transaction.savepoint():
                pending.result = pending.work(transaction)
        except sqlite3.OperationalError:
            raise  # disk full, I/O error: nothing in this transaction can be trusted
        except sqlite3.Error as fault:
            pending.fail(translate(fault, engine.path))
        except Exception as fault:
            pending.fail(fault)

    def _at(self, group: list[_Pending[Any]], side: str) -> None:
        if self._engine.probe is not None:
            for pending in group:
                self._engine.probe(f"{pending.name}.commit.{side}")


class _Pending(Generic[T]):
    """Work that waits for the next commit, and its answer. Who has the turn and finds it taken
    knows that it is over, however that ended."""

    __slots__ = ("committed", "fault", "name", "result", "taken", "work")

    def __init__(self, name: str, work: Callable[[Transaction], T]) -> None:
        self.name, self.work = name, work
        self.taken = self.committed = False
        self.result: T | None = None
        self.fault: BaseException | None = None

    def fail(self, fault: BaseException) -> None:
        if self.fault is None:
            self.fault = fault

    def answer(self) -> T:
        if self.fault is not None:
            raise self.fault
        if not self.committed:  # the thread that wrote for all was interrupted: nobody knows
            lost = Unavailable(f"{self.name} was interrupted; try again")
            lost.maybe_committed = True
            raise lost
        return self.result  # type: ignore[return-value]
