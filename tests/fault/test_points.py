"""No statement reaches a database without a crash point around it, and no call is left out.

Three steps make that complete: scripts reach the engine only by its entries; everything that an
entry sends lies between two points; and each call that the entries are given has a place in the
campaign, or a reason why not.
"""

from __future__ import annotations

import ast
import re
import sqlite3
from collections.abc import Callable, Iterator
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
from rota.storage.postgres.session import Session, Statement
from rota.storage.store import Store, open_store
from tests.fault.parts import AT_THE_BEGINNING, AT_THE_END, EVERYDAY, OPERATORS, STEPS
from tests.fault.points import scripts_have_points

STORAGE = Path(rota.__file__).parent / "storage"
SCRIPTS = [*sorted((STORAGE / "scripts").glob("*.py")), STORAGE / "store.py"]
SCRIPTS += [STORAGE / "postgres" / "store.py"]

# How a script may reach the database, and what it may ask without a statement being sent.
ENTRIES = {
    "read",
    "look",
    "write",
    "single",
    "single_columns",
    "single_tuples",
    "single_bound",
    "on_connection",
    "step",
}
ASKED = {
    "migrate", "pending_migrations", "check_schema", "home", "blocked_within", "notify", "listen",
    "has_wake_channel", "close", "one_writer", "statements", "name", "select", "facts",
    "grant_roles", "roles_sql", "pooled",
}  # fmt: skip
STATEMENTS = {"one", "all", "many", "tuples", "values", "columns", "changed", "text", "savepoint"}
NAMED_BY_CALLERS = {"statement": {"resume_run"}, "action": {"record_action"}}
# What is said to the session or about the transaction changes no row.
CONTROL = re.compile(
    r"\s*(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|SET|PRAGMA|LISTEN|NOTIFY"
    r"|SELECT (pg_notify|set_config))",
    re.I,
)


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in SCRIPTS:
        yield path, ast.parse(path.read_text())


def test_scripts_reach_the_database_only_by_entries_that_have_points() -> None:
    strange = []
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                asked = ast.unparse(node.value)
                if asked == "self.engine" and node.attr not in ENTRIES | ASKED:
                    strange.append(f"{path.name}:{node.lineno} self.engine.{node.attr}")
                if asked == "tx" and node.attr not in STATEMENTS:
                    strange.append(f"{path.name}:{node.lineno} tx.{node.attr}")
    assert not strange, "a way to the database without a crash point: " + ", ".join(strange)


def named_calls() -> set[str]:
    """The name of every transaction that writes."""
    found = set()
    for _, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                entry, on = node.func.attr, ast.unparse(node.func.value)
                if on == "self.engine" and entry in ENTRIES - {"read", "look", "on_connection"}:
                    name = node.args[0]
                    if isinstance(name, ast.Constant):
                        found.add(name.value)
                    else:
                        assert ast.unparse(name) in NAMED_BY_CALLERS, ast.unparse(node)
    return found.union({"migrate", "enqueue_on"}, *NAMED_BY_CALLERS.values())


def test_every_call_has_a_place_in_the_campaign() -> None:
    known = {*EVERYDAY, *AT_THE_BEGINNING, *AT_THE_END, *OPERATORS, *STEPS}
    assert named_calls() == known


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
    act(store.claim("worker", queues=[], jobs=["job"], limit=10, lease=lease))


def settle(store: Store, kind: str) -> Callable[[Any], object]:
    told = Outcome(kind=kind)
    return lambda runs: store.settle([decide(run, told, retry=ONCE, max_lost=3) for run in runs])


def in_order(store: Store) -> None:
    """A way through every entry."""
    store.ensure_queues(["queue"])
    store.enqueue([new_run(1), new_run(2)])
    claim_and(store, settle(store, "succeeded"))
    store.enqueue([new_run(3, key="key", concurrency_key="one"), new_run(4, delay=timedelta(1))])
    claim_and(
        store, lambda runs: store.renew([(run.seq, run.attempt) for run in runs], timedelta(1))
    )
    store.let_go_unknown("worker", [])
    claim_and(store, settle(store, "failed"))
    store.promote(10)
    store.sweep(10)
    store.expired_runs(10)
    store.prune_runs("succeeded", age_seconds=0, keep_last=0, limit=10)
    store.list_runs(limit=10)


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
