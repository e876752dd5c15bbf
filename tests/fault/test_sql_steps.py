"""SIGKILL at every point of a SQL job on the store: each step's effect is there exactly once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from rota.executors.sql import SqlExecutor
from rota.executors.targets import Targets, connect
from rota.flow.notes import Notes
from rota.flow.run import Execution, Owner, execute
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.outcome import settle as decide
from rota.model.retry import ONCE
from rota.model.run import ClaimedRun, NewRun
from rota.storage import operations
from rota.storage.engine import Probe
from rota.storage.store import Store, open_store
from tests.fault.parts import STEPS, call_of

pytestmark = pytest.mark.timeout(240)

LEASE = timedelta(seconds=0.1)
NEVER_CRASHED = ("steps.has_mark", "steps.prune_texts", "steps.end_step", "steps.finish_step")
MOST_POINTS = 500


@pytest.fixture(params=["sqlite", "postgres", "duckdb"])
def database(request: pytest.FixtureRequest, quick_folder: Path) -> str:
    """One process at a time has it: that is all that DuckDB needs."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_url")
        return url
    return f"{request.param}:///{quick_folder / 'rota.db'}"


class Kill:
    """Ends this process at the nth point; writes down the names of the points before."""

    def __init__(self, number: int, path: Path) -> None:
        self.left, self.path = number, path

    def __call__(self, point: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{point}\n")
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def make_job(folder: Path) -> Job:
    folder.mkdir()
    for number in (1, 2, 3):
        text = f"INSERT INTO effects (run, step) VALUES ('${{ROTA_RUN_ID}}', {number})"
        (folder / f"{number}.sql").write_text(text)
    spec = {"folder": str(folder), "files": ["1.sql", "2.sql", "3.sql"]}
    return Job(name="job", executor="sql", source="file", spec=spec)


def prepare(database: str, job: Job) -> None:
    store = open_store(database)
    store.migrate()
    store.write(operations.put_jobs, [job])
    store.close()
    connection = connect(database)
    connection.execute("CREATE TABLE effects (run TEXT, step INTEGER)")
    connection.close()


def enqueue(database: str) -> str:
    store = open_store(database)
    run = NewRun(id=str(uuid4()), job="job", queue="default", args="{}")
    store.write(operations.enqueue, [run])
    store.close()
    return run.id


def in_child(work: Callable[[], None]) -> int:
    """Run it in a process of its own, begun by a fork; the pid."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException as fault:
            os.write(2, f"{fault!r}\n".encode())
            os._exit(1)
    return pid


def wait_for(pid: int) -> int:
    """0, or the number of the signal that ended it, below zero."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def work_once(
    database: str, job: Job, probe: Probe | None = None, target: str | None = None
) -> None:
    """What a worker does with a run: rescue what is lost, claim, run, settle."""
    store = open_store(database, probe=probe)
    give_up_at = time.monotonic() + 20
    while not (claimed := claim(store)):
        assert time.monotonic() < give_up_at, "there is nothing to claim"
        lost = Outcome(kind="lost", error="its worker was lost")
        store.write(
            operations.settle,
            [
                decide(run, lost, retry=ONCE, max_lost=3)
                for run in store.read(operations.expired_runs, 10)
            ],
        )
        time.sleep(0.01)
    (run,) = claimed

    def done(execution: Execution, outcome: Outcome) -> None:
        assert outcome.kind == "succeeded", outcome.error
        store.write(operations.settle, [decide(run, outcome, retry=ONCE, max_lost=3)])

    owner = Owner(
        store=store,
        notes=Notes(store),
        lease=LEASE,
        target=Targets(
            store=database,
            named={"there": target} if target else {},
            default="there" if target else "store",
        ),
        done=done,
    )
    execute(Execution(run, job, owner), SqlExecutor().run)
    store.close()


def claim(store: Store) -> list[ClaimedRun]:
    return store.write(operations.claim, "worker", queues=[], jobs=["job"], limit=1, lease=LEASE)


def check(database: str, run_id: str, where: str) -> None:
    store = open_store(database)
    assert store.read(operations.get_run, run_id).state == "succeeded", where
    store.close()
    connection = connect(database)
    found = connection.execute(
        f"SELECT step FROM effects WHERE run = '{run_id}' ORDER BY step"
    ).fetchall()
    connection.close()
    assert found == [(1,), (2,), (3,)], where


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.long)])
def test_a_kill_at_any_point_leaves_each_effect_once(
    database: str, tmp_path: Path, stride: int
) -> None:
    job = make_job(tmp_path / "job")
    prepare(database, job)
    met: set[str] = set()
    for number in range(1, MOST_POINTS, stride):
        points = tmp_path / f"points{number}"
        run_id = enqueue(database)
        probe = Kill(number, points)
        ended = wait_for(in_child(lambda probe=probe: work_once(database, job, probe)))  # type: ignore[misc]
        names = points.read_text().splitlines()
        met |= {call_of(name) for name in names}
        assert ended in (0, -signal.SIGKILL), names[-1]
        state = open_store(database)
        over = state.read(operations.get_run, run_id).state == "succeeded"
        state.close()
        if not over:
            assert wait_for(in_child(lambda: work_once(database, job))) == 0, names[-1]
        check(database, run_id, names[-1])
        if ended == 0:
            break
    else:
        pytest.fail("the points have no end")
    assert number > 30
    assert met >= set(STEPS) - set(NEVER_CRASHED)


@pytest.mark.parametrize("times", [8, pytest.param(100, marks=pytest.mark.long)])
def test_a_kill_at_any_moment_leaves_each_effect_once(
    database: str, tmp_path: Path, times: int
) -> None:
    job = make_job(tmp_path / "job")
    prepare(database, job)
    enqueue(database)
    began = time.monotonic()
    assert wait_for(in_child(lambda: work_once(database, job))) == 0
    whole = time.monotonic() - began  # what it takes on this machine, now
    luck, killed = random.Random(1), 0
    for _ in range(times):
        run_id = enqueue(database)
        pid, began = in_child(lambda: work_once(database, job)), time.monotonic()
        time.sleep(luck.uniform(0.0, whole))
        os.kill(pid, signal.SIGKILL)
        if wait_for(pid) != 0:
            killed += 1
        else:  # it takes no longer than that
            whole = min(whole, time.monotonic() - began)
        state = open_store(database)
        over = state.read(operations.get_run, run_id).state == "succeeded"
        state.close()
        if not over:
            assert wait_for(in_child(lambda: work_once(database, job))) == 0
        check(database, run_id, "at some moment")
    assert killed


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_after_a_kill_a_file_finds_what_an_earlier_one_attached(kind: str, tmp_path: Path) -> None:
    """On a target beside the store, where the files of a run share their session."""
    database, target = f"sqlite:///{tmp_path / 'rota.db'}", f"{kind}:///{tmp_path / 'data'}"
    folder, files = tmp_path / "job", ["1.sql", "2.sql"]
    folder.mkdir()
    (folder / "1.sql").write_text(
        f"ATTACH '{tmp_path / 'source'}' AS source; INSERT INTO effects VALUES ('a', 1)"
    )
    (folder / "2.sql").write_text("INSERT INTO effects SELECT 'b', i FROM source.orders")
    spec = {"folder": str(folder), "files": files}
    job = Job(name="job", executor="sql", source="file", spec=spec)
    prepare(database, job)
    for url, made in (
        (target, "effects (run TEXT, step INTEGER)"),
        (f"{kind}:///{tmp_path / 'source'}", "orders AS SELECT 2 AS i"),
    ):
        connection = connect(url)
        connection.execute(f"CREATE TABLE {made}")
        connection.close()
    run_id = enqueue(database)

    def kill(point: str) -> None:
        """As the second file begins: it is the only one that shows itself a second time."""
        seen.append(point)
        if seen.count("steps.begin_step.commit.after") == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    seen: list[str] = []
    assert wait_for(in_child(lambda: work_once(database, job, kill, target))) == -signal.SIGKILL
    assert wait_for(in_child(lambda: work_once(database, job, target=target))) == 0
    store = open_store(database)
    run = store.read(operations.get_run, run_id)
    assert run.state == "succeeded"
    steps = store.read(operations.list_steps, run.seq)
    begun = [(step["name"], step["attempt"]) for step in steps]
    assert begun == [("1.sql", 1), ("2.sql", 1), ("2.sql", 2)]
    store.close()
    connection = connect(target)
    found = connection.execute("SELECT run, step FROM effects ORDER BY run").fetchall()
    connection.close()
    assert found == [("a", 1), ("b", 2)]
