"""PostgreSQL: one server, many processes on many machines.

Connections are in autocommit. A statement that is a whole transaction is one round trip; the
others begin and commit explicitly, in READ COMMITTED: every statement of ours names the state it
expects, and locks what it must not lose.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from rota.errors import Unavailable, WrongConnection, WrongSchema
from rota.storage.engine import Clock, Probe, Probed, Row, T, Transaction
from rota.storage.postgres.bind import array, bind
from rota.storage.postgres.callers import check_transaction, raw_connection
from rota.storage.postgres.connect import Address, check_schema_name
from rota.storage.postgres.faults import REPEATABLE, translate
from rota.storage.postgres.pool import Connection, Pool
from rota.storage.postgres.wake import Listener, Notifier, delivers
from rota.storage.statements import load_migrations, load_statements, parameters, to_pyformat

TRIES = 5
RETRY_SECONDS = 0.02
# Many processes may start at once; the others wait while one of them migrates.
MIGRATE_WAIT = "10min"

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresEngine:
    """`prepare=False` keeps all state out of the session: for use behind a transaction pooler."""

    name = "postgres"

    def __init__(
        self,
        url: str,
        *,
        schema: str = "rota",
        clock: Clock | None = None,
        probe: Probe | None = None,
        pool_size: int = 8,
        prepare: bool = True,
    ) -> None:
        self.url, self.schema = url, check_schema_name(schema)
        self.clock, self.probe = clock, probe
        self.address = Address(url, prepare=prepare)
        self.prefix = f'"{schema}_data".'
        self.channel = f"{schema}_wake"
        self.statements = {
            name: _Statement(sql)
            for name, sql in load_statements("postgres", self._substitutions).items()
        }
        self._pool = Pool(self.address.connect, size=pool_size)
        self._token = uuid.uuid4().hex  # marks our own notifications
        self._notifier = Notifier(self._send)
        self._listeners: list[Listener] = []
        self._delivers: bool | None = None
        self._installation: str | None = None
        self._ours: WeakSet[psycopg.Connection[Any]] = WeakSet()  # callers' connections, checked

    @property
    def _substitutions(self) -> dict[str, str]:
        now = "clock_timestamp()" if self.clock is None else ":now::timestamptz"
        return {
            "prefix": self.prefix,
            "views": f'"{self.schema}".',
            "now": now,
            "schema": self.schema,
        }

    # Transactions

    def read(self, work: Callable[[Transaction], T]) -> T:
        with self._translated(), self._pool.lend() as connection:
            connection.execute(_BEGIN_READ)
            try:
                answer = work(self._transaction("read", connection))
            except BaseException:
                _roll_back(connection)
                raise
            # Not a rollback: after one the driver forgets every statement it has prepared.
            connection.execute("COMMIT")
            return answer

    def write(self, name: str, work: Callable[[Transaction], T]) -> T:
        return self._again(lambda: self._write(name, work))

    def _write(self, name: str, work: Callable[[Transaction], T]) -> T:
        with self._pool.lend() as connection:
            connection.execute(_BEGIN)
            try:
                answer = work(self._transaction(name, connection))
                # A COMMIT of a failed transaction is a ROLLBACK, and no error.
                status = connection.info.transaction_status
                assert status == TransactionStatus.INTRANS, f"{name} went on after an error"
                self._at(name, "before")
            except BaseException:
                _roll_back(connection)
                raise
            self._commit(connection)
        self._at(name, "after")
        return answer

    def _commit(self, connection: Connection) -> None:
        try:
            connection.execute("COMMIT")
        except psycopg.Error as fault:
            raise self._uncertain(connection, fault) from fault

    def single(self, name: str, rows: Sequence[Mapping[str, object]]) -> list[Row]:
        if not rows:
            return []
        return self._single(name, name, lambda tx: tx._execute_many(name, rows))

    def single_all(self, name: str, statement: str, /, **params: object) -> list[Row]:
        """A transaction that is one statement with plain parameters, in one round trip."""
        return self._single(name, statement, lambda tx: tx._execute(statement, params))

    def _single(
        self, name: str, statement: str, work: Callable[[PostgresTransaction], list[Row]]
    ) -> list[Row]:
        # The statement is its own commit: until it is sent nothing has happened.
        self._at(name, "before", statement)
        self._at(name, "after", statement)
        self._at(name, "before")

        def execute() -> list[Row]:
            with self._pool.lend() as connection:
                try:
                    return work(self._transaction(name, connection))
                except psycopg.Error as fault:
                    raise self._uncertain(connection, fault) from fault

        answer = self._again(execute)
        self._at(name, "after")
        return answer

    def _uncertain(self, connection: Connection, fault: psycopg.Error) -> Exception:
        """Without an answer to a commit nobody knows; the caller must read to find out."""
        if not connection.broken:
            return fault
        lost = translate(fault, self.address.shown, self.address.role)
        if isinstance(lost, Unavailable):
            lost.maybe_committed = True
        return lost

    def _again(self, attempt: Callable[[], T]) -> T:
        """Repeat what the server undid because of another transaction."""
        with self._translated():
            for tried in range(1, TRIES):
                try:
                    return attempt()
                except psycopg.Error as fault:
                    if fault.sqlstate not in REPEATABLE:
                        raise
                time.sleep(random.uniform(0, RETRY_SECONDS * 2**tried))
            return attempt()

    def _at(self, name: str, side: str, point: str = "commit") -> None:
        if self.probe is not None:
            self.probe(f"{name}.{point}.{side}")

    def _transaction(self, name: str, connection: psycopg.Connection[Any]) -> PostgresTransaction:
        return PostgresTransaction(self, name, connection)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as fault:
            raise translate(fault, self.address.shown, self.address.role) from fault

    # A caller's transaction

    def on_connection(
        self, connection: Any, work: Callable[[Transaction], T], *, notify: bool = True
    ) -> T:
        """Serialization failures and deadlocks stay psycopg's: the caller's retry knows them."""
        raw = raw_connection(connection)
        check_transaction(raw)
        mine = self._installed()
        transaction = self._transaction("enqueue_on", raw)
        try:
            with transaction.savepoint():
                if raw not in self._ours:
                    self._same_store(transaction, mine)
                answer = work(transaction)
                if notify:
                    transaction.script(f'NOTIFY "{self.channel}"')
        except psycopg.Error as fault:
            if fault.sqlstate in REPEATABLE:
                raise
            raise translate(fault, self.address.shown, raw.info.user) from fault
        self._ours.add(raw)
        return answer

    def _installed(self) -> str:
        if self._installation is None:
            known = {row["key"]: row["value"] for row in self.read(lambda tx: tx.all("all_meta"))}
            self._installation = str(known["installation"])
        return self._installation

    def _same_store(self, transaction: PostgresTransaction, mine: str) -> None:
        try:
            known = {row["key"]: row["value"] for row in transaction.all("all_meta")}
        except (psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege):
            known = {}
        if known.get("installation") != mine:
            raise WrongConnection(
                f"the connection is not to this store ({self.address.shown}, "
                f"schema {self.schema}); enqueue on a connection to it"
            )

    # Opening

    def migrate(self) -> list[str]:
        applied = []
        for number, name, sql in load_migrations("postgres", self._substitutions):
            if self.write("migrate", partial(self._migrate, number=number, sql=sql)):
                applied.append(f"{number:04}_{name}")
        return applied

    def _migrate(self, tx: Transaction, number: int, sql: str) -> bool:
        """One migration in its own transaction; False if somebody else has applied it."""
        assert isinstance(tx, PostgresTransaction)
        tx.script(f"SET LOCAL lock_timeout = '{MIGRATE_WAIT}'")
        tx.text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))", {"name": self.prefix})
        if tx.version() >= number:
            return False
        tx.script(sql)
        tx.all("set_meta", key="schema_version", value=str(number))
        if number == 1:
            for key, value in {"installation": str(uuid.uuid4()), **_home(tx)}.items():
                tx.all("set_meta", key=key, value=value)
        return True

    def pending_migrations(self) -> list[tuple[str, str]]:
        current = self._version()
        return [
            (f"{number:04}_{name}", sql)
            for number, name, sql in load_migrations("postgres", self._substitutions)
            if number > current
        ]

    def check_schema(self) -> None:
        """Refuse a store that this version of Rota does not understand."""
        current, shown = self._version(), self.address.shown
        newest = load_migrations("postgres", self._substitutions)[-1][0]
        if current == 0:
            raise WrongSchema(
                f"{shown} holds no Rota store in schema {self.schema} yet; run `rota migrate`"
            )
        if current < newest:
            raise WrongSchema(
                f"{shown} has schema {current}, this Rota needs {newest}; run `rota migrate`"
            )
        if current > newest:
            raise WrongSchema(
                f"{shown} has schema {current}, made by a newer Rota (this one knows {newest}); "
                "upgrade Rota on this machine"
            )

    def _version(self) -> int:
        def read(tx: Transaction) -> int:
            assert isinstance(tx, PostgresTransaction)
            return tx.version()

        return self.read(read)

    def home(self) -> dict[str, str]:
        return self.read(lambda tx: _home(tx))  # type: ignore[arg-type]

    # Waking other processes

    @property
    def has_wake_channel(self) -> bool:
        """Tried once: behind a transaction pooler LISTEN is accepted and never answered."""
        if self._delivers is None:
            self._delivers = delivers(self.address.connect, self.channel, self._send)
        return self._delivers

    def notify(self) -> None:
        self._notifier.notify()

    def _send(self, payload: str | None = None) -> None:
        with self._pool.lend() as connection:
            told = self._token if payload is None else payload
            connection.execute("SELECT pg_notify(%s, %s)", (self.channel, told))

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        listener = Listener(self.address.connect, self.channel, wake, ignore=self._token)
        self._listeners.append(listener)
        listener.start()
        return listener.stop

    def close(self) -> None:
        for listener in self._listeners:
            listener.stop()
        self._notifier.close()
        self._pool.close()


class PostgresTransaction(Probed):
    def __init__(
        self, engine: PostgresEngine, name: str, connection: psycopg.Connection[Any]
    ) -> None:
        super().__init__(name, engine.probe)
        self.engine = engine
        # Our own kind of cursor, whatever the owner of the connection prefers.
        self.cursor = psycopg.Cursor(connection, row_factory=dict_row)
        self.cursor.format = psycopg.pq.Format.BINARY
        self.now = None if engine.clock is None else bind(engine.clock())

    def _execute(self, name: str, params: Mapping[str, object]) -> list[Row]:
        statement = self.engine.statements[name]
        return self._rows(statement, {key: bind(params[key]) for key in statement.names})

    def _execute_many(self, name: str, rows: Sequence[Mapping[str, object]]) -> list[Row]:
        statement = self.engine.statements[name]
        return self._rows(
            statement, {key: array([row[key] for row in rows]) for key in statement.names}
        )

    def _rows(self, statement: _Statement, bound: dict[str, str | None]) -> list[Row]:
        bound["now"] = self.now
        self.cursor.execute(statement.sql, bound)
        return self.cursor.fetchall() if self.cursor.description is not None else []

    def text(self, sql: str, params: Mapping[str, object]) -> None:
        self.cursor.execute(to_pyformat(sql), params)

    def script(self, sql: str) -> None:
        """Any number of statements without parameters or answers."""
        self.cursor.connection.execute(sql, prepare=False)

    def version(self) -> int:
        """The schema's number; 0 where there is no store yet."""
        found = self.cursor.execute(
            "SELECT to_regclass(%s) IS NOT NULL AS known", (f"{self.engine.prefix}meta",)
        ).fetchone()
        if not found or not found["known"]:
            return 0
        known = {row["key"]: row["value"] for row in self.all("all_meta")}
        return int(known.get("schema_version", 0))

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self.script("SAVEPOINT rota")
        try:
            yield
        except BaseException:
            if not self.cursor.connection.broken:
                self.script("ROLLBACK TO rota; RELEASE rota")
            raise
        self.script("RELEASE rota")


class _Statement:
    """SQL as the driver takes it, and the parameters that a caller must bring."""

    __slots__ = ("names", "sql")

    def __init__(self, sql: str) -> None:
        self.sql = to_pyformat(sql).encode()
        self.names = tuple(name for name in parameters(sql) if name != "now")


def _roll_back(connection: Connection) -> None:
    """Undo. A connection that cannot even do that is not used again."""
    try:
        connection.execute("ROLLBACK")
    except psycopg.Error:
        connection.close()


def _home(tx: PostgresTransaction) -> dict[str, str]:
    """The server and database a store was made in, so that a copy of it can be told apart."""
    try:
        with tx.savepoint():
            tx.cursor.execute(
                "SELECT system_identifier::text, current_database()::text AS database "
                "FROM pg_control_system()"
            )
            found = tx.cursor.fetchone()
    except psycopg.errors.InsufficientPrivilege:
        return {}
    return {} if found is None else {key: str(value) for key, value in found.items()}
