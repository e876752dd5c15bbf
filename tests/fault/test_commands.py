"""A command's children, grandchildren and strays are gone after its timeout and with its worker."""

import os
import signal
import threading
from pathlib import Path

import pytest

from rota.storage import operations
from rota.storage.store import Store
from tests.fault.harness import processes
from tests.fault.test_workers import _alive, _ready, enqueue, outcomes, wait_for


def family(file: Path, attempt: int) -> list[int]:
    """The processes of an attempt: command, supervisor, child, and two strays."""
    pause = threading.Event()
    for _ in range(600):
        for line in file.read_text().splitlines() if file.exists() else ():
            number, *pids = map(int, line.split())
            if number == attempt:
                return pids
        pause.wait(0.1)
    raise AssertionError(f"no family of attempt {attempt}")


def gone(pids: list[int]) -> bool:
    pause = threading.Event()
    for _ in range(600):
        if not any(map(_alive, pids)):
            return True
        pause.wait(0.05)
    return False


def test_a_timeout_leaves_nothing_of_a_command(store: Store, database: str, tmp_path: Path) -> None:
    file = tmp_path / "family"
    with processes("commands", database, 1, ROTA_TEST_FAMILY=str(file)) as (worker,):
        _ready(store)
        run_id = enqueue(database, "brief")
        pids = family(file, 1)
        assert len(pids) == 5
        assert all(map(_alive, pids))
        dead = wait_for(store, run_id, "dead")
        # Not after a while: the run has ended when they are gone.
        assert not any(map(_alive, [pid for pid in pids if pid != pids[1]]))
        assert worker.stop() == 0
    assert dead.error == "timed out after 5s"
    assert outcomes(store, dead) == ["timed_out"]


def test_a_killed_worker_takes_its_commands_along(
    store: Store, database: str, tmp_path: Path
) -> None:
    file = tmp_path / "family"
    environment = {"ROTA_TEST_FAMILY": str(file), "ROTA_GRACE": "1s"}
    with processes("commands", database, 1, **environment) as (worker,):
        _ready(store)
        forked = wait_for(store, enqueue(database, "fork"), "succeeded")
        run_id = enqueue(database, "family")
        first = family(file, 1)
        assert len(first) == 5
        again = wait_for(store, enqueue(database, "fork"), "succeeded")
        assert all(map(_alive, first))
        worker.kill()
        try:
            assert gone(first)
        finally:
            for run in (forked, again):
                os.kill(int(run.result or 0), signal.SIGKILL)
        worker.start()
        second = family(file, 2)
        assert not set(first) & set(second)
        worker.stop()
        assert gone(second)
    run = store.read(operations.get_run, run_id)
    assert (run.lost, run.failures) == (1, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_stops_ends_its_commands(
    store: Store, database: str, tmp_path: Path, number: int
) -> None:
    file = tmp_path / "family"
    with processes("commands", database, 1, ROTA_TEST_FAMILY=str(file), ROTA_GRACE="1s") as (
        worker,
    ):
        _ready(store)
        run_id = enqueue(database, "family")
        pids = family(file, 1)
        worker.signal(number)
        assert worker.popen.wait(60) == 0
        assert gone(pids)
    released = store.read(operations.get_run, run_id)
    assert (released.state, released.failures, released.lost) == ("queued", 0, 0)
