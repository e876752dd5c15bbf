"""`connection=`: a run that exists exactly if the caller's own transaction commits."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import rota
from rota.storage import operations
from tests.api.support import Watch, alchemy, plain, transaction


# DuckDB has other rules: tests/conformance/test_enqueue_on.py has them.
@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


Opens = Callable[[str], Any]


@contextmanager
def driver(database: str) -> Iterator[tuple[Any, Any]]:
    with transaction(database) as connection:
        yield connection, connection


@contextmanager
def core(database: str) -> Iterator[tuple[Any, Any]]:
    with alchemy(database).connect() as connection:
        connection.begin()
        yield connection, connection


@contextmanager
def session(database: str) -> Iterator[tuple[Any, Any]]:
    with Session(alchemy(database)) as made:
        made.begin()
        yield made, made


WAYS: dict[str, Opens] = {"driver": driver, "sqlalchemy": core, "orm session": session}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Opens:
    return WAYS[request.param]


@pytest.fixture
def note(app: rota.Rota, database: str) -> Any:
    @app.job()
    def note(n: int) -> int:
        return n

    app.load()
    with plain(database) as connection:
        connection.execute("CREATE TABLE orders (n INTEGER)")
    return note


def insert(connection: Any, n: int) -> None:
    statement: Any = f"INSERT INTO orders VALUES ({n})"
    if isinstance(connection, sqlalchemy.Connection | Session):
        statement = sqlalchemy.text(statement)
    connection.execute(statement)


def orders(database: str) -> list[int]:
    with plain(database) as connection:
        return [row[0] for row in connection.execute("SELECT n FROM orders ORDER BY n").fetchall()]


def test_a_commit_makes_the_run_and_the_callers_rows(
    app: rota.Rota, watch: Watch, note: Any, way: Opens, database: str
) -> None:
    app.start()
    with way(database) as (connection, ends):
        insert(connection, 5)
        made = note.enqueue(n=5, connection=connection)
        mine = note.using(connection=connection)
        many = mine.enqueue_many([{"n": 6}, {"n": 7}])
        many += [mine.enqueue(8), note.enqueue(9, connection=connection)]
        assert made.created
        with pytest.raises(rota.Unknown):
            app.storage.read(operations.get_run, made.id)
        ends.commit()
    results = [watch.end(one.id).result for one in (made, *many)]
    assert results == ["5", "6", "7", "8", "9"]
    assert orders(database) == [5]


def test_a_rollback_leaves_nothing(app: rota.Rota, note: Any, way: Opens, database: str) -> None:
    with way(database) as (connection, ends):
        insert(connection, 5)
        note.enqueue(n=5, key="order 5", connection=connection)
        note.enqueue(n=6, connection=connection, concurrency_key="tenant")
        ends.rollback()
    assert app.runs("note") == []
    assert orders(database) == []
    # Not even the key: the next one is the first.
    assert note.enqueue(n=5, key="order 5").created


def test_a_refused_enqueue_leaves_the_callers_transaction_usable(
    note: Any, way: Opens, database: str
) -> None:
    with way(database) as (connection, ends):
        insert(connection, 5)
        with pytest.raises(rota.BadArguments):
            note.enqueue(n="five", connection=connection)
        insert(connection, 6)
        ends.commit()
    assert orders(database) == [5, 6]


def test_a_key_is_respected_across_transactions(
    app: rota.Rota, note: Any, way: Opens, database: str
) -> None:
    first = note.enqueue(n=1, key="k")
    with way(database) as (connection, ends):
        again = note.enqueue(n=2, key="k", connection=connection)
        ends.commit()
    assert (again.created, again.id) == (False, first.id)
    assert len(app.runs("note")) == 1


def test_a_run_with_a_concurrency_key_is_admitted_after_the_commit(
    app: rota.Rota, watch: Watch, note: Any, way: Opens, database: str
) -> None:
    app.start()
    with way(database) as (connection, ends):
        made = note.enqueue(n=1, concurrency_key="tenant", connection=connection)
        ends.commit()
    assert watch.end(made.id).state == "succeeded"


def test_a_queue_that_is_new_is_made_with_the_run(
    app: rota.Rota, watch: Watch, note: Any, way: Opens, database: str
) -> None:
    app.start()
    with way(database) as (connection, ends):
        made = app.enqueue("note", {"n": 1}, queue="brand/new", connection=connection)
        ends.commit()
    assert watch.end(made.id).state == "succeeded"


def test_a_commit_in_another_process_wakes_the_worker_unless_told_not_to(
    app: rota.Rota, watch: Watch, note: Any, database: str
) -> None:
    app.start()
    for notify in (True, False):
        with transaction(database) as connection:
            made = note.enqueue(n=1, connection=connection, notify=notify)
            connection.commit()
        assert watch.end(made.id).state == "succeeded"


def test_autocommit_is_refused(app: rota.Rota, note: Any, database: str) -> None:
    with plain(database) as connection, pytest.raises(rota.WrongConnection, match="transaction"):
        note.enqueue(n=1, connection=connection)
    with (
        alchemy(database).connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(rota.WrongConnection, match="transaction"),
    ):
        note.enqueue(n=1, connection=connection)
    assert app.runs("note") == []


def test_a_connection_to_another_store_is_refused(
    app: rota.Rota, note: Any, engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    other = f"sqlite:///{tmp_path / 'other.db'}"
    if engine == "postgres":
        other = request.getfixturevalue("postgres_url")
    with transaction(other) as connection, pytest.raises(rota.WrongConnection) as caught:
        note.enqueue(n=1, connection=connection)
    assert "is not to this store" in str(caught.value)
    assert "enqueue on a connection to it" in str(caught.value)


@pytest.mark.parametrize("thing", [object(), "sqlite:///x", 5])
def test_what_is_no_connection_is_refused_with_the_way_out(note: Any, thing: object) -> None:
    with pytest.raises(rota.WrongConnection, match=r"cannot carry an enqueue.*; pass a "):
        note.enqueue(n=1, connection=thing)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_connection_of_another_product_is_refused(note: Any) -> None:
    with closing(sqlite3.connect(":memory:")) as wrong, pytest.raises(rota.WrongConnection) as told:
        note.enqueue(n=1, connection=wrong)
    assert "cannot carry an enqueue into a PostgreSQL store; pass a psycopg 3" in str(told.value)


BY_SQL = """SELECT rota.enqueue('job', '{"argument": 1}')"""


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_asynchronous_connections_are_told_the_way_that_works_on_them(
    note: Any, database: str
) -> None:
    async def refusals() -> list[str]:
        engine = create_async_engine(database.replace("postgresql:", "postgresql+psycopg:", 1))
        said = []

        def enqueue(connection: object) -> None:
            with pytest.raises(rota.WrongConnection) as told:
                note.enqueue(n=1, connection=connection)
            said.append(str(told.value))

        try:
            async with AsyncSession(engine) as session, engine.connect() as connection:
                enqueue(session)
                enqueue(connection)
                raw = await connection.get_raw_connection()
                enqueue(raw.driver_connection)
                await session.run_sync(enqueue)
                await session.execute(sqlalchemy.text("SELECT rota.enqueue('note', '{\"n\": 7}')"))
                await session.commit()
        finally:
            await engine.dispose()
        return said

    said = asyncio.run(refusals())
    assert [one.partition(";")[0] for one in said] == [
        "an AsyncSession is asynchronous",
        "an AsyncConnection is asynchronous",
        "an AsyncConnection is asynchronous",
        "an AsyncConnection is asynchronous",
    ]
    assert all(BY_SQL in one for one in said)
    assert [json.loads(run.args) for run in note.app.control.runs()] == [{"n": 7}]


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_another_driver_is_told_both_ways(note: Any) -> None:
    class Connection:
        __module__ = "psycopg2.extensions"

    for made in (Connection(), object()):
        with pytest.raises(rota.WrongConnection) as told:
            note.enqueue(n=1, connection=made)
        assert "postgresql+psycopg://; or enqueue by SQL on it" in str(told.value)
        assert BY_SQL in str(told.value)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_stale_snapshot_of_sqlite_says_how_to_begin(note: Any, database: str) -> None:
    with plain(database) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT * FROM orders").fetchall()
        note.enqueue(n=1)
        with pytest.raises(rota.StaleSnapshot, match="begin with BEGIN IMMEDIATE"):
            note.enqueue(n=2, connection=connection)
