"""What only DuckDB needs: one process, writes that stand in line, and a log that can be replayed.

Old snapshots are the danger there: a transaction that began before another one wrote does not see
it, and DuckDB lets it write all the same where the columns differ.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from rota.errors import Invalid, LeaseLost, StorageError, Unavailable, WrongSchema
from rota.model.retry import Retry
from rota.model.run import ClaimedRun
from rota.model.steps import AT_LEAST_ONCE, StepDone, StepFile
from rota.storage import operations
from rota.storage.duckdb.engine import DuckdbEngine
from rota.storage.operations.steps import StepKey
from rota.storage.statements import load_statements
from rota.storage.store import Store, open_store
from tests.conformance.support import (
    LEASE,
    ME,
    DuckdbPlace,
    all_runs,
    claim,
    claim_one,
    enqueue,
    enqueue_many,
    put_job,
    put_schedule,
    settle,
    states,
)

FILE = StepFile(number=1, name="01_load.sql", text="SELECT 1")
SOON_SECONDS = 30.0  # a bound for a broken build, never waited for in a working one


@pytest.fixture
def place(duckdb_place: DuckdbPlace) -> DuckdbPlace:
    return duckdb_place


def test_who_waits_long_is_not_forgotten_when_others_come(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = store.engine
    assert isinstance(engine, DuckdbEngine)
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    arrived, opened = threading.Semaphore(0), threading.Event()

    def acquire() -> None:
        arrived.release()
        opened.wait(SOON_SECONDS)

    door = SimpleNamespace(acquire=acquire, release=lambda: None)
    with monkeypatch.context() as patch, ThreadPoolExecutor(2) as threads:
        patch.setattr("rota.storage.duckdb.engine.LONG_WAIT_SECONDS", 0.5)
        patch.setattr("rota.storage.duckdb.engine.time", clock)
        patch.setattr(engine.instance, "write_lock", door)
        for instant in (0.0, 10.0):
            clock.monotonic = lambda instant=instant: instant
            threads.submit(engine._turn().__enter__)
            assert arrived.acquire(timeout=SOON_SECONDS)
        blocked = engine.blocked_within(0.0)
        opened.set()
    assert blocked


# Old snapshots


@pytest.fixture
def old_snapshot(store: Store, place: DuckdbPlace) -> Any:
    """A transaction that has read the runs as they were before the test, and is still open."""
    enqueue_many(store, 4)
    caller = place.begin()
    seen = caller.execute(f"SELECT state FROM {place.table('runs')}").fetchall()
    assert seen == [("queued",)] * 4
    return caller


def test_a_claim_sees_the_one_before_it_while_an_old_snapshot_is_open(
    store: Store, place: DuckdbPlace, old_snapshot: Any
) -> None:
    first, second = claim(store, 2), claim(place.open(), 2)
    assert len({run.seq for run in first + second}) == 4
    assert claim(store) == []
    old_snapshot.execute("CREATE TABLE of_the_caller (i INTEGER)")
    old_snapshot.commit()
    assert [run.state for run in all_runs(store)] == ["running"] * 4
    assert len(settle(store, first[0])) == 1


def test_duckdb_itself_lets_an_old_snapshot_write(
    store: Store, place: DuckdbPlace, old_snapshot: Any
) -> None:
    """Why nothing of ours may begin outside the lock. If this fails, DuckDB has become safer."""
    (run, *_) = claim(store, 1)
    sql = f"UPDATE {place.table('runs')} SET reason = state WHERE seq = {run.seq}"
    assert old_snapshot.execute(sql).fetchall() == [(1,)]
    old_snapshot.commit()
    assert store.read(operations.get_run, run.id).reason == "queued"


class Stop:
    """Stops a call just before it commits, until the test lets it go on."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self, point: str) -> None:
        if point == self.point:
            self.reached.set()
            assert self.go_on.wait(SOON_SECONDS)


class Call:
    """A call of a store, which can be asked."""

    def __init__(self, store: Store, call: Callable[[Store], Any]) -> None:
        self.store, self.call = store, call

    def __call__(self) -> Any:
        return self.call(self.store)


@pytest.fixture
def beside(place: DuckdbPlace) -> Iterator[Callable[..., Any]]:
    """Run one call up to its commit, begin another, and let both end; what they answered."""
    with ThreadPoolExecutor(2) as pool:

        def both(point: str, first: Callable[[Store], Any], second: Call) -> Any:
            stop = Stop(point)
            stopped = place.open(probe=stop)
            one = pool.submit(first, stopped)
            assert stop.reached.wait(SOON_SECONDS)
            other = pool.submit(second)
            # It has begun once it waits for the lock, or has read what it should not have.
            while not other.done() and not _waits(second.store):
                pass
            stop.go_on.set()
            return one.result(SOON_SECONDS), other.result(SOON_SECONDS)

        yield both


def _waits(store: Store) -> bool:
    engine = store.engine
    assert isinstance(engine, DuckdbEngine)
    return bool(engine._waits_since)


def test_claims_at_the_same_time_take_different_runs(
    store: Store, beside: Callable[..., Any]
) -> None:
    enqueue_many(store, 3)
    one, other = beside("claiming.claim.commit.before", lambda s: claim(s, 2), Call(store, claim))
    assert (len(one), len(other)) == (2, 1)
    assert len({run.seq for run in one + other}) == 3


def test_a_cancel_that_begins_during_a_claim_finds_the_run_running(
    store: Store, beside: Callable[..., Any]
) -> None:
    run_id = enqueue(store)
    beside(
        "claiming.claim.commit.before",
        claim_one,
        Call(store, lambda s: s.write(operations.cancel_run, run_id, "why", ME)),
    )
    run = store.read(operations.get_run, run_id)
    assert (run.state, run.reason) == ("running", "why")
    assert run.cancel_requested_at is not None


# Steps


@pytest.fixture
def run(store: Store, place: DuckdbPlace) -> ClaimedRun:
    place.execute("CREATE TABLE effects (step INTEGER)")
    enqueue(store)
    run = claim_one(store)
    store.write(operations.begin_step, key(run), FILE)
    return run


def key(run: ClaimedRun) -> StepKey:
    return StepKey(seq=run.seq, attempt=run.attempt, number=1)


def test_others_write_while_a_step_is_open_and_keep_what_they_wrote(
    store: Store, place: DuckdbPlace, run: ClaimedRun
) -> None:
    with store.step(key(run), LEASE) as step:
        step.connection.execute("INSERT INTO effects VALUES (1)")
        step.connection.execute(f"SELECT * FROM {place.table('runs')}").fetchall()
        store.write(operations.set_progress, run.seq, run.attempt, "half")
        store.write(operations.cancel_run, run.id, "enough", ME)
        other = enqueue(store)
        claim_one(store)
        step.commit(StepDone(rows=1))
    told = store.read(operations.get_run, run.id)
    assert (told.state, told.progress, told.reason) == ("running", "half", "enough")
    assert states(store, [other]) == ["running"]
    assert place.execute("FROM effects") == [(1,)]
    assert store.read(operations.done_steps, run.seq) == {1}


def test_the_fence_sees_what_the_snapshot_of_the_step_does_not(
    store: Store, place: DuckdbPlace, run: ClaimedRun
) -> None:
    with store.step(key(run), LEASE) as step:
        step.connection.execute("INSERT INTO effects VALUES (1)")
        settle(store, run, "failed", retry=Retry(max_attempts=1))
        seen = step.connection.execute(f"SELECT state FROM {place.table('runs')}").fetchall()
        assert seen == [("running",)]
        with pytest.raises(LeaseLost):
            step.commit(StepDone())
    assert place.execute("FROM effects") == []
    assert store.read(operations.done_steps, run.seq) == set()


def test_nobody_takes_the_lease_between_the_fence_and_the_commit(
    store: Store, place: DuckdbPlace, run: ClaimedRun, beside: Callable[..., Any]
) -> None:
    def do(stopped: Store) -> None:
        with stopped.step(key(run), LEASE) as step:
            step.connection.execute("INSERT INTO effects VALUES (1)")
            step.commit(StepDone())

    beside("steps.step.commit.before", do, Call(store, lambda s: settle(s, run, "failed")))
    assert place.execute("FROM effects") == [(1,)]
    assert store.read(operations.done_steps, run.seq) == {1}
    assert store.read(operations.get_run, run.id).state == "waiting"


@pytest.mark.parametrize("rest", ["", " (READ_ONLY)"], ids=["", "read only"])
def test_a_step_beside_an_attached_database_says_what_it_promises(
    store: Store, run: ClaimedRun, place: DuckdbPlace, tmp_path: Path, rest: str
) -> None:
    with duckdb.connect(tmp_path / "other.duckdb") as other:
        other.execute("CREATE TABLE copies AS SELECT 7 AS step")
    with store.step(key(run), LEASE) as step:
        step.connection.execute(f"ATTACH '{tmp_path}/other.duckdb' AS other{rest}")
        step.connection.execute("INSERT INTO effects SELECT step FROM other.copies")
        step.commit(StepDone())
    place.execute("DETACH other")
    assert place.execute("FROM effects") == [(7,)]
    (told,) = store.read(operations.list_steps, run.seq)
    assert (told["status"], told["note"]) == ("succeeded", None if rest else AT_LEAST_ONCE)


def test_a_step_that_writes_to_an_attached_database_is_done(
    store: Store, run: ClaimedRun, place: DuckdbPlace, tmp_path: Path
) -> None:
    with store.step(key(run), LEASE) as step:
        step.connection.execute(f"ATTACH '{tmp_path}/other.duckdb' AS other")
        step.connection.execute("CREATE TABLE other.copies AS SELECT 7 AS step")
        step.connection.execute("USE other")
        step.commit(StepDone())
    assert place.execute("FROM other.copies") == [(7,)]
    place.execute("DETACH other")
    assert store.read(operations.done_steps, run.seq) == {1}


# Work that is run again because a part of it failed


def test_a_part_that_fails_is_left_out_and_the_rest_is_done_once(store: Store) -> None:
    begun: list[str] = []

    def work(tx: Any) -> list[str]:
        begun.append("work")
        told = []
        for number in range(4):
            try:
                with tx.savepoint():
                    tx.many("insert_queues", [{"name": f"queue {number}"}])
                    if number % 2:
                        tx.text("INSERT INTO no_such_table VALUES (:n)", {"n": number})
            except Exception as fault:
                told.append(type(fault).__name__)
        tx.many("insert_queues", [{"name": "last"}])
        return told

    assert store.engine.write("test", work) == ["CatalogException"] * 2
    assert begun == ["work"] * 3
    names = [row["name"] for row in store.read(operations.list_queues, limit=9)]
    assert names == ["default", "last", "queue 0", "queue 2"]


def test_a_part_that_fails_after_a_part_of_its_own_concerns_none_behind_it(store: Store) -> None:
    def work(tx: Any) -> list[str]:
        told = []
        try:
            with tx.savepoint():
                with suppress(LookupError), tx.savepoint():
                    raise LookupError("within")
                raise ValueError("around")
        except ValueError as fault:
            told.append(str(fault))
        with tx.savepoint():
            tx.many("insert_queues", [{"name": "behind"}])
        return told

    assert store.engine.write("test", work) == ["around"]
    assert [row["name"] for row in store.read(operations.list_queues, limit=9)] == [
        "behind",
        "default",
    ]


def test_a_statement_that_aborts_the_transaction_is_left_out_too(store: Store) -> None:
    put_job(store)
    run_id = enqueue(store)
    settle(store, claim_one(store), on_terminated=lambda run: [("SELECT CAST('x' AS INTEGER)", {})])
    assert store.read(operations.get_run, run_id).state == "succeeded"
    assert [event["kind"] for event in store.read(operations.list_events, limit=9)] == [
        "run.on_terminated_failed"
    ]


def test_a_fault_that_was_passed_over_does_not_end_as_a_commit_of_nothing(store: Store) -> None:
    def work(tx: Any) -> None:
        tx.many("insert_queues", [{"name": "fresh"}])
        with suppress(duckdb.Error):
            tx.text("SELECT CAST('x' AS INTEGER)", {})

    with pytest.raises(AssertionError, match="went on after an error"):
        store.engine.write("test", work)


# One process


def script(tmp_path: Path, body: str) -> subprocess.Popen[str]:
    """A process with an open store of its own, `store`."""
    opening = (
        "import sys\n"
        "from rota.storage.store import open_store\n"
        "from tests.conformance.support import *\n"
        "store = open_store(sys.argv[1])\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", opening + body, f"duckdb:///{tmp_path}/rota.duckdb"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
    )


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_second_process_is_told_who_has_the_file(tmp_path: Path) -> None:
    with script(tmp_path, "print('open', flush=True); sys.stdin.readline()") as holder:
        assert heard(holder) == "open"
        with pytest.raises(Unavailable, match=rf"in use by process {holder.pid} .*stop it"):
            open_store(f"duckdb:///{tmp_path}/rota.duckdb")
        holder.communicate("\n")
    open_store(f"duckdb:///{tmp_path}/rota.duckdb").close()


WRITE_FOR_EVER = """
store.migrate()
put_job(store)
put_schedule(store, expr="1s", overlap="queue", overlap_key="line")
for number in range(10**9):
    made = enqueue_many(store, 3, concurrency_key="key", concurrency_limit=2)
    print(" ".join(made), flush=True)
    tick(store)
    for run in claim(store, 4):
        settle(store, run, "failed" if number % 3 else "succeeded")
    if number % 10 == 9:
        store.write(operations.prune_runs, "succeeded", age_seconds=0, keep_last=5, limit=5)
"""


@pytest.mark.parametrize("commits", [1, 7, 25])
def test_what_was_committed_before_a_kill_is_there_after_it(tmp_path: Path, commits: int) -> None:
    with script(tmp_path, WRITE_FOR_EVER) as doomed:
        promised = [heard(doomed).split() for _ in range(commits)]
        doomed.send_signal(signal.SIGKILL)
        # Nobody knows how far it came before it died; all that it said counts.
        assert doomed.stdout is not None
        promised += [line.split() for line in doomed.stdout]
    store = open_store(f"duckdb:///{tmp_path}/rota.duckdb")
    store.check_schema()
    found = {
        run_id
        for made in promised
        for run_id in made
        if store.read(operations.run_ids, run_id, limit=1)
    }
    lost = sum(map(len, promised)) - len(found)
    assert lost <= 5 * (len(promised) // 10)  # those were pruned
    seqs = [run.seq for run in all_runs(store)]
    enqueue(store)
    assert all_runs(store)[-1].seq > max(seqs)
    held = store.engine.read(lambda tx: tx.all("slot_owners_after", after=0, limit=99))
    owners = [row["owner_run"] for row in held]
    assert len(owners) == len(set(owners)) <= 3
    store.close()


def test_a_forked_child_is_told_that_the_store_is_its_parents(store: Store) -> None:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:  # nothing of pytest may run here
        try:
            store.now()
            os.write(write_end, b"read")
        except Unavailable as fault:
            os.write(write_end, str(fault).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert b"belongs to one process" in os.read(read_end, 9_999)
    os.close(read_end)
    os.close(write_end)
    store.now()


# Files


def test_a_file_that_is_called_like_a_schema_of_ours_is_refused(tmp_path: Path) -> None:
    for name in ("_rota", "_rota_data", "_ROTA"):
        with pytest.raises(Invalid, match="give the file another name"):
            open_store(f"duckdb:///{tmp_path}/{name}.duckdb")


def test_the_users_own_tables_stay_and_a_renamed_file_is_the_same_store(tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "warehouse.duckdb") as own:
        own.execute("CREATE TABLE sales AS SELECT 7 AS amount")
    store = open_store(f"duckdb:///{tmp_path}/warehouse.duckdb")
    store.migrate()
    put_job(store)
    put_schedule(store)
    run_id = enqueue(store)
    store.close()
    (tmp_path / "warehouse.duckdb").rename(tmp_path / 'it\'s "new".duckdb')
    store = open_store(f'duckdb:///{tmp_path}/it\'s "new".duckdb')
    assert states(store, [run_id]) == ["queued"]
    settle(store, claim_one(store))
    store.close()
    with duckdb.connect(tmp_path / 'it\'s "new".duckdb') as own:
        assert own.execute("SELECT amount FROM sales").fetchall() == [(7,)]


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.duckdb").write_text("hello" * 1_000)
    with pytest.raises(StorageError, match="not a DuckDB database"):
        open_store(f"duckdb:///{tmp_path}/text.duckdb")


def test_a_table_that_is_gone_is_named(store: Store, place: DuckdbPlace) -> None:
    place.execute(f"DROP TABLE {place.table('runs')}")
    with pytest.raises(WrongSchema, match="runs does not exist"):
        all_runs(store)


def test_the_statements_have_the_names_they_have_on_sqlite() -> None:
    named = [set(load_statements(engine, {})) for engine in ("duckdb", "sqlite")]
    assert named[0] == named[1]
