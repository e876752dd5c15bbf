"""Workers that freeze, die and hang, as real processes under real signals."""

import os
import re
import signal
import threading
from pathlib import Path

import rota
from rota.model.run import Run
from rota.storage import operations
from rota.storage.store import Store
from tests.fault.campaign import until
from tests.fault.harness import PATIENCE, Process, processes
from tests.fault.mishaps import others_can_write


def wait_for(store: Store, run_id: str, *states: str) -> Run:
    """Look until the run is in one of the states."""
    pause = threading.Event()
    for _ in range(600):
        run = store.read(operations.get_run, run_id)
        if run.state in states:
            return run
        pause.wait(0.1)
    raise AssertionError(f"run is {run.state}, not {states}: {run.error}")


def enqueue(database: str, job: str, **args: object) -> str:
    client = rota.Rota(database)
    try:
        return client.enqueue(job, args).id
    finally:
        client.close()


def freeze(process: Process, database: str) -> None:
    """SIGSTOP, at a moment when it holds no lock that everybody needs."""
    while True:
        process.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.popen.pid, os.WSTOPPED | os.WNOWAIT)
        if others_can_write(database, seconds=0.2):  # short: its lease must outlast looks that fail
            return
        process.signal(signal.SIGCONT)
        threading.Event().wait(0.1)


def outcomes(store: Store, run: Run) -> list[str]:
    return [attempt.outcome for attempt in store.read(operations.list_attempts, run.seq, limit=20)]


def test_a_worker_frozen_past_its_lease_cannot_settle_when_it_wakes(
    store: Store, database: str, tmp_path: Path
) -> None:
    over = tmp_path / "over"
    with processes("sleeper", database, 1) as (frozen,):
        frozen_pid = str(frozen.popen.pid)
        _ready(store)
        run_id = enqueue(database, "sleep", until=str(over))
        frozen.wait_line("start", run_id, 1)
        freeze(frozen, database)
        with processes("sleeper", database, 1) as (other,):
            other.wait_line("end", run_id, 2)
            done = wait_for(store, run_id, "succeeded")
            over.touch()
            frozen.signal(signal.SIGCONT)
            frozen.wait_line("end", run_id, 1, frozen_pid)
            assert frozen.stop() == 0
            late = store.read(operations.get_run, run_id)
    assert done.result == late.result == '"attempt 2"'
    assert (late.attempt, late.lost, late.failures) == (2, 1, 0)
    assert outcomes(store, late) == ["lost", "succeeded"]


def test_a_killed_worker_costs_no_attempt_until_max_lost(store: Store, database: str) -> None:
    with processes("sleeper", database, 1) as (worker,):
        _ready(store)
        run_id = enqueue(database, "poison")
        for attempt in (1, 2, 3):
            worker.wait_line("start", run_id, attempt)
            worker.kill()
            worker.start()
        run = wait_for(store, run_id, "dead")
    assert (run.lost, run.failures, run.max_attempts) == (3, 0, 1)
    assert outcomes(store, run) == ["lost", "lost", "lost"]


def test_a_handler_stuck_in_c_is_killed_with_its_children_and_frees_its_slot(
    store: Store, database: str
) -> None:
    with processes("stubborn", database, 1) as (worker,):
        _ready(store)
        # A child that has been used is there at once: none of the timeout goes by with its start.
        wait_for(store, enqueue(database, "after"), "succeeded")
        hang, after = enqueue(database, "hang"), enqueue(database, "after")
        dead = wait_for(store, hang, "dead")
        assert wait_for(store, after, "succeeded").result == '"ran"'
        assert worker.stop() == 0
    assert dead.error == "timed out after 4s"
    assert outcomes(store, dead) == ["timed_out"]
    told = store.read(operations.list_logs, dead.seq, limit=10)[0]["text"]
    for pid in re.findall(r"\d+", told):
        assert not _alive(int(pid)), told


def test_a_second_signal_ends_the_process_at_once(store: Store, database: str) -> None:
    with processes("sleeper", database, 1) as (worker,):
        _ready(store)
        run_id = enqueue(database, "poison")
        worker.wait_line("start", run_id, 1)
        worker.signal(signal.SIGTERM)
        until(
            lambda: store.read(operations.list_workers, limit=1)[0]["slots"] == 0,
            "it is stopping",
            PATIENCE,
        )
        # A terminal or a supervisor may send one signal twice: only a later one counts.
        threading.Event().wait(1.0)
        worker.signal(signal.SIGTERM)
        assert worker.popen.wait(20) == 130


def test_a_stop_is_heard_though_another_thread_got_the_signal(store: Store, database: str) -> None:
    with processes("sleeper", database, 1) as (worker,):
        _ready(store)
        enqueue(database, "ask_to_stop")
        assert worker.popen.wait(20) == 0


def _ready(store: Store) -> None:
    """Until the process has registered its jobs, an enqueue would be refused."""
    pause = threading.Event()
    for _ in range(300):
        if store.read(operations.list_jobs, limit=1) and store.read(
            operations.list_workers, limit=1
        ):
            return
        pause.wait(0.1)
    raise AssertionError("no worker came up")


def _alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return status != "Z"
