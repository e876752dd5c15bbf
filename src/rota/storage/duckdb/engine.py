"""DuckDB: one file, one process.

An old snapshot overwrites newer rows silently where the columns differ. So every write to our
tables begins and ends its transaction inside the one write lock of the process, and reads what
the one before it committed. Readers go on beside it, each on a cursor of its own.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import duckdb

from rota.duckdb_instances import MEMORY, open_instance
from rota.errors import Unavailable, WrongConnection
from rota.model.result import Result
from rota.model.schedule import WAITING_FOR_RUN
from rota.storage.duckdb.connect import check_name, in_transaction, open_cursor, raw_connection
from rota.storage.duckdb.faults import translate
from rota.storage.duckdb.select import select
from rota.storage.duckdb.step import DuckdbStep
from rota.storage.duckdb.transaction import DuckdbTransaction, Statement, Undone
from rota.storage.engine import Clock, Probe, Row, T, Transaction, no_roles, system_clock
from rota.storage.files import file_facts
from rota.storage.schema import Schema, apply
from rota.storage.statements import Statements, load_statements

LONG_WAIT_SECONDS = 0.5
READERS = 8


class DuckdbEngine:
    """`path` ":memory:" is a world of its own, ":memory:name" is shared in the process."""

    name = "duckdb"
    one_writer = True
    caller_holds_writes = False
    has_wake_channel = True

    def __init__(
        self,
        path: str,
        *,
        schema: str = "rota",
        clock: Clock | None = None,
        probe: Probe | None = None,
    ) -> None:
        self.path, self.schema = path, schema
        self.url = f"duckdb:///{path}"
        self.in_memory = path.startswith(MEMORY)
        self.clock: Clock = clock or system_clock
        self.probe = probe
        self.prefix = f'"_{schema}_data".'
        texts = load_statements("duckdb", self._substitutions)
        self.statements = Statements(texts, lambda name, sql: Statement(sql))
        self.schema_scripts = Schema(
            "duckdb",
            {
                **self._substitutions,
                "runs": f"{self.prefix}runs",
                "run_id": "id",
                "far": f"'{WAITING_FOR_RUN.isoformat(' ')}'::TIMESTAMPTZ",
            },
            shown=path,
            anew=f"drop the schemas _{schema} and _{schema}_data with all in them",
        )
        self._process = os.getpid()
        self._closed = False
        self._readers: deque[duckdb.DuckDBPyConnection] = deque()
        self._wakes: list[Callable[[], None]] = []
        self._waits_since: dict[int, float] = {}  # of each thread that waits for its turn
        self._blocked_at = float("-inf")
        self.instance = open_instance(path)
        try:
            self._writer = self._open()
            check_name(self._writer, path, schema)
        except BaseException:
            self.instance.close()
            raise

    @property
    def _substitutions(self) -> dict[str, str]:
        return {
            "prefix": self.prefix,
            "views": f'"_{self.schema}".',
            "now": ":now::TIMESTAMPTZ",
            "schema": self.schema,
        }

    def _open(self) -> duckdb.DuckDBPyConnection:
        with self._translated():
            return open_cursor(self.instance)

    # Transactions

    def read(self, work: Callable[[Transaction], T]) -> T:
        with self._reader() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            try:
                return work(self._transaction("read", cursor))
            finally:
                cursor.execute("ROLLBACK")

    def peek(self, name: str, work: Callable[[Transaction], T]) -> T:
        with self._reader() as cursor:
            return work(self._transaction("read", cursor))

    def select(self, sql: str, *, limit: int, seconds: float) -> Result:
        self._check_process()
        cursor = self._open()
        try:
            return select(cursor, sql, schema=self.schema, limit=limit, seconds=seconds)
        finally:
            cursor.close()

    @contextmanager
    def _reader(self) -> Iterator[duckdb.DuckDBPyConnection]:
        self._check_process()
        try:
            cursor = self._readers.pop()
        except IndexError:
            cursor = self._open()
        try:
            with self._translated():
                yield cursor
        except BaseException:
            cursor.close()  # whatever it was in the middle of ends with it
            raise
        if len(self._readers) < READERS and not self._closed:
            self._readers.append(cursor)
        else:
            cursor.close()

    def write(self, name: str, work: Callable[[Transaction], T]) -> T:
        self._check_process()
        with self._turn(), self._translated():
            answer = self._write(name, work)
        self._wake_others()
        return answer

    def _write(self, name: str, work: Callable[[Transaction], T]) -> T:
        failed: dict[int, Exception] = {}
        while True:
            try:
                self._writer.execute("BEGIN TRANSACTION")
                transaction = DuckdbTransaction(self, name, self._writer, failed)
                answer = work(transaction)
                assert not transaction.broken, f"{name} went on after an error"
                self._at(name, "before")
                self._writer.execute("COMMIT")
            except Undone as undone:
                # Nobody else wrote meanwhile: it comes to the same place, and passes it over.
                self._roll_back()
                # What had failed within this part is not met any more, and its numbers go on to
                # the parts behind.
                failed = {n: fault for n, fault in failed.items() if n < undone.number}
                failed[undone.number] = undone.fault
                continue
            except BaseException:
                self._roll_back()
                raise
            self._at(name, "after")
            return answer

    def _roll_back(self) -> None:
        """Undo. A cursor that cannot even do that is not used again."""
        try:
            self._writer.execute("ROLLBACK")
        except duckdb.Error:
            self._writer.close()
            self._writer = self._open()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """The one write lock there is; remembers when that took long."""
        thread, began = threading.get_ident(), time.monotonic()
        self._waits_since[thread] = began
        try:
            self.instance.write_lock.acquire()
        finally:
            self._waits_since.pop(thread, None)
            if time.monotonic() - began > LONG_WAIT_SECONDS:
                self._blocked_at = time.monotonic()
        try:
            yield
        finally:
            self.instance.write_lock.release()

    def blocked_within(self, seconds: float) -> bool:
        now = time.monotonic()
        longest = now - min(tuple(self._waits_since.values()), default=now)
        return longest > LONG_WAIT_SECONDS or now - self._blocked_at < seconds

    def write_single(self, name: str, work: Callable[[Transaction], T]) -> T:
        return self.write(name, work)

    def _at(self, name: str, side: str) -> None:
        if self.probe is not None:
            self.probe(f"{name}.commit.{side}")

    def _transaction(self, name: str, cursor: duckdb.DuckDBPyConnection) -> DuckdbTransaction:
        return DuckdbTransaction(self, name, cursor)

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise Unavailable(
                f"{self.path} was opened before this process was forked; a DuckDB store belongs "
                "to one process: use a SQLite or PostgreSQL store for several"
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as fault:
            raise translate(fault, self.path) from fault

    @contextmanager
    def step(self, name: str, stopped: Callable[[], bool]) -> Iterator[DuckdbStep]:
        """The SQL of the step is not ours: what DuckDB says to it stays DuckDB's."""
        self._check_process()
        with self._translated():
            step = DuckdbStep(self, name, self.instance.cursor())
        try:
            yield step
        finally:
            step.end()

    # A caller's transaction

    def on_connection(
        self, connection: Any, work: Callable[[Transaction], T], *, notify: bool = True
    ) -> T:
        """The caller's transaction began outside the write lock, so `work` may only insert."""
        self._check_process()
        raw = raw_connection(connection)
        with self._translated():
            if not in_transaction(raw):
                raise WrongConnection(
                    "the connection has no open transaction; begin one (BEGIN) so that the run "
                    "exists exactly if you commit"
                )
            self._same_store(raw)
            try:
                return work(self._transaction("enqueueing.enqueue_on", raw))
            except BaseException:
                _poison(raw)
                raise

    def _same_store(self, connection: duckdb.DuckDBPyConnection) -> None:
        try:
            sql = f"SELECT value FROM {self.prefix}meta WHERE key = 'installation'"
            found = connection.execute(sql).fetchone()
        except duckdb.CatalogException:
            found = None
        mine = self.read(lambda tx: tx.all("all_meta"))
        if not found or {"key": "installation", "value": found[0]} not in mine:
            raise WrongConnection(
                f"the connection is not to this store ({self.path}); enqueue on a connection to it"
            )

    # Opening

    def migrate(self) -> list[str]:
        applied = []
        while self.schema_scripts.pending(self._meta()):
            applied += self.write("installation.migrate", self._migrate)
        return applied

    def _migrate(self, tx: Transaction) -> list[str]:
        """Apply a part of what is pending; nothing if another thread has done it."""
        assert isinstance(tx, DuckdbTransaction)
        meta = self._read_meta(tx.cursor)
        applied = apply(tx, self.schema_scripts.next_transaction(meta), tx.script)
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
        with self._reader() as cursor:
            return self._read_meta(cursor)

    def _read_meta(self, cursor: duckdb.DuckDBPyConnection) -> dict[str, str]:
        """What the store says of itself; nothing where there is no store."""
        known = cursor.execute(
            "SELECT 1 FROM duckdb_tables() WHERE database_name = current_database() "
            "AND schema_name = $schema AND table_name = 'meta'",
            {"schema": f"_{self.schema}_data"},
        ).fetchone()
        if not known:
            return {}
        return dict(cursor.execute(f"SELECT key, value FROM {self.prefix}meta").fetchall())

    def home(self) -> dict[str, str]:
        """Files move: only the `cluster` setting guards them."""
        return {}

    def facts(self) -> Row:
        told: Row = {"version": duckdb.__version__, "read_only": False}
        return told if self.in_memory else {**told, **file_facts(self.path, f"{self.path}.wal")}

    # Waking others in this process: there are no other processes

    def notify(self) -> None:
        """Nothing to send: whoever writes wakes the others."""

    def _wake_others(self) -> None:
        for wake in self.instance.listeners():
            if wake not in self._wakes:
                wake()

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wakes.append(wake)
        self.instance.listen(wake)

        def stop() -> None:
            if wake in self._wakes:
                self._wakes.remove(wake)
                self.instance.stop_listening(wake)

        return stop

    def close(self) -> None:
        if self._process != os.getpid() or self._closed:
            return
        with self.instance.write_lock:
            self._closed = True
            for wake in self._wakes:
                self.instance.stop_listening(wake)
            self._wakes = []
            while self._readers:
                self._readers.pop().close()
            self._writer.close()
        self.instance.close()


def _poison(connection: duckdb.DuckDBPyConnection) -> None:
    """Without savepoints our part cannot be undone alone: the caller cannot commit any of it."""
    with suppress(duckdb.Error):
        connection.execute("SELECT error('Rota could not enqueue: roll this transaction back')")
