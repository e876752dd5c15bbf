"""No statement reaches a database without a crash point around it, and no call is left out.

Three steps make that complete: operations send statements only by a transaction, and the store
reaches the engine only by its entries; everything that an entry sends lies between two points; and
each operation that writes has a place in the campaign, or a reason why not.
"""

from __future__ import annotations

import ast
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import rota
from rota.model.outcome import Outcome
from rota.model.outcome import settle as decide
from rota.model.retry import ONCE
from rota.model.run import NewRun
from rota.storage import operations
from rota.storage.operation import point_name
from rota.storage.postgres.session import Session, Statement
from rota.storage.store import Store, open_store
from tests.conformance.support import sweep
from tests.fault.parts import AT_THE_BEGINNING, AT_THE_END, EVERYDAY, NOT_MET, OPERATORS, STEPS
from tests.fault.points import scripts_have_points

SOURCE = Path(rota.__file__).parent
STORAGE = SOURCE / "storage"
OPERATIONS = sorted((STORAGE / "operations").glob("*.py"))
STORES = [STORAGE / name for name in ("store.py", "inside.py", "steps.py")]
STORES += [STORAGE / "postgres" / "fast_paths.py"]

# How the store may reach the database, and what it may ask without a statement being sent.
ENTRIES = {
    "read", "peek", "write", "write_single", "single_tuples", "single_bound", "on_connection",
    "step",
}  # fmt: skip
ASKED = {
    "migrate", "pending_migrations", "check_schema", "home", "blocked_within", "notify", "listen",
    "has_wake_channel", "close", "one_writer", "name", "select", "facts", "grant_roles",
    "roles_sql", "pooled", "caller_holds_writes",
}  # fmt: skip
STATEMENTS = {"one", "all", "many", "tuples", "values", "columns", "changed", "text", "savepoint"}
NO_STATEMENTS = {
    "writes_alone",
    "knows",
    "notify",
    "wait_briefly",
    "blocked_within",
    "answers_request",
}
# What is said to the session or about the transaction changes no row.
CONTROL = re.compile(
    r"\s*(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|SET|PRAGMA|LISTEN|NOTIFY"
    r"|SELECT (pg_notify|set_config))",
    re.I,
)


def attributes(paths: Iterable[Path]) -> Iterator[tuple[str, str, str]]:
    """Of what, which one, and where."""
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                yield ast.unparse(node.value), node.attr, f"{path.name}:{node.lineno}"


def test_operations_send_statements_only_by_their_transaction() -> None:
    strange = [
        f"{where} {of}.{name}"
        for of, name, where in attributes(OPERATIONS)
        if (of == "tx" and name not in STATEMENTS | NO_STATEMENTS) or "engine" in of
    ]
    assert not strange, "a way to the database without a crash point: " + ", ".join(strange)


def test_the_store_reaches_the_engine_only_by_entries_that_have_points() -> None:
    strange = [
        f"{where} {of}.{name}"
        for of, name, where in attributes(STORES)
        if of in ("self.engine", "store.engine") and name not in ENTRIES | ASKED
    ]
    assert not strange, "a way to the database without a crash point: " + ", ".join(strange)


def written() -> set[str]:
    """The point names of all operations that the program writes by."""
    found = {"installation.migrate", "installation.grant_roles", "enqueueing.enqueue_on"}
    found |= {"steps.step", "steps.finish_step", "steps.has_mark", "enqueueing.ensure_queues"}
    for path in SOURCE.rglob("*.py"):
        for call in re.findall(r"\.write\(\s*operations\.(\w+)", path.read_text()):
            found.add(point_name(getattr(operations, call)))
    return found


def test_every_call_has_a_place_in_the_campaign() -> None:
    known = {*EVERYDAY, *AT_THE_BEGINNING, *AT_THE_END, *OPERATORS, *STEPS, *NOT_MET}
    assert written() == known


# What the entries send


class Witness:
    """Points and statements, in the order in which they came."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def point(self, name: str) -> None:
        self.seen.append(("point", name))

    def statement(self, sql: str) -> None:
        self.seen.append(("statement", sql))

    def check(self) -> int:
        """How many statements lay between two points of their own."""
        inside, counted = "", 0
        for kind, text in self.seen:
            if kind == "point":
                name, _, side = text.rpartition(".")
                inside = name if side == "before" else ""
            elif not CONTROL.match(text):
                assert inside, f"no crash point around: {text}"
                counted += 1
            elif text.strip().upper() == "COMMIT" and counted:
                assert inside.endswith(".commit") or inside == "", f"{inside}: {text}"
        return counted


@pytest.fixture
def witness(database: str, monkeypatch: pytest.MonkeyPatch) -> Witness:
    witness = Witness()
    connect = sqlite3.connect

    def connect_traced(*given: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*given, **options)
        connection.set_trace_callback(witness.statement)
        return connection

    execute = psycopg.Cursor.execute

    def execute_traced(cursor: Any, sql: Any, *given: Any, **options: Any) -> Any:
        witness.statement(sql.decode() if isinstance(sql, bytes) else sql)
        return execute(cursor, sql, *given, **options)

    run, simple = Session.run, Session.simple

    def run_traced(session: Session, statement: Statement, bound: Any, then: Any = None) -> Any:
        witness.statement(statement.numbered.decode())
        return run(session, statement, bound, then)

    def simple_traced(session: Session, sql: bytes) -> None:
        witness.statement(sql.decode())
        simple(session, sql)

    monkeypatch.setattr(sqlite3, "connect", connect_traced)
    monkeypatch.setattr(psycopg.Cursor, "execute", execute_traced)
    monkeypatch.setattr(Session, "run", run_traced)
    monkeypatch.setattr(Session, "simple", simple_traced)
    return witness


def new_run(number: int, **options: Any) -> NewRun:
    return NewRun(
        id=f"00000000-0000-4000-8000-{number:012}", job="job", queue="queue", args="{}", **options
    )


def claim_and(store: Store, act: Callable[[Any], object]) -> None:
    lease = timedelta(seconds=30)
    act(store.write(operations.claim, "worker", queues=[], jobs=["job"], limit=10, lease=lease))


def settle(store: Store, kind: str) -> Callable[[Any], object]:
    told = Outcome(kind=kind)
    return lambda runs: store.write(
        operations.settle, [decide(run, told, retry=ONCE, max_lost=3) for run in runs]
    )


def in_order(store: Store) -> None:
    """A way through every entry."""
    store.write(operations.ensure_queues, ["queue"])
    store.write(operations.enqueue, [new_run(1), new_run(2)])
    claim_and(store, settle(store, "succeeded"))
    store.write(
        operations.enqueue,
        [new_run(3, key="key", concurrency_key="one"), new_run(4, delay=timedelta(1))],
    )
    claim_and(
        store,
        lambda runs: store.write(
            operations.renew, [(run.seq, run.attempt) for run in runs], timedelta(1)
        ),
    )
    store.write(operations.release_forgotten_runs, "worker", [])
    claim_and(store, settle(store, "failed"))
    store.write(operations.promote, 10)
    sweep(store, 10)
    store.read(operations.expired_runs, 10)
    store.write(operations.prune_runs, "succeeded", age_seconds=0, keep_last=0, limit=10)
    store.read(operations.list_runs, limit=10)


def test_what_an_entry_sends_lies_between_points(database: str, witness: Witness) -> None:
    with scripts_have_points():
        store = open_store(database, probe=witness.point)
        store.migrate()
        witness.seen.clear()  # it asks for the version first, which changes nothing
        in_order(store)
    assert witness.check() > 20
    store.close()


def test_a_statement_without_a_point_is_noticed(database: str, witness: Witness) -> None:
    store = open_store(database, probe=witness.point)
    store.migrate()
    witness.seen.clear()
    store.engine.read(lambda tx: tx.text("SELECT 1", {}))
    with pytest.raises(AssertionError, match="no crash point"):
        witness.check()
    store.close()
