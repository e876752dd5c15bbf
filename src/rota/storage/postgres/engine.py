"""PostgreSQL: one server, many processes on many machines.

Connections are in autocommit. A statement that is a whole transaction is one round trip; the
others begin and commit explicitly, in READ COMMITTED: every statement of ours names the state it
expects, and locks what it must not lose.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus

from rota.errors import Unavailable, WrongConnection
from rota.model.schedule import WAITING_FOR_RUN
from rota.storage.engine import Clock, Probe, Row, T, Transaction
from rota.storage.postgres.bind import bind
from rota.storage.postgres.callers import check_transaction, raw_connection
from rota.storage.postgres.connect import LOCK_TIMEOUT, Address
from rota.storage.postgres.faults import REPEATABLE, translate
from rota.storage.postgres.pool import Lent, Pool
from rota.storage.postgres.session import STALE_PLAN, Session, Statement
from rota.storage.postgres.step import PostgresStep, begin_step
from rota.storage.postgres.transaction import PostgresTransaction, SingleStatement
from rota.storage.postgres.wake import EXIT_SECONDS, Listener, Notifier, delivers
from rota.storage.schema import Schema, apply
from rota.storage.statements import Statements, load_script, load_statements

if TYPE_CHECKING:
    from rota.model.result import Result

TRIES = 5
RETRY_SECONDS = 0.02
# Many processes may start at once; the others wait while one of them migrates.
MIGRATE_TIMEOUT = "10min"
# Somebody waits for these by the millisecond: they never wait for another one's connection. The
# rest shares: loops that all look at once when a process starts need one connection, not five.
URGENT = frozenset(
    {
        "claiming.claim",
        "claiming.release_forgotten_runs",
        "claiming.renew",
        "settling.settle",
        "settling.held_elsewhere",
        "firing.fire",
        "firing.fire_known",
        "firing.fire_group",
        "firing.due_schedules",
        "firing.due_group",
        "firing.next_fire_at",
        "enqueueing.enqueue",
        "installation.read_clock",
    }
)
# Operations with a connection of their own, on which their statement is planned once.
OWN = frozenset({"claiming.claim", "settling.settle"})

ROLES = "roles"  # a key of `meta`: this store has them

_BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_READ = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresEngine:
    """`prepare=False` keeps all state but the time zone out of the session, as is done behind any
    pooler; transactions are set as ours are even so. `fast_paths=False` leaves out the statements
    of fast_paths.sql."""

    name = "postgres"
    one_writer = False
    caller_holds_writes = False

    def __init__(
        self,
        url: str,
        *,
        schema: str = "rota",
        clock: Clock | None = None,
        probe: Probe | None = None,
        pool_size: int = 8,
        prepare: bool = True,
        fast_paths: bool = True,
    ) -> None:
        self.url, self.schema = url, schema
        self.clock, self.probe = clock, probe
        self.address = Address(url, prepare=prepare)
        self.prefix = f'"{schema}_data".'
        self.channel = f"{schema}_wake"
        more = ("fast_paths.sql",) if fast_paths else ()
        texts = load_statements("postgres", self._substitutions, *more)
        self.statements = Statements(texts, Statement)
        self.schema_scripts = Schema(
            "postgres",
            {
                **self._substitutions,
                "runs": f"{self.prefix}runs r LEFT JOIN {self.prefix}run_ids n USING (id, seq)",
                "run_id": "n.id",
                "far": f"'{WAITING_FOR_RUN.isoformat(' ')}'",
            },
            shown=self.address.shown,
            place=f" in schema {schema}",
            anew=f"drop the schemas {schema} and {schema}_data with all in them",
        )
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
        return self._read(work)

    def peek(self, name: str, work: Callable[[Transaction], T]) -> T:
        with self.translated(), self._lend(name) as connection:
            return work(self._transaction("read", connection))

    def _read(self, work: Callable[[PostgresTransaction], T]) -> T:
        with self.translated(), self._pool.lend(patient=True) as connection:
            connection.begin(_BEGIN_READ)
            try:
                answer = work(self._transaction("read", connection))
            except BaseException:
                _roll_back(connection)
                raise
            connection.simple(b"COMMIT")
            return answer

    def write(self, name: str, work: Callable[[Transaction], T]) -> T:
        return self._again(lambda: self._write(name, work))

    def _write(self, name: str, work: Callable[[Transaction], T]) -> T:
        with self._lend(name) as connection:
            connection.begin(_BEGIN)
            try:
                transaction = self._transaction(name, connection)
                answer = work(transaction)
                # A COMMIT of a failed transaction is a ROLLBACK, and no error.
                status = connection.pgconn.transaction_status
                assert status == TransactionStatus.INTRANS, f"{name} went on after an error"
                self._at(name, "before")
            except BaseException:
                _roll_back(connection)
                raise
            self._commit(connection)
        self._at(name, "after")
        if transaction.wakes_others:
            self.notify()
        return answer

    def write_single(self, name: str, work: Callable[[Transaction], T]) -> T:
        sent: list[SingleStatement] = []

        def attempt() -> T:
            with self._lend(name) as connection:
                sent.append(SingleStatement(self, name, connection))
                return work(sent[-1])

        answer = self._again(attempt)
        if sent[-1].is_sent:
            self._at(name, "after")
        return answer

    def _lend(self, name: str) -> Lent:
        return self._pool.lend(patient=name not in URGENT, verb=name if name in OWN else None)

    def _commit(self, connection: Session) -> None:
        try:
            connection.simple(b"COMMIT")
        except psycopg.Error as fault:
            self.raise_uncertain(connection, fault)
            raise

    def single_tuples(self, name: str, statement: str, /, **params: object) -> list[Any]:
        """A transaction that is one statement with plain parameters, in one round trip."""
        return self.write_single(name, lambda tx: tx.tuples(statement, **params))

    def single_bound(
        self,
        name: str,
        statement: str,
        bound: dict[str, str | None],
        *,
        made: int,
        notify: bool,
        quietly: str | None = None,
    ) -> None:
        """The same with parameters that are PostgreSQL's text already, for so many runs. With
        `notify` others are told in the same round trip, unless they were told just now; then
        `quietly` does the same without an answer."""
        number = self._notifier.may_send() if notify else None
        if number is None:
            self._send_bound(name, quietly or statement, bound, None)
            if notify:
                self._notifier.notify(made)
            return
        answer = self._send_bound(name, statement, bound, self._told())
        self._notifier.sent(number, made=made, seq=answer[0][0] if answer else None)

    def _send_bound(
        self, name: str, statement: str, bound: dict[str, str | None], then: bytes | None
    ) -> list[tuple[Any, ...]]:
        asked = self.statements[statement]
        bound["now"] = None if self.clock is None else bind(self.clock())

        def send(connection: Session) -> list[tuple[Any, ...]]:
            result = connection.run(asked, bound, then)
            if then is not None and connection.closed:
                self.was_kept_waiting()
            return connection.tuples(result)

        def work(tx: Transaction) -> list[tuple[Any, ...]]:
            assert isinstance(tx, SingleStatement)
            return tx.send(statement, send)

        return self.write_single(name, work)

    def raise_uncertain(self, connection: Session, fault: psycopg.Error) -> None:
        """Without an answer to a commit nobody knows; the caller must read to find out."""
        if connection.broken:
            lost = translate(fault, self.address.shown, self.address.role, self.schema)
            if isinstance(lost, Unavailable):
                lost.maybe_committed = True
            raise lost from fault

    def _again(self, attempt: Callable[[], T]) -> T:
        """Repeat what the server undid because of another transaction, or of a plan grown stale."""
        try:
            return attempt()
        except psycopg.Error as fault:
            first = fault
        with self.translated():
            return self._once_more(attempt, first)

    def _once_more(self, attempt: Callable[[], T], fault: psycopg.Error) -> T:
        for tried in range(1, TRIES):
            if fault.sqlstate not in REPEATABLE | STALE_PLAN:
                raise fault
            time.sleep(random.uniform(0, RETRY_SECONDS * 2**tried))
            try:
                return attempt()
            except psycopg.Error as next_fault:
                fault = next_fault
        raise fault

    def _at(self, name: str, side: str) -> None:
        if self.probe is not None:
            self.probe(f"{name}.commit.{side}")

    def _transaction(self, name: str, connection: psycopg.Connection[Any]) -> PostgresTransaction:
        return PostgresTransaction(self, name, connection)

    def translated(self) -> Translated:
        return Translated(self)

    def select(self, sql: str, *, limit: int, seconds: float) -> Result:
        from rota.storage.postgres.select import select

        return select(self.address, sql, schema=self.schema, limit=limit, seconds=seconds)

    # Steps

    @contextmanager
    def step(self, name: str, stopped: Callable[[], bool]) -> Iterator[PostgresStep]:
        # Not from the pool: whatever its SQL sets ends with this session.
        connection = self.address.connect(ours=False)
        try:
            with self.translated():
                begin_step(connection)
            yield PostgresStep(self, name, connection)
        finally:
            connection.close()

    # A caller's transaction

    def on_connection(
        self, connection: Any, work: Callable[[Transaction], T], *, notify: bool = True
    ) -> T:
        """Serialization failures and deadlocks stay psycopg's: the caller's retry knows them."""
        raw = raw_connection(connection, self.schema)
        check_transaction(raw)
        mine = self._installed()
        transaction = self._transaction("enqueueing.enqueue_on", raw)
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
            raise translate(fault, self.address.shown, raw.info.user, self.schema) from fault
        self._ours.add(raw)
        return answer

    def _installed(self) -> str:
        if self._installation is None:
            self._installation = self._read(PostgresTransaction.meta)["installation"]
        return self._installation

    def _same_store(self, transaction: PostgresTransaction, mine: str) -> None:
        try:
            known = transaction.meta()
        except psycopg.errors.UndefinedTable:
            known = {}
        if known.get("installation") != mine:
            raise WrongConnection(
                f"the connection is not to this store ({self.address.shown}, "
                f"schema {self.schema}); enqueue on a connection to it"
            )

    # Opening

    def migrate(self) -> list[str]:
        applied = []
        while self.schema_scripts.pending(self._meta()):
            applied += self.write("installation.migrate", self._migrate)
        return applied

    def _migrate(self, tx: Transaction) -> list[str]:
        """Apply a part of what is pending; nothing if another process has done it."""
        assert isinstance(tx, PostgresTransaction)
        tx.script(f"SET LOCAL lock_timeout = '{MIGRATE_TIMEOUT}'")
        tx.text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))", {"name": self.prefix})
        tx.script(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        meta = tx.meta_if_there()
        applied = apply(tx, self.schema_scripts.next_transaction(meta), tx.script)
        if "installation" not in meta:
            for key, value in {"installation": str(uuid.uuid4()), **tx.home()}.items():
                tx.all("set_meta", key=key, value=value)
        if applied and ROLES in meta:
            tx.script(self.roles_sql)  # what is new has no grants yet
        return applied

    @property
    def roles_sql(self) -> str:
        return load_script("postgres", "roles.sql", self._substitutions)

    def grant_roles(self) -> None:
        """Make the roles of viewers, operators and workers, and give them what they may."""

        def work(tx: Transaction) -> None:
            assert isinstance(tx, PostgresTransaction)
            tx.script(self.roles_sql)
            tx.all("set_meta", key=ROLES, value="on")

        self.write("installation.grant_roles", work)

    def pending_migrations(self) -> list[tuple[str, str]]:
        return [(script.name, script.sql) for script in self.schema_scripts.pending(self._meta())]

    @property
    def pooled(self) -> bool:
        """Whether sessions are a pooler's: what is sent alone has none of our settings."""
        return self.address.pooled

    def check_schema(self) -> None:
        """Refuse a store that this version of Rota does not understand."""
        self.schema_scripts.check(self._meta())

    def _meta(self) -> dict[str, str]:
        # Without a transaction, which would be two round trips more: only meta is read.
        with self.translated(), self._pool.lend() as connection:
            return self._transaction("read", connection).meta_if_there()

    def home(self) -> dict[str, str]:
        return self._read(PostgresTransaction.home)

    def facts(self) -> Row:
        def look(tx: Transaction) -> Row:
            return {
                **(tx.one("server_facts") or {}),
                "dead_rows": tx.all("dead_rows"),
                "long_transactions": tx.all("long_transactions"),
            }

        return self.peek("facts", look)

    # Waking other processes

    @property
    def has_wake_channel(self) -> bool:
        """Tried once: behind a transaction pooler LISTEN is accepted and never answered."""
        if self._delivers is None:
            # Both connections stay in the pool: a process that is to work finds them open.
            self._delivers = delivers(self._pool.lend, self.channel, self._send)
        return self._delivers

    def blocked_within(self, seconds: float) -> bool:
        return False

    def notify(self) -> None:
        self._notifier.notify()

    def was_kept_waiting(self) -> None:
        """Somebody else's NOTIFY waits, and all others behind it; or ours was lost."""
        self._notifier.keep_to_thread()
        self._notifier.notify()

    def _send(self, payload: str | None = None) -> None:
        with self._pool.lend() as connection:
            connection.simple(self._told(payload))

    def _told(self, payload: str | None = None) -> bytes:
        """It changes no row, so that the server does not wait for its disk either."""
        # Neither name nor payload is anybody's text: a checked schema, and hexadecimal digits.
        return f"""NOTIFY "{self.channel}", '{payload or self._token}'""".encode()

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        listener = Listener(self.address.connect, self.channel, wake, ignore=self._token)
        self._listeners.append(listener)
        listener.start()
        return listener.stop

    def close(self) -> None:
        for listener in self._listeners:
            listener.stop()
        self._notifier.close(EXIT_SECONDS)
        self._pool.close()


def _roll_back(connection: Session) -> None:
    """Undo. A connection that cannot even do that is not used again."""
    try:
        connection.simple(b"ROLLBACK")
    except psycopg.Error:
        connection.close()


class Translated:
    """What the driver raises in this block is raised as our own. A class, as it is entered for
    every look: a generator takes three times as long."""

    __slots__ = ("_engine",)

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: object, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(fault, psycopg.Error):
            engine = self._engine
            shown, role = engine.address.shown, engine.address.role
            raise translate(fault, shown, role, engine.schema) from fault
