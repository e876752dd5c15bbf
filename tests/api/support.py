"""What the tests of the Python API share: ends to wait for, gates for handlers, connections."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import duckdb
import psycopg
import sqlalchemy

import rota
from rota.flow.events import NAMES, RunEvent
from rota.flow.run import Execution
from rota.model.run import Run
from rota.storage import operations
from rota.storage.store import Store
from rota.testing import Clock, Driver

PATIENCE = 60.0
# For tests that wait for a rescue. Where one write waited for long for another, a rescue waits for
# one lease after it, and one more: with the usual lease that is longer than a test's patience.
SHORT_LEASE = "1s"


def wait_until(happens: Callable[[], object], what: str = "it") -> None:
    """For what nothing announces. Bounded, and short."""
    until = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < until, f"{what} did not happen"
        time.sleep(0.005)


class Watch:
    """Every lifecycle event of an app, and a way to wait for one."""

    def __init__(self, app: rota.Rota) -> None:
        self.app = app
        self._changed = threading.Condition()
        self._seen: list[tuple[str, RunEvent]] = []
        for name in NAMES:
            app.on(name)(lambda event, name=name: self._add(name, event))

    def _add(self, name: str, event: RunEvent) -> None:
        with self._changed:
            self._seen.append((name, event))
            self._changed.notify_all()

    def of(self, run_id: str) -> list[str]:
        """The names of all events of a run, in order."""
        with self._changed:
            return [name for name, event in self._seen if event.run_id == run_id]

    def events(self, name: str) -> list[RunEvent]:
        with self._changed:
            return [event for told, event in self._seen if told == name]

    def wait(self, name: str, run_id: str, count: int = 1) -> RunEvent:
        """The event of that name, once it has come `count` times."""

        def found() -> list[RunEvent]:
            return [event for told, event in self._seen if (told, event.run_id) == (name, run_id)]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, PATIENCE), (
                f"{name} did not come; {[told for told, event in self._seen]}"
            )
            return found()[count - 1]

    def end(self, run_id: str) -> Run:
        """The run, once it has ended."""
        ends = {"job.completed", "job.failed", "job.cancelled"}
        with self._changed:
            assert self._changed.wait_for(lambda: ends & set(self.of(run_id)), PATIENCE), (
                f"run did not end: {self.of(run_id)}"
            )
        return self.app.storage.read(operations.get_run, run_id)


class Gate:
    """A handler that has come here waits until it is opened."""

    def __init__(self) -> None:
        self._come, self._open = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self._come.set()
        assert self._open.wait(PATIENCE), "nobody opened the gate"

    def wait(self) -> None:
        assert self._come.wait(PATIENCE), "nobody came to the gate"

    def open(self) -> None:
        self._open.set()


def execution_of(app: rota.Rota, run_id: str) -> Execution:
    """A run in the hands of the app's worker."""
    assert app._service is not None
    assert app._service.worker is not None
    (found,) = [one for one in app._service.worker.executions() if one.run.id == run_id]
    return found


def run_out(execution: Execution, timeout: timedelta) -> None:
    """Let a run that has begun have no more time than this: from its start, which was a while ago.
    A machine that is too slow to begin it in so short a time has begun it all the same."""
    execution.timeout = execution.context.timeout = timeout


@dataclass
class Driven:
    """An app whose runs are worked on when the test says so, in a time that the test owns."""

    app: rota.Rota
    store: Store
    clock: Clock
    driver: Driver

    @property
    def control(self) -> Any:
        return self.app.control

    def drain(self) -> list[Run]:
        return self.driver.drain()

    def advance(self, span: str) -> list[Run]:
        return self.driver.advance(span)

    def ago(self, span: timedelta) -> datetime:
        return self.clock.now - span

    def states(self, *ids: str) -> list[str]:
        return [self.store.read(operations.get_run, run_id).state for run_id in ids]

    def audit(self) -> list[tuple[str, str]]:
        """(action, thing) of each audited write that was not made by code, oldest first."""
        return [
            (row["action"], row["thing"])
            for row in reversed(self.app.control.audit())
            if row["via"] != "code"
        ]


# Connections of a user's own


@contextmanager
def plain(database: str) -> Iterator[Any]:
    """A driver's connection in autocommit."""
    if database.startswith("sqlite"):
        connection: Any = sqlite3.connect(
            database.removeprefix("sqlite:///"), isolation_level=None, timeout=10
        )
    elif database.startswith("duckdb"):
        connection = duckdb.connect(database.removeprefix("duckdb:///"))
    else:
        connection = psycopg.connect(database, autocommit=True)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def transaction(database: str) -> Iterator[Any]:
    """A driver's connection with an open transaction that may write; its end is the test's."""
    with plain(database) as connection:
        connection.execute("BEGIN IMMEDIATE" if database.startswith("sqlite") else "BEGIN")
        yield connection


def alchemy(database: str) -> sqlalchemy.Engine:
    """As an application would configure it: transactions that begin when SQLAlchemy says so."""
    if not database.startswith("sqlite"):
        url = sqlalchemy.make_url(database).set(drivername="postgresql+psycopg")
        return sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    engine = sqlalchemy.create_engine(database, poolclass=sqlalchemy.NullPool)

    @sqlalchemy.event.listens_for(engine, "connect")
    def leave_it(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None

    @sqlalchemy.event.listens_for(engine, "begin")
    def begin(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine
