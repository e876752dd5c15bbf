"""SQLite: one file, usable from several processes at once.

Every write is a BEGIN IMMEDIATE on the one writing connection of the process. Threads that want
to write at the same time share a transaction (group commit), so that the price of a synced
commit is paid once for all of them.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Generic

from rota.errors import (
    ReadOnly,
    RotaError,
    StaleSnapshot,
    StorageError,
    Unavailable,
    WrongConnection,
    WrongSchema,
)
from rota.model.result import Result
from rota.storage.engine import Clock, Probe, Row, T, Transaction, check_version, system_clock
from rota.storage.files import file_facts, make_private
from rota.storage.sqlite.connect import BUSY_SECONDS, raw_connection, split_statements, use_wal
from rota.storage.sqlite.select import select
from rota.storage.sqlite.step import LOOK_SECONDS, SqliteStep, begin_step
from rota.storage.sqlite.transaction import SqliteTransaction, plain_cursor
from rota.storage.statements import load_migrations, load_statements

GROUP = 1_000
LONG_WAIT_SECONDS = 0.5
READERS = 8
OLDEST_SQLITE = (3, 37, 0)


class SqliteEngine:
    """`path` ":memory:" keeps everything in one connection: the store of tests."""

    name = "sqlite"
    one_writer = True
    has_wake_channel = True

    def __init__(
        self,
        path: str,
        *,
        schema: str = "rota",
        clock: Clock | None = None,
        probe: Probe | None = None,
        synchronous: str = "FULL",
    ) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StorageError(f"SQLite {sqlite3.sqlite_version} is too old; Rota needs 3.37")
        self.path, self.schema, self.synchronous = path, schema, synchronous
        self.url = f"sqlite:///{path}"
        self.in_memory = path == ":memory:"
        # A handler may change the folder of this process; the store stays where it was.
        self._file = path if self.in_memory else os.path.abspath(path)
        self.clock: Clock = clock or system_clock
        self.probe = probe
        self.prefix = f"_{schema}_"
        self.statements = load_statements("sqlite", self._substitutions)
        self._shapes: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._closed = False
        self._begin_process()

    def _begin_process(self) -> None:
        """Connections and locks of this process. After a fork the parent's are forgotten, not
        closed: SQLite forbids to carry a connection across."""
        self._process = os.getpid()
        self._turn = threading.RLock()  # one transaction at a time
        self._guard = threading.Lock()  # protects the pending deque
        self._pending: deque[_Pending[Any]] = deque()
        self._abandoned = getattr(self, "_writer", None), getattr(self, "_readers", None)
        self._readers: deque[sqlite3.Connection] = deque()
        self._steps_turn = threading.Lock()  # steps of this process come one after the other
        self._waits_since: float | None = None
        self._step_since: float | None = None
        self._blocked_at = float("-inf")
        self._writer = self._open(writing=True)

    @property
    def _substitutions(self) -> dict[str, str]:
        return {"prefix": self.prefix, "views": f"{self.schema}_", "now": ":now"}

    # Transactions

    def read(self, work: Callable[[Transaction], T]) -> T:
        self._after_fork()
        if self.in_memory:
            with self._turn, _translated(self):
                return work(self._transaction("read", self._writer))
        connection = self._readers.pop() if self._readers else self._open(writing=False)
        try:
            with _translated(self):
                connection.execute("BEGIN")
                try:
                    return work(self._transaction("read", connection))
                finally:
                    connection.rollback()
        finally:
            if len(self._readers) < READERS and not self._closed:
                self._readers.append(connection)
            else:
                connection.close()

    def look(self, work: Callable[[Transaction], T]) -> T:
        return self.read(work)

    def select(self, sql: str, *, limit: int, seconds: float) -> Result:
        self._after_fork()
        ask = partial(select, sql=sql, schema=self.schema, limit=limit, seconds=seconds)
        if self.in_memory:
            with self._turn, _translated(self):
                return ask(self._writer)
        connection = self._open(writing=True)  # until the views have their names
        try:
            with _translated(self):
                return ask(connection)
        finally:
            connection.close()

    def write(self, name: str, work: Callable[[Transaction], T]) -> T:
        """Queue the work; whoever gets the turn first commits for all that wait."""
        self._after_fork()
        pending = _Pending(name, work)
        with self._guard:
            self._pending.append(pending)
        with self._turn:
            while not pending.done:
                self._commit_group()
        return pending.answer()

    def _after_fork(self) -> None:
        if self._process != os.getpid():
            self._begin_process()

    def single(self, name: str, rows: Sequence[Mapping[str, object]]) -> list[Row]:
        if not rows:
            return []
        return self.write(name, lambda tx: tx.many(name, rows))

    def _commit_group(self) -> None:
        with self._guard:
            group = [self._pending.popleft() for _ in range(min(GROUP, len(self._pending)))]
        try:
            with _translated(self):
                self._begin()
                try:
                    for pending in group:
                        self._run_in_savepoint(pending)
                    self._at(group, "before")
                    self._writer.commit()
                except BaseException:
                    self._writer.rollback()
                    raise
                for pending in group:
                    pending.committed = True
                self._at(group, "after")
        except Exception as fault:
            for pending in group:
                pending.fail(fault)
        except BaseException:
            # An interrupt belongs to this thread; the others wait for an answer all the same.
            for pending in group:
                pending.fail(Unavailable(f"a write to {self.path} was interrupted; try again"))
            raise
        finally:
            for pending in group:
                pending.done = True

    def _begin(self) -> None:
        """Take the only write lock there is, and remember when that took long."""
        self._waits_since = began = time.monotonic()
        try:
            if self._writer.in_transaction:  # a thread was interrupted where nothing may interrupt
                self._writer.rollback()
            self._writer.execute("BEGIN IMMEDIATE")
        finally:
            self._waits_since = None
            if time.monotonic() - began > LONG_WAIT_SECONDS:
                self._blocked_at = time.monotonic()

    def blocked_within(self, seconds: float) -> bool:
        now = time.monotonic()
        for since in (self._waits_since, self._step_since):
            if since is not None and now - since > LONG_WAIT_SECONDS:
                return True
        return now - self._blocked_at < seconds

    # Steps

    @contextmanager
    def step(self, name: str, stopped: Callable[[], bool]) -> Iterator[SqliteStep]:
        self._after_fork()
        turn = self._turn if self.in_memory else self._steps_turn
        while not turn.acquire(timeout=LOOK_SECONDS):
            if stopped():
                raise Unavailable(f"stopped while another step wrote to {self.path}")
        try:
            connection = self._writer if self.in_memory else self._open(writing=True)
            try:
                with _translated(self):
                    begin_step(connection, self.path, stopped)
                self._step_since = time.monotonic()
                yield SqliteStep(self, name, connection)
            finally:
                self._end_step(connection)
        finally:
            turn.release()

    def _end_step(self, connection: sqlite3.Connection) -> None:
        """Nothing of it remains unless it was committed."""
        if connection.in_transaction:
            connection.rollback()
        if not self.in_memory:
            connection.close()
        since, self._step_since = self._step_since, None
        if since is not None and time.monotonic() - since > LONG_WAIT_SECONDS:
            self._blocked_at = time.monotonic()

    def _run_in_savepoint(self, pending: _Pending[Any]) -> None:
        """One piece of work that raises does not undo its neighbours'."""
        transaction = self._transaction(pending.name, self._writer)
        try:
            with transaction.savepoint():
                pending.result = pending.work(transaction)
        except sqlite3.OperationalError:
            raise  # disk full, I/O error: nothing in this transaction can be trusted
        except sqlite3.Error as fault:
            pending.fail(self.translate(fault))
        except Exception as fault:
            pending.fail(fault)

    def _at(self, group: list[_Pending[Any]], side: str) -> None:
        if self.probe is not None:
            for pending in group:
                self.probe(f"{pending.name}.commit.{side}")

    def on_connection(
        self, connection: Any, work: Callable[[Transaction], T], *, notify: bool = True
    ) -> T:
        raw = raw_connection(connection)
        if not raw.in_transaction:
            raise WrongConnection(
                "the connection has no open transaction; begin one (BEGIN IMMEDIATE) so that the "
                "run exists exactly if you commit"
            )
        transaction = self._transaction("enqueue_on", raw)
        self._same_store(raw)
        try:
            with transaction.savepoint():
                return work(transaction)
        except sqlite3.OperationalError as fault:
            match fault.sqlite_errorname:
                case "SQLITE_BUSY_SNAPSHOT":
                    raise StaleSnapshot(
                        "another process wrote after this transaction began reading, so SQLite "
                        "cannot let it write; begin with BEGIN IMMEDIATE"
                    ) from fault
                case "SQLITE_BUSY":
                    raise Unavailable(
                        f"{self.path} is locked by another transaction; raise this connection's "
                        "busy timeout, or try again"
                    ) from fault
                case _:
                    raise

    def _same_store(self, connection: sqlite3.Connection) -> None:
        try:
            sql = f"SELECT value FROM {self.prefix}meta WHERE key = 'installation'"
            found = plain_cursor(connection).execute(sql).fetchone()
        except sqlite3.Error:
            found = None
        mine = self.read(lambda tx: tx.all("all_meta"))
        if not found or {"key": "installation", "value": found[0]} not in mine:
            raise WrongConnection(
                f"the connection is not to this store ({self.path}); enqueue on a connection to it"
            )

    def _transaction(self, name: str, connection: sqlite3.Connection) -> SqliteTransaction:
        return SqliteTransaction(self, name, connection)

    # Opening

    def _open(self, *, writing: bool) -> sqlite3.Connection:
        if writing and not self.in_memory:
            make_private(self._file)
        try:
            connection = sqlite3.connect(
                self._file,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            if not self.in_memory:
                connection.execute(f"PRAGMA synchronous = {self.synchronous}")
            if not writing:
                connection.execute("PRAGMA query_only = ON")
        except sqlite3.Error as fault:
            raise self.translate(fault) from fault
        return connection

    def migrate(self) -> list[str]:
        def work(tx: Transaction) -> list[str]:
            assert isinstance(tx, SqliteTransaction)
            applied = []
            current = self._version(tx.connection)
            for number, name, sql in load_migrations("sqlite", self._substitutions):
                if number > current:
                    for statement in split_statements(sql):
                        tx.script(statement)
                    applied.append(f"{number:04}_{name}")
                    tx.all("set_meta", key="schema_version", value=str(number))
            if applied and current == 0:
                tx.all("set_meta", key="installation", value=str(uuid.uuid4()))
            return applied

        # WAL is a property of the file, set where a store is made: a file that was only opened
        # by mistake stays as it was. It cannot be set inside a transaction.
        with self._turn, _translated(self):
            if not self.in_memory:
                use_wal(self._writer)
        return self.write("migrate", work)

    def pending_migrations(self) -> list[tuple[str, str]]:
        current = self._version(self._writer)
        return [
            (f"{number:04}_{name}", sql)
            for number, name, sql in load_migrations("sqlite", self._substitutions)
            if number > current
        ]

    def check_schema(self) -> None:
        """Refuse a store that this version of Rota does not understand."""
        with _translated(self):
            current = self._version(self._writer)
        newest = load_migrations("sqlite", self._substitutions)[-1][0]
        check_version(current, newest, self.path)

    def _version(self, connection: sqlite3.Connection) -> int:
        known = connection.execute(
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (f"{self.prefix}meta",)
        ).fetchone()
        if not known:
            return 0
        row = connection.execute(
            f"SELECT value FROM {self.prefix}meta WHERE key = 'schema_version'"
        ).fetchone()
        return int(row[0]) if row else 0

    def home(self) -> dict[str, str]:
        """Files move: only the `cluster` setting guards them."""
        return {}

    def facts(self) -> Row:
        told: Row = {"version": sqlite3.sqlite_version, "read_only": False}
        return told if self.in_memory else {**told, **file_facts(self._file, f"{self._file}-wal")}

    # Waking other processes

    def notify(self) -> None:
        """Nothing to send: a commit changes the file, and listeners watch it."""

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        if self.in_memory:
            return lambda: None
        from rota.storage.sqlite.wake import FileWatch  # needs ctypes, and commands do not listen

        watch = FileWatch(self._file, lambda: self._open(writing=False), self._foreign_commits)
        watch.start(wake)
        return watch.stop

    def _foreign_commits(self) -> int:
        """Changes with each commit that the writing connection of this process did not make."""
        with self._turn:
            return int(self._writer.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        with self._turn:
            self._closed = True
            while self._readers:
                self._readers.pop().close()
            self._writer.close()

    # Errors

    def translate(self, fault: sqlite3.Error) -> RotaError:
        """A message that names the case and the way out."""
        text = str(fault)
        if "locked" in text or "busy" in text:
            return Unavailable(
                f"{self.path} was locked by another process for {BUSY_SECONDS:.0f} s; "
                "look for a long transaction in another program"
            )
        if "readonly" in text:
            return ReadOnly(
                f"{self.path} cannot be written; check the permissions of it and its folder"
            )
        if "unable to open" in text:
            folder = Path(self.path).parent
            return Unavailable(
                f"{self.path} cannot be opened; check that the folder {folder} exists "
                "and may be written"
            )
        if "full" in text:
            return Unavailable(f"the disk that holds {self.path} is full; free some space")
        if "not a database" in text:
            return WrongSchema(f"{self.path} is not a SQLite database; point `database` elsewhere")
        if "no such table" in text:
            return WrongSchema(f"{self.path} holds no Rota store ({text}); run `rota migrate`")
        return StorageError(f"{self.path}: {text}")


class _Pending(Generic[T]):
    """Work that waits for the next commit, and its answer."""

    __slots__ = ("committed", "done", "fault", "name", "result", "work")

    def __init__(self, name: str, work: Callable[[Transaction], T]) -> None:
        self.name, self.work = name, work
        self.done = self.committed = False
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


@contextmanager
def _translated(engine: SqliteEngine) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as fault:
        raise engine.translate(fault) from fault
