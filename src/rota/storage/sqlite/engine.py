"""SQLite: one file, usable from several processes at once.

Every write is a BEGIN IMMEDIATE on the one writing connection of the process, which the threads
that want to write at the same time share (`group.py`).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from rota.errors import StaleSnapshot, StorageError, Unavailable, WrongConnection
from rota.model.duration import micros
from rota.model.schedule import WAITING_FOR_RUN
from rota.storage.engine import Clock, Probe, Row, T, Transaction, no_roles, system_clock
from rota.storage.files import file_facts, make_private
from rota.storage.schema import Schema, apply
from rota.storage.sqlite.connect import raw_connection, read_meta, split_statements, use_wal
from rota.storage.sqlite.faults import BUSY_SECONDS, is_busy, translate, translated
from rota.storage.sqlite.group import GroupCommit
from rota.storage.sqlite.step import LOOK_SECONDS, SqliteStep, begin_step
from rota.storage.sqlite.transaction import SqliteTransaction, plain_cursor
from rota.storage.statements import Statements, load_statements

if TYPE_CHECKING:
    from rota.model.result import Result

LONG_WAIT_SECONDS = 0.5
READERS = 8
# Of a file that is new. Rows of ours are long: pages of 4 KB hold few of them, and are so many.
PAGE_BYTES = 8_192
# Of the writing connection. What a transaction changes stays in memory until it commits, up to
# this: from the usual 2 MB on SQLite would write pages early and read them again.
SPILL_BYTES = 32 << 20
# The log is carried into the file at 16 MB, not at a thousand pages: those that change with every
# transaction, as those of the index on ids do, are carried so much less often.
CHECKPOINT_BYTES = 16 << 20
OLDEST_SQLITE = (3, 39, 0)
# In views: text in UTC that sorts, and that SQLite's own date functions read.
INSTANT = "strftime('%Y-%m-%d %H:%M:%S', ? / 1000000, 'unixepoch') || printf('.%06dZ', ? % 1000000)"
JSON_INSTANT = (
    "replace(substr(?, 1, 19), 'T', ' ')"
    " || CASE WHEN substr(?, 20, 1) = '.' THEN substr(?, 20, 7) ELSE '.000000' END || 'Z'"
)
# SQLite knows the type of a view's column only where it is a column of a table.
TYPED_OPTIONS = (
    "timezone", "overlap", "queue_max", "on_error", "pause_after", "catch_up", "owner",
)  # fmt: skip


class SqliteEngine:
    """`path` ":memory:" keeps everything in one connection: the store of tests."""

    name = "sqlite"
    one_writer = True
    caller_holds_writes = True
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
            raise StorageError(f"SQLite {sqlite3.sqlite_version} is too old; Rota needs 3.39")
        self.path, self.schema, self.synchronous = path, schema, synchronous
        self.url = f"sqlite:///{path}"
        self.in_memory = path == ":memory:"
        # A handler may change the folder of this process; the store stays where it was.
        self._file = path if self.in_memory else os.path.abspath(path)
        self.clock: Clock = clock or system_clock
        self.probe = probe
        self.prefix = f"_{schema}_"
        texts = load_statements("sqlite", self._substitutions)
        self.statements = Statements(texts, lambda name, sql: sql)
        self.schema_scripts = Schema(
            "sqlite",
            {
                **self._substitutions,
                "schema": schema,
                "runs": f"{self.prefix}runs",
                "run_id": "id",
                "far": str(micros(WAITING_FOR_RUN)),
            },
            shown=path,
            anew="move the file away, or set `schema` to another name",
            instant=INSTANT,
            json_instant=JSON_INSTANT,
            typed=TYPED_OPTIONS,
            view="DROP VIEW IF EXISTS ?;\nCREATE VIEW ? AS",
        )
        self._shapes: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._closed = False
        self._begin_process()

    def _begin_process(self) -> None:
        """Connections and locks of this process. After a fork the parent's are forgotten, not
        closed: SQLite forbids to carry a connection across."""
        self._process = os.getpid()
        self._turn = threading.RLock()  # one transaction at a time
        self._group = GroupCommit(self)
        self._abandoned = getattr(self, "_writer", None), getattr(self, "_readers", None)
        self._readers: deque[sqlite3.Connection] = deque()
        self._steps_turn = threading.Lock()  # steps of this process come one after the other
        self._waits_since: float | None = None
        self._step_since: float | None = None
        self._blocked_at = float("-inf")
        self._writer = self._open_writer()

    @property
    def _substitutions(self) -> dict[str, str]:
        return {
            "prefix": self.prefix,
            "views": f"{self.schema}_",
            "now": ":now",
        }

    # Transactions

    def read(self, work: Callable[[Transaction], T]) -> T:
        self._after_fork()
        if self.in_memory:
            with self._turn, translated(self.path):
                return work(self._transaction("read", self._writer))
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = self._open(writing=False)
        try:
            with translated(self.path):
                connection.execute("BEGIN")
                try:
                    return work(self._transaction("read", connection))
                finally:
                    connection.rollback()
        finally:
            # One that was interrupted inside its transaction is not used again.
            kept = len(self._readers) < READERS and not self._closed
            if kept and not connection.in_transaction:
                self._readers.append(connection)
            else:
                connection.close()

    def peek(self, name: str, work: Callable[[Transaction], T]) -> T:
        return self.read(work)

    def select(self, sql: str, *, limit: int, seconds: float) -> Result:
        self._after_fork()
        from rota.storage.sqlite.select import select

        ask = partial(select, sql=sql, schema=self.schema, limit=limit, seconds=seconds)
        if self.in_memory:
            with self._turn, translated(self.path):
                return ask(self._writer)
        connection = self._open(writing=True)  # until the views have their names
        try:
            with translated(self.path):
                return ask(connection)
        finally:
            connection.close()

    def write(self, name: str, work: Callable[[Transaction], T]) -> T:
        self._after_fork()
        return self._group.write(name, work)

    def write_single(self, name: str, work: Callable[[Transaction], T]) -> T:
        return self.write(name, work)

    def _after_fork(self) -> None:
        if self._process != os.getpid():
            self._begin_process()

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
                with translated(self.path):
                    begin_step(connection, self.path, stopped)
                self._step_since = time.monotonic()
                yield SqliteStep(self, name, connection)
            finally:
                self._end_step(connection)
        finally:
            turn.release()

    def _end_step(self, connection: sqlite3.Connection) -> None:
        """Nothing of it remains unless it was committed."""
        try:
            if connection.in_transaction:
                with translated(self.path):
                    connection.rollback()
        finally:
            since, self._step_since = self._step_since, None
            if since is not None and time.monotonic() - since > LONG_WAIT_SECONDS:
                self._blocked_at = time.monotonic()
            if not self.in_memory:
                connection.close()

    def on_connection(
        self, connection: Any, work: Callable[[Transaction], T], *, notify: bool = True
    ) -> T:
        raw = raw_connection(connection)
        if not raw.in_transaction:
            raise WrongConnection(
                "the connection has no open transaction; begin one (BEGIN IMMEDIATE) so that the "
                "run exists exactly if you commit"
            )
        transaction = self._transaction("enqueueing.enqueue_on", raw)
        self._same_store(raw)
        try:
            with transaction.savepoint():
                return work(transaction)
        except sqlite3.OperationalError as fault:
            if fault.sqlite_errorname == "SQLITE_BUSY_SNAPSHOT":
                raise StaleSnapshot(
                    "another process wrote after this transaction began reading, so SQLite "
                    "cannot let it write; begin with BEGIN IMMEDIATE"
                ) from fault
            if is_busy(fault):
                raise Unavailable(
                    f"{self.path} is locked by another transaction; raise this connection's "
                    "busy timeout, or try again"
                ) from fault
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

    def _open_writer(self) -> sqlite3.Connection:
        """Ours alone: the transactions of a step may be of any size, and ours are bounded."""
        connection = self._open(writing=True)
        with translated(self.path):
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            (page,) = connection.execute("PRAGMA page_size").fetchone()
            # Odd: SQLite takes the last byte of the number for yes or no, and 0 for never.
            connection.execute(f"PRAGMA cache_spill = {SPILL_BYTES // page | 1}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_BYTES // page}")
        return connection

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
            raise translate(fault, self.path) from fault
        return connection

    def migrate(self) -> list[str]:
        self.schema_scripts.check_origin(self._meta())
        # WAL is a property of the file, set where a store is made: a file that was only opened
        # by mistake stays as it was. It cannot be set inside a transaction.
        with self._turn, translated(self.path):
            if not self.in_memory:
                use_wal(self._writer)
        applied = []
        while self.schema_scripts.pending(self._meta()):
            applied += self.write("installation.migrate", self._migrate)
        return applied

    def _migrate(self, tx: Transaction) -> list[str]:
        """Apply a part of what is pending; nothing if another process has done it."""
        assert isinstance(tx, SqliteTransaction)

        def run(script: str) -> None:
            for statement in split_statements(script):
                tx.script(statement)

        meta = read_meta(tx.connection, self.prefix)
        applied = apply(tx, self.schema_scripts.next_transaction(meta), run)
        if "installation" not in meta:
            tx.all("set_meta", key="installation", value=str(uuid.uuid4()))
        return applied

    def grant_roles(self) -> None:
        raise no_roles()

    @property
    def roles_sql(self) -> str:
        raise no_roles()

    def pending_migrations(self) -> list[tuple[str, str]]:
        return [(script.name, script.sql) for script in self.schema_scripts.pending(self._meta())]

    def check_schema(self) -> None:
        """Refuse a store that this version of Rota does not understand."""
        self.schema_scripts.check(self._meta())

    def _meta(self) -> dict[str, str]:
        with translated(self.path):
            return read_meta(self._writer, self.prefix)

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
