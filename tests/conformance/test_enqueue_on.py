"""Enqueue on a caller's connection: the run exists exactly if the caller commits."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import duckdb
import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy.orm import Session

from rota.errors import Invalid, StaleSnapshot, StorageError, Unavailable, WrongConnection
from rota.storage import operations
from rota.storage.store import Store, open_store
from tests.conformance.support import (
    DuckdbPlace,
    Place,
    PostgresPlace,
    SqlitePlace,
    VirtualClock,
    all_runs,
    claim,
    claim_one,
    enqueue,
    enqueue_many,
    new_run,
    put_job,
    put_schedule,
    settle,
    slots,
    states,
    tick,
)
from tests.support.stores import STORE_FIXTURES, Stores

Begin = Callable[[], Any]


def key_for(store: Store, key: str = "k") -> str | None:
    """An idempotency key, where a caller's transaction may carry one."""
    return None if store.engine.name == "duckdb" else key


@pytest.fixture(params=["driver", "sqlalchemy connection", "sqlalchemy session"])
def begin(request: pytest.FixtureRequest, place: Place) -> Begin:
    """Begin a transaction as one of the clients that people use."""
    if place.engine == "duckdb" and request.param != "driver":
        pytest.skip("SQLAlchemy itself does not speak to DuckDB")

    def connection() -> Any:
        opened = place.keep(place.sqlalchemy().connect())
        opened.begin()
        return opened

    def session() -> Any:
        opened = place.keep(Session(place.sqlalchemy()))
        opened.connection()
        return opened

    clients = {
        "driver": place.begin,
        "sqlalchemy connection": connection,
        "sqlalchemy session": session,
    }
    return clients[request.param]


def test_a_commit_gives_a_run(store: Store, begin: Begin) -> None:
    caller = begin()
    (made,) = store.enqueue_on(caller, [new_run(args='{"n":1}')])
    assert all_runs(store) == []  # nobody else sees it yet
    caller.commit()
    run = claim_one(store)
    assert (run.id, json.loads(run.args)) == (made.id, {"n": 1})
    assert made.created


def test_a_rollback_leaves_nothing(store: Store, begin: Begin) -> None:
    caller = begin()
    key = key_for(store)
    store.enqueue_on(caller, [new_run(), new_run(key=key), new_run(concurrency_key="c")])
    caller.rollback()
    assert all_runs(store) == []
    assert store.write(operations.enqueue, [new_run(key=key)])[0].created


def test_the_callers_own_rows_commit_with_the_run(store: Store, place: Place, begin: Begin) -> None:
    place.execute("CREATE TABLE orders (id INTEGER)")
    for end in ("rollback", "commit"):
        caller = begin()
        store.enqueue_on(caller, [new_run()])
        raw = caller.connection() if isinstance(caller, Session) else caller
        getattr(raw, "exec_driver_sql", raw.execute)("INSERT INTO orders VALUES (7)")
        getattr(caller, end)()
    assert place.execute("SELECT id FROM orders") == [(7,)]
    assert len(all_runs(store)) == 1


def test_a_key_returns_the_first_run_also_on_a_callers_connection(
    store: Store, begin: Begin
) -> None:
    if store.engine.name == "duckdb":
        pytest.skip("refused there: a transaction does not see what others insert meanwhile")
    first = enqueue(store, key="k")
    caller = begin()
    old, new, same = store.enqueue_on(
        caller, [new_run(key="k"), new_run(key="l"), new_run(key="l")]
    )
    caller.commit()
    assert (old.id, old.created) == (first, False)
    assert (new.created, same.created) == (True, False)
    assert same.id == new.id
    assert len(all_runs(store)) == 2


def test_a_keyed_run_takes_no_slot_until_it_is_admitted(store: Store, begin: Begin) -> None:
    caller = begin()
    (made,) = store.enqueue_on(caller, [new_run(overlap_key="o", concurrency_key="c")])
    caller.commit()
    assert states(store, [made.id]) == ["held"]
    assert (slots(store, "o/o"), slots(store, "c/c")) == ([], [])
    store.write(operations.admit, store.read(operations.held_keys, "", 10))
    assert states(store, [made.id]) == ["queued"]


def test_a_fault_inside_leaves_the_callers_transaction_usable(store: Store, begin: Begin) -> None:
    if store.engine.name == "duckdb":
        pytest.skip("no savepoints there: what has failed cannot be committed at all (below)")
    caller = begin()
    with pytest.raises(Exception, match=r"."):
        store.enqueue_on(caller, [new_run(), new_run(priority="not a number")])
    (made,) = store.enqueue_on(caller, [new_run()])
    caller.commit()
    assert [run.id for run in all_runs(store)] == [made.id]


def test_a_delayed_run_waits(store: Store, begin: Begin, clock: VirtualClock) -> None:
    caller = begin()
    store.enqueue_on(caller, [new_run(due_at=clock.after("1h"))])
    caller.commit()
    assert [run.state for run in all_runs(store)] == ["waiting"]


# Others are not delayed


def test_an_open_transaction_delays_nobody(store: Store, place: Place, clock: VirtualClock) -> None:
    """On SQLite the caller holds the one write lock; there only its slots matter (above)."""
    if place.engine == "sqlite":
        pytest.skip("one writer at a time")
    put_schedule(store, overlap="queue", overlap_key="o")
    first, second = enqueue_many(store, 2, overlap_key="o", concurrency_key="c")
    caller = place.begin()
    keyed = [
        new_run(overlap_key="o", concurrency_key="c", key=key_for(store, f"k{n}")) for n in range(3)
    ]
    made = store.enqueue_on(caller, keyed)
    run = claim_one(store)
    assert run.id == first
    settle(store, run)
    assert states(store, [second]) == ["queued"]
    clock.advance("10s")
    assert tick(store) == 1
    settle(store, claim_one(store))
    (fired,) = claim(store)
    assert fired.schedule_id is not None
    caller.commit()
    assert states(store, [one.id for one in made]) == ["held"] * 3
    settle(store, fired)
    assert states(store, [one.id for one in made]) == ["queued", "held", "held"]


def test_an_open_transaction_that_names_a_new_queue_delays_nobody(
    store: Store, place: Place
) -> None:
    if place.engine == "sqlite":
        pytest.skip("one writer at a time")
    caller = place.begin()
    store.enqueue_on(caller, [new_run(queue="fresh")])
    put_job(store, "other", queue="fresh")
    mine = enqueue(store, queue="fresh")
    assert [run.id for run in claim(store, queues=["fresh"])] == [mine]
    caller.commit()
    assert len(claim(store, queues=["fresh"])) == 1


def test_a_run_in_a_new_queue_is_claimed_once_it_is_committed(store: Store, begin: Begin) -> None:
    caller = begin()
    (made,) = store.enqueue_on(caller, [new_run(queue="fresh")])
    caller.commit()
    assert [run.id for run in claim(store)] == [made.id]


def test_runs_committed_late_are_admitted_by_the_next_look(store: Store, place: Place) -> None:
    caller = place.begin()
    (made,) = store.enqueue_on(caller, [new_run(concurrency_key="c")])
    assert store.read(operations.held_keys, "", 10) == []
    caller.commit()
    assert store.read(operations.held_keys, "", 10) == ["c/c"]
    assert store.write(operations.admit, ["c/c"]) == 1
    assert states(store, [made.id]) == ["queued"]


# Connections that cannot carry it


def test_autocommit_is_refused(store: Store, place: Place) -> None:
    with pytest.raises(WrongConnection, match="transaction"):
        store.enqueue_on(place.autocommit(), [new_run()])
    assert all_runs(store) == []


def test_sqlalchemy_autocommit_is_refused(store: Store, place: Place) -> None:
    if place.engine == "duckdb":
        pytest.skip("SQLAlchemy itself does not speak to DuckDB")
    engine = place.sqlalchemy()
    if place.engine == "postgres":
        engine = engine.execution_options(isolation_level="AUTOCOMMIT")
    connection = place.keep(engine.connect())
    if place.engine == "sqlite":
        connection.connection.driver_connection.rollback()
    with pytest.raises(WrongConnection, match="transaction"):
        store.enqueue_on(connection, [new_run()])
    assert all_runs(store) == []


@pytest.mark.parametrize("thing", [None, object(), "a string"], ids=["None", "object", "text"])
def test_what_is_no_connection_is_refused(store: Store, thing: object) -> None:
    with pytest.raises(WrongConnection, match=type(thing).__name__):
        store.enqueue_on(thing, [new_run()])


@pytest.fixture
def stores(place: Place, request: pytest.FixtureRequest) -> Stores:
    """More databases of the engine."""
    stores: Stores = request.getfixturevalue(STORE_FIXTURES[place.engine])
    return stores


def test_another_store_is_refused(
    store: Store, place: Place, stores: Stores, clock: VirtualClock
) -> None:
    with stores.fresh() as url, closing(type(place)(url, clock)) as other:
        other.open().migrate()  # not a copy, which would be the same installation
        caller = other.begin()
        with pytest.raises(WrongConnection, match="not to this store"):
            store.enqueue_on(caller, [new_run()])
        caller.rollback()
        assert all_runs(other.open()) == []


def test_a_database_without_a_store_is_refused(
    store: Store, place: Place, stores: Stores, clock: VirtualClock
) -> None:
    with stores.fresh() as url, closing(type(place)(url, clock)) as empty:
        caller = empty.begin()
        with pytest.raises(WrongConnection, match="not to this store"):
            store.enqueue_on(caller, [new_run()])


def test_rows_of_the_callers_own_kind_do_not_confuse_us(store: Store, place: Place) -> None:
    if place.engine == "duckdb":
        pytest.skip("the driver has one kind of rows")
    first = enqueue(store, key="k")
    caller = place.begin()
    if isinstance(place, SqlitePlace):
        caller.row_factory = lambda cursor, row: {
            column[0]: value for column, value in zip(cursor.description, row, strict=True)
        }
    else:
        caller.row_factory = dict_row
    (old,) = store.enqueue_on(caller, [new_run(key="k")])
    assert (old.id, old.created) == (first, False)


# Driver by driver


def test_a_fresh_psycopg_connection_is_not_committed_for_its_owner(
    postgres_place: PostgresPlace,
) -> None:
    store = postgres_place.open()
    with psycopg.connect(postgres_place.url) as caller:
        store.enqueue_on(caller, [new_run()])
        caller.rollback()
    assert all_runs(store) == []


def test_a_psycopg_transaction_block_is_enough_under_autocommit(
    postgres_place: PostgresPlace,
) -> None:
    store = postgres_place.open()
    caller = postgres_place.autocommit()
    with caller.transaction():
        store.enqueue_on(caller, [new_run()])
        assert all_runs(store) == []
    assert len(all_runs(store)) == 1


def test_a_failed_psycopg_transaction_is_refused(postgres_place: PostgresPlace) -> None:
    store = postgres_place.open()
    caller = postgres_place.begin()
    with pytest.raises(psycopg.Error):
        caller.execute("SELECT * FROM no_such_table")
    with pytest.raises((StorageError, psycopg.Error)):
        store.enqueue_on(caller, [new_run()])


def test_a_stale_sqlite_snapshot_is_named(sqlite_place: SqlitePlace) -> None:
    store = sqlite_place.open()
    caller = sqlite_place.autocommit()
    caller.execute("BEGIN")
    caller.execute("SELECT count(*) FROM sqlite_master").fetchone()
    enqueue(store)
    with pytest.raises(StaleSnapshot, match="BEGIN IMMEDIATE"):
        store.enqueue_on(caller, [new_run()])
    caller.rollback()
    caller.execute("BEGIN IMMEDIATE")
    store.enqueue_on(caller, [new_run()])
    caller.commit()
    assert len(all_runs(store)) == 2


def test_a_busy_sqlite_file_is_not_called_stale(sqlite_place: SqlitePlace) -> None:
    store = sqlite_place.open()
    writer = sqlite_place.begin()
    caller = sqlite_place.autocommit()
    caller.execute("PRAGMA busy_timeout = 0")
    caller.execute("BEGIN")
    with pytest.raises(Unavailable, match="locked"):
        store.enqueue_on(caller, [new_run()])
    writer.rollback()
    store.enqueue_on(caller, [new_run()])
    caller.commit()
    assert len(all_runs(store)) == 1


def test_a_sqlite_store_in_memory_has_no_other_connections(clock: VirtualClock) -> None:
    store = open_store("sqlite:///:memory:", clock=clock)
    store.migrate()
    caller = sqlite3.connect(":memory:", isolation_level=None)
    caller.execute("BEGIN")
    with pytest.raises(WrongConnection, match="not to this store"):
        store.enqueue_on(caller, [new_run()])
    store.close()


def test_a_duckdb_transaction_in_which_an_enqueue_failed_cannot_be_committed(
    duckdb_place: DuckdbPlace,
) -> None:
    store = duckdb_place.open()
    duckdb_place.execute("CREATE TABLE orders (id INTEGER)")
    caller = duckdb_place.begin()
    caller.execute("INSERT INTO orders VALUES (7)")
    with pytest.raises(KeyError):
        store.engine.on_connection(caller, lambda tx: {}["a fault that is not the database's"])
    with pytest.raises(duckdb.TransactionException, match="aborted"):
        caller.execute("INSERT INTO orders VALUES (8)")
    caller.commit()  # which DuckDB takes for a rollback
    assert duckdb_place.execute("SELECT * FROM orders") == []


def test_a_key_on_a_duckdb_connection_is_refused_before_anything_is_written(
    duckdb_place: DuckdbPlace,
) -> None:
    store = duckdb_place.open()
    caller = duckdb_place.begin()
    with pytest.raises(Invalid, match=r"job 'job': key= cannot be used with connection="):
        store.enqueue_on(caller, [new_run(), new_run(key="k")])
    store.enqueue_on(caller, [new_run()])
    caller.commit()
    assert len(all_runs(store)) == 1
