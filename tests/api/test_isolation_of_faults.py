"""One bad thing never stops another: outcomes that cannot be stored, odd executors, listeners."""

import os
import sqlite3
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rota
from rota.executors.protocol import Context
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.run import Run
from rota.testing import in_memory
from tests.api.support import execution_of, run_out, wait_until

PATIENCE = 30.0


def wait_for(app: rota.Rota, run_id: str, *states: str) -> Run:
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.05)):
        run = app.control.run(run_id)
        if run.state in states:
            return run
        pause.wait(0.05)
    raise AssertionError(f"run is {run.state}: {run.error}")


@pytest.fixture
def app(tmp_path: Path) -> Any:
    made = rota.Rota(f"sqlite:///{tmp_path / 'rota.db'}", slots=2)
    yield made
    made.stop(grace="0s")


def unharmed(run: Run) -> bool:
    """None of its attempts failed or was lost, however many a busy worker gave back."""
    return (run.failures, run.lost) == (0, 0)


class Odd:
    """An executor that answers as it likes."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def check(self, job: Job) -> None: ...

    def run(self, context: Context) -> Any:
        return self.answer() if callable(self.answer) else self.answer


@pytest.mark.parametrize(
    "answer",
    [None, "done", 5, lambda: Outcome(kind="succeeded", result={"a": 1})],  # type: ignore[arg-type]
)
def test_an_executor_that_answers_nonsense_fails_its_runs_and_no_others(
    app: rota.Rota, answer: Any
) -> None:
    app.executor("odd", Odd(answer))
    app.add_job(Job(name="odd", executor="odd"))

    @app.job()
    def good() -> str:
        return "fine"

    app.start()
    odd = [app.enqueue("odd", max_attempts=1).id for _ in range(4)]
    assert unharmed(wait_for(app, good.enqueue().id, "succeeded"))
    for run_id in odd:
        assert wait_for(app, run_id, "dead").lost == 0


def test_an_outcome_that_the_store_refuses_is_a_failed_attempt(app: rota.Rota) -> None:
    refused = Outcome(kind="succeeded", result="fine")
    msgspec.structs.force_setattr(refused, "result", object())
    app.executor("odd", Odd(refused))
    app.add_job(Job(name="odd", executor="odd"))

    @app.job()
    def good() -> None: ...

    app.start()
    odd = app.enqueue("odd", max_attempts=1).id
    assert unharmed(wait_for(app, good.enqueue().id, "succeeded"))
    assert "could not be stored" in str(wait_for(app, odd, "dead").error)


def test_a_slow_listener_delays_no_settle(app: rota.Rota) -> None:
    told, go_on = threading.Event(), threading.Event()

    @app.on("job.completed")
    def slow(event: Any) -> None:
        told.set()
        go_on.wait(PATIENCE)

    @app.job()
    def work() -> None: ...

    app.start()
    first = work.enqueue().id
    assert told.wait(PATIENCE)
    others = [work.enqueue().id for _ in range(5)]
    for run_id in (first, *others):
        assert unharmed(wait_for(app, run_id, "succeeded"))
    go_on.set()


def test_a_listener_that_exits_harms_nobody(app: rota.Rota) -> None:
    heard = []

    @app.on("job.completed")
    def leave(event: Any) -> None:
        heard.append(event.run_id)
        sys.exit(3)

    @app.job()
    def work() -> None: ...

    app.start()
    runs = [work.enqueue().id for _ in range(3)]
    for run_id in runs:
        wait_for(app, run_id, "succeeded")
    app.stop()
    assert sorted(heard) == sorted(runs)


def test_a_long_write_on_the_store_itself_costs_no_attempt(
    tmp_path: Path, awake: None, request: pytest.FixtureRequest
) -> None:
    app = rota.Rota(f"sqlite:///{tmp_path / 'rota.db'}", lease="5s")
    request.addfinalizer(lambda: app.stop(grace="0s"))

    @app.job(max_attempts=1)
    def long(ctx: rota.Context) -> str:
        ctx.db.execute("CREATE TABLE IF NOT EXISTS mine (attempt INTEGER)")
        ctx.db.execute("BEGIN IMMEDIATE")
        ctx.db.execute("INSERT INTO mine VALUES (?)", (ctx.attempt,))
        time.sleep(7)  # longer than the lease; nothing else can write meanwhile
        ctx.db.execute("COMMIT")
        return f"attempt {ctx.attempt}"

    app.start()
    run = wait_for(app, long.enqueue().id, "succeeded", "dead")
    assert (run.state, run.attempt, run.lost) == ("succeeded", 1, 0)


def test_a_cancelled_thread_that_goes_on_still_times_out(app: rota.Rota) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @app.job(timeout="1h", isolation="thread", max_attempts=1)
    def deaf() -> None:
        begun.set()
        go_on.wait(PATIENCE)

    app.start()
    run_id = deaf.enqueue().id
    assert begun.wait(PATIENCE)
    app.control.cancel(run_id)
    execution = execution_of(app, run_id)
    wait_until(lambda: execution.context.stop_reason == "cancelled", "the cancel was heard")
    run_out(execution, timedelta(milliseconds=100))
    assert wait_for(app, run_id, "cancelled", "dead").state == "cancelled"
    go_on.set()


def test_a_test_never_reaches_the_database_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "production.db"
    app = rota.Rota(f"sqlite:///{file}")

    @app.job()
    def write(ctx: rota.Context) -> None:
        ctx.db.execute("CREATE TABLE oops (n INTEGER)")

    with in_memory(app) as test:
        write.enqueue()
        assert [run.state for run in test.drain()] == ["succeeded"]
    assert not file.exists()


def test_a_forked_process_uses_connections_of_its_own(tmp_path: Path) -> None:
    app = rota.Rota(f"sqlite:///{tmp_path / 'rota.db'}")

    @app.job()
    def work() -> None: ...

    work.enqueue()
    child = os.fork()
    if child == 0:
        try:
            work.enqueue()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    work.enqueue()
    assert len(app.runs("work")) == 3
    app.close()
    check = sqlite3.connect(tmp_path / "rota.db")
    assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    check.close()


def test_a_handler_that_changes_the_folder_does_not_take_the_store_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    monkeypatch.chdir(home)
    app = rota.Rota("sqlite:///rota.db")

    @app.job()
    def wander() -> None:
        os.chdir(away)

    app.load()
    app.start()
    try:
        for _ in range(2):
            wait_for(app, wander.enqueue().id, "succeeded")
        app.storage.engine._readers.clear()  # the next ones are opened from there
        assert len(app.runs("wander")) == 2
    finally:
        app.stop()
    assert list(away.iterdir()) == []
