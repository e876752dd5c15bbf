"""What only SQLite has to keep: threads that share a transaction, a file that others recover,
and descriptors that tell of their commits."""

from __future__ import annotations

import gc
import os
import queue
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rota.errors import StorageError, Unavailable, WrongSchema
from rota.flow.enqueue import Enqueue, Options
from rota.storage import operations
from rota.storage.engine import Transaction
from rota.storage.sqlite.engine import CHECKPOINT_BYTES, PAGE_BYTES, SPILL_BYTES, SqliteEngine
from rota.storage.sqlite.step import begin_step
from rota.storage.sqlite.transaction import SqliteTransaction
from rota.storage.sqlite.wake import FileWatch, KernelEvents
from rota.storage.store import Store, open_store
from tests.conformance.support import SqlitePlace, all_runs, claim_one, enqueue, put_job, settle

SOON_SECONDS = 30.0  # a bound for a broken build, never waited for in a working one
EVERY_CALL = 1_000  # more than any operation here makes

# The state of a file whose writer died: another process holds the locks of those who recover.
RECOVER = """
import fcntl, sys
with open(sys.argv[1], "r+b", buffering=0) as index:
    for lock in (120, 122):
        fcntl.lockf(index, fcntl.LOCK_EX, 1, lock)
    index.write(bytes(96))
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def place(sqlite_place: SqlitePlace) -> SqlitePlace:
    return sqlite_place


@pytest.fixture
def engine(store: Store) -> SqliteEngine:
    assert isinstance(store.engine, SqliteEngine)
    return store.engine


@pytest.fixture
def small_heap() -> Iterator[None]:
    """What tests before this one left is not collected now: neither may an interrupt be lost in
    what ends there, nor a descriptor be closed; and what this one leaves is found soon."""
    gc.disable()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


# Interrupts


class Interrupt:
    """Ctrl-C behind the nth call into C since it was armed: there Python looks for signals."""

    def __init__(self) -> None:
        self.left = count(-1, -1)

    def arm(self, number: int) -> None:
        self.left = count(number, -1)

    def around(self, call: Callable[[], object]) -> object:
        sys.setprofile(self._notice)
        try:
            return call()
        except KeyboardInterrupt as interrupt:
            return interrupt
        finally:
            sys.setprofile(None)

    def _notice(self, frame: object, event: str, argument: object) -> None:
        if event == "c_return" and next(self.left) == 0:
            raise KeyboardInterrupt


@pytest.mark.usefixtures("small_heap")
def test_an_interrupt_of_one_who_writes_for_others_is_his_alone(
    store: Store, engine: SqliteEngine
) -> None:
    flow, interrupt = Enqueue(store, enqueued=lambda: None), Interrupt()
    job = store.read(operations.jobs_named, ["job"])["job"]
    flow.one(job, {}, Options())  # the queue is there from now on
    answers: list[Any] = []
    with ThreadPoolExecutor(2) as threads:
        for number in range(EVERY_CALL):
            both = [Options(correlation_id=f"{number} {who}") for who in ("one", "other")]
            with engine._turn:
                asked = [
                    threads.submit(interrupt.around, lambda own=own: flow.one(job, {}, own))
                    for own in both
                ]
                while len(engine._group._line) < len(both):
                    pass
                interrupt.arm(number)
            answers = [one.result(SOON_SECONDS) for one in asked]
            stored = {
                run.correlation_id: run.id for run in store.read(operations.list_runs, limit=9)
            }
            for own, answer in zip(both, answers, strict=True):
                if not isinstance(answer, KeyboardInterrupt):
                    assert stored[own.correlation_id] == answer.id, number
            if next(interrupt.left) > 0:
                break
    assert number > 20
    assert not any(isinstance(answer, KeyboardInterrupt) for answer in answers)


def test_an_interrupt_among_rows_does_not_keep_this_process_from_writing(
    place: SqlitePlace, store: Store, engine: SqliteEngine
) -> None:
    def work(tx: Transaction) -> None:
        assert isinstance(tx, SqliteTransaction)
        tx.cursor.execute("SELECT key FROM _rota_meta")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as kept:
        engine.write("test", work)
    place.execute("CREATE TABLE others (a)")  # by another connection, while the fault is at hand
    enqueue(store)
    assert kept.value is not None


@pytest.mark.parametrize("statement", ["ROLLBACK", "INSERT OR ROLLBACK INTO once VALUES (1)"])
def test_an_end_whose_transaction_was_ended_is_no_end(
    place: SqlitePlace, store: Store, statement: str
) -> None:
    place.execute("CREATE TABLE once (a PRIMARY KEY)")
    place.execute("INSERT INTO once VALUES (1)")
    enqueue(store)
    run = claim_one(store)
    with pytest.raises(StorageError, match="settle ended its transaction"):
        settle(store, run, on_terminated=lambda run: [(statement, {})])
    assert store.read(operations.get_run, run.id).state == "running"
    settle(store, run)
    assert store.read(operations.get_run, run.id).state == "succeeded"


@pytest.mark.usefixtures("small_heap")
def test_what_an_interrupt_left_behind_undoes_nothing_when_it_is_collected(
    store: Store, engine: SqliteEngine
) -> None:
    interrupt, left = Interrupt(), list[object]()
    with ThreadPoolExecutor(1) as thread:
        for number in range(EVERY_CALL):
            interrupt.arm(number)
            asked = thread.submit(interrupt.around, lambda: enqueue(store))
            left.append(asked.result(SOON_SECONDS))
            if not isinstance(left[0], KeyboardInterrupt):
                break
            del asked
            engine.write("later", lambda tx: (left.clear(), gc.collect()))
    assert 20 < number < EVERY_CALL - 1


@pytest.mark.usefixtures("small_heap")
def test_a_read_that_was_interrupted_is_in_nobodys_way(store: Store) -> None:
    interrupt, run_id = Interrupt(), enqueue(store)
    with ThreadPoolExecutor(1) as thread:
        for number in range(EVERY_CALL):
            interrupt.arm(number)
            asked = thread.submit(interrupt.around, lambda: store.read(operations.get_run, run_id))
            answer = asked.result(SOON_SECONDS)
            assert [run.id for run in all_runs(store)] == [run_id], number
            if not isinstance(answer, KeyboardInterrupt):
                break
    assert 3 < number < EVERY_CALL - 1


# Steps


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_step_that_cannot_be_rolled_back_does_not_stop_rescue(
    store: Store, in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_store("sqlite:///:memory:") if in_memory else store
    opened.migrate()
    put_job(opened)
    monkeypatch.setattr("rota.storage.sqlite.engine.LONG_WAIT_SECONDS", 0.0)
    with ExitStack() as until_it_ends:
        step = until_it_ends.enter_context(opened.engine.step("step", lambda: False))
        step.connection.execute("CREATE TABLE half_done (a)")
        step.connection.set_authorizer(_no_rollback)
        with pytest.raises(StorageError, match="not authorized"):
            until_it_ends.close()
    if in_memory:
        step.connection.set_authorizer(None)
    assert not opened.engine.blocked_within(0.0)
    enqueue(opened)
    with pytest.raises(WrongSchema, match="no such table: half_done"):
        opened.engine.read(lambda tx: tx.text("SELECT * FROM half_done", {}))


def _no_rollback(action: int, what: str | None, *_: str | None) -> int:
    denied = action == sqlite3.SQLITE_TRANSACTION and what == "ROLLBACK"
    return sqlite3.SQLITE_DENY if denied else sqlite3.SQLITE_OK


def test_a_step_waits_while_another_process_recovers_the_file(
    place: SqlitePlace, store: Store
) -> None:
    connection = place.autocommit()
    connection.execute("SELECT * FROM sqlite_master")
    other = subprocess.Popen(
        [sys.executable, "-c", RECOVER, f"{place.path}-shm"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    asked: list[None] = []

    def stopped() -> bool:
        asked.append(None)
        other.communicate("go on\n")
        return False

    try:
        begin_step(connection, str(place.path), stopped)
    finally:
        other.kill()
        other.wait()
    assert connection.in_transaction
    assert len(asked) == 1


# Files


def test_what_is_to_migrate_in_a_locked_file_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.storage.sqlite.engine.BUSY_SECONDS", 0.1)
    store = open_store(f"sqlite:///{tmp_path}/rota.db")
    locker = sqlite3.connect(tmp_path / "rota.db", isolation_level=None)
    locker.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Unavailable, match="was locked by another process"):
        store.pending_migrations()
    locker.close()
    assert store.pending_migrations()
    store.close()


class Told:
    """Hints that the test gives."""

    def __init__(self, path: Path) -> None:
        self.hints: queue.Queue[int | None] = queue.Queue()
        self.waits = threading.Semaphore(0)

    def wait(self, seconds: float | None) -> int | None:
        self.waits.release()
        try:
            return self.hints.get(timeout=seconds)
        except queue.Empty:
            return 1

    def stop(self) -> None:
        self.hints.put(None)

    def close(self) -> None: ...


@pytest.mark.parametrize("first", ["theirs", "ours"])
def test_a_commit_that_can_be_read_only_after_its_hint_wakes_us(
    place: SqlitePlace, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One hint for two commits, and only the first of them can be read yet."""
    monkeypatch.setattr("rota.storage.sqlite.wake._hints", Told)
    store, other = place.open(), place.open()
    put_job(store)
    woken, ours = threading.Event(), store.engine
    assert isinstance(ours, SqliteEngine)
    watch = FileWatch(str(place.path), lambda: ours._open(writing=False), ours._foreign_commits)
    watch.start(woken.set)
    told = watch._hints
    assert isinstance(told, Told)
    enqueue(store if first == "ours" else other)
    told.hints.put(2)
    for _ in range(2):  # for the hint, and when all that it led to is done
        assert told.waits.acquire(timeout=SOON_SECONDS)
    woken.clear()
    enqueue(other)
    assert woken.wait(SOON_SECONDS), "nobody hinted again"
    watch.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells of commits on Linux")
@pytest.mark.usefixtures("small_heap")
def test_a_watch_that_cannot_begin_leaves_no_descriptor(tmp_path: Path) -> None:
    def descriptors() -> set[str]:
        return set(os.listdir("/proc/self/fd"))

    def fail() -> int:
        raise ConnectionError

    before = descriptors()
    with pytest.raises(FileNotFoundError):
        KernelEvents(tmp_path / "nowhere" / "rota.db")
    assert descriptors() == before
    file = tmp_path / "rota.db"
    with pytest.raises(ConnectionError):
        FileWatch(str(file), lambda: sqlite3.connect(file), fail)
    assert descriptors() == before


def test_what_a_large_transaction_changes_is_written_once_when_it_commits(
    store: Store, engine: SqliteEngine
) -> None:
    log = Path(f"{engine.path}-wal")

    def write(tx: Transaction) -> int:
        for number in range(1_500):  # of which each takes a page: three times the usual cache
            tx.all("set_meta", key=f"large {number}", value="x" * 3_000)
        return log.stat().st_size

    put_job(store)
    before = log.stat().st_size
    assert engine.write("test", write) == before
    assert log.stat().st_size > 1_500 * 3_000


def test_no_index_makes_a_table_of_its_own_for_each_run_that_is_written(
    place: SqlitePlace, store: Store
) -> None:
    """As one does whose condition is IN with more than two values."""
    place.execute("CREATE TABLE others AS SELECT * FROM _rota_runs")
    for sql in (
        "INSERT INTO _rota_runs SELECT * FROM others",
        "UPDATE _rota_runs SET state = 'succeeded', finished_at = 1 WHERE seq = 1",
    ):
        steps = [row[1] for row in place.execute(f"EXPLAIN {sql}")]
        assert "MakeRecord" in steps
        assert "OpenEphemeral" not in steps, sql


@pytest.mark.parametrize(
    ("made_with", "kept"), [(None, PAGE_BYTES), (1_024, 1_024), (4_096, 4_096)]
)
def test_a_new_file_has_larger_pages_and_one_that_is_there_keeps_its_own(
    tmp_path: Path, made_with: int | None, kept: int
) -> None:
    file = tmp_path / "yours.db"
    if made_with is not None:
        yours = sqlite3.connect(file)
        yours.execute(f"PRAGMA page_size = {made_with}")
        yours.execute("CREATE TABLE yours (id INTEGER)")
        yours.close()
    store = open_store(f"sqlite:///{file}")
    try:
        store.migrate()
        engine = store.engine
        assert isinstance(engine, SqliteEngine)
        asked = ("page_size", "wal_autocheckpoint", "cache_spill")
        told = [engine._writer.execute(f"PRAGMA {name}").fetchone()[0] for name in asked]
        assert told == [kept, CHECKPOINT_BYTES // kept, SPILL_BYTES // kept + 1]
    finally:
        store.close()
