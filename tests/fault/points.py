"""Crash points: the probe of a store, put to use by environment variables of a test process.

ROTA_CRASH_AT=firing.fire.commit.before:2   SIGKILL itself when it comes to this point for the
                                            second time; `any` is every point
ROTA_STOP_AT=read.jobs_named.after:1   SIGSTOP itself there; somebody else sends SIGCONT
ROTA_FAIL_AT=claiming.claim.commit.before:1   there, once, it raises what a driver raises
ROTA_FAIL_AT=17   the same at the 17th point, whatever that is
ROTA_TEST_POINTS=/path   write the name of each point there when it is met for the first time

A point is `<module>.<operation>.<statement>.<before|after>`, `….commit.<before|after>`, or
`read.<statement>.<before|after>`.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any
from unittest.mock import patch

import duckdb
import psycopg

from rota.storage.duckdb.transaction import DuckdbTransaction
from rota.storage.engine import Probe
from rota.storage.postgres.transaction import PostgresTransaction
from rota.storage.sqlite.transaction import SqliteTransaction
from tests.fault.notes import Notebook


def probe_from_environment(notebook: Notebook) -> Probe | None:
    """What the variables ask for; None if they ask for nothing."""
    probes: list[Probe] = []
    for variable, number in (("ROTA_CRASH_AT", signal.SIGKILL), ("ROTA_STOP_AT", signal.SIGSTOP)):
        if told := os.environ.get(variable):
            point, _, times = told.rpartition(":")
            probes.append(_At(point, int(times), notebook, _signals_itself(number)))
    if told := os.environ.get("ROTA_FAIL_AT"):
        point, _, times = told.rpartition(":")
        act = raise_fault
        probes.append(
            _At(point, int(times), notebook, act) if point else Nth(int(times), notebook, act)
        )
    if told := os.environ.get("ROTA_TEST_POINTS"):
        probes.append(Recorder(told))
    if not probes:
        return None

    def probe(point: str) -> None:
        for one in probes:
            one(point)

    return probe


class _At:
    def __init__(self, point: str, times: int, notebook: Notebook, act: Callable[[], None]) -> None:
        self.point, self.notebook, self.act = point, notebook, act
        self._left = times
        self._guard = threading.Lock()

    def __call__(self, point: str) -> None:
        if self.point not in (point, "any"):
            return
        with self._guard:
            self._left -= 1
            if self._left == 0:
                self.notebook.write("point", point=point)
                self.act()


def _signals_itself(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


class Nth:
    def __init__(self, number: int, notebook: Notebook, act: Callable[[], None]) -> None:
        self.number, self.notebook, self.act = number, notebook, act
        self._counter = count(1)
        self.met: str | None = None  # the point it was

    def __call__(self, point: str) -> None:
        # After a commit there is nothing left that the database could refuse.
        if not point.endswith("commit.after") and next(self._counter) == self.number:
            self.met = point
            self.notebook.write("point", point=point)
            self.act()


def raise_fault() -> None:
    raise fault_of(os.environ["ROTA_TEST_DATABASE"])


def fault_of(database: str) -> Exception:
    if database.startswith("sqlite"):
        fault = sqlite3.OperationalError("database or disk is full")
        fault.sqlite_errorcode, fault.sqlite_errorname = 13, "SQLITE_FULL"
        return fault
    if database.startswith("duckdb"):
        return duckdb.IOException("No space left on device (a planted fault)")
    return psycopg.OperationalError("the connection is lost (a planted fault)")


@contextmanager
def scripts_have_points() -> Iterator[None]:
    """Migrations are scripts, not named statements. Here each part of one is a point as well."""
    with ExitStack() as stack:
        for kind in (SqliteTransaction, PostgresTransaction, DuckdbTransaction):
            stack.enter_context(patch.object(kind, "script", _probed(kind.script)))
        yield


def _probed(script: Callable[[Any, str], None]) -> Callable[[Any, str], None]:
    def run(transaction: Any, sql: str) -> None:
        transaction._at("script", "before")
        script(transaction, sql)
        transaction._at("script", "after")

    return run


class Recorder:
    def __init__(self, path: str) -> None:
        self._seen: set[str] = set()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, point: str) -> None:
        if point not in self._seen:
            self._seen.add(point)
            os.write(self._descriptor, f"{point}\n".encode())
