"""Pace: however long the scheduler would sleep, it hears of all that makes a schedule due sooner.

In real time, with a pace of an hour: whatever it does not hear of does not happen here. Two apps
on one store are what two processes would be: each has its own connections and its own loops.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.model.schedule import Schedule
from rota.storage import operations
from tests.api.support import PATIENCE, SHORT_LEASE, plain, wait_until
from tests.conformance.support import CONTROL

MakeApp = Callable[..., rota.Rota]

ASLEEP = {"pace": "1h"}


@pytest.fixture
def make_app(make_app: MakeApp) -> MakeApp:
    return lambda **settings: make_app(scheduler=ASLEEP, **settings)


@pytest.fixture
def app(make_app: MakeApp) -> rota.Rota:
    return make_app()


def delayed(app: rota.Rota, **options: Any) -> Any:
    """A job `tick` that begins again a moment after its end."""

    @app.job("tick", every="100ms", anchor="delay", **options)
    def tick() -> None: ...

    return tick


def ended(app: rota.Rota) -> int:
    return sum(run.finished_at is not None for run in app.runs("tick"))


def first_run(app: rota.Rota) -> str:
    wait_until(lambda: app.runs("tick"), "the first run")
    return app.runs("tick")[-1].id


def goes_on(app: rota.Rota, count: int = 3) -> None:
    wait_until(lambda: len(app.runs("tick")) >= count, f"run {count}")


# The end of a run


@pytest.mark.each_engine
def test_a_delay_schedule_goes_on_after_each_run(app: rota.Rota) -> None:
    delayed(app)
    app.start()
    wait_until(lambda: ended(app) >= 3, "three runs")


def test_a_delay_schedule_goes_on_after_a_run_that_another_process_worked_on(
    make_app: MakeApp,
) -> None:
    scheduler, worker = make_app(), make_app()
    for app in (scheduler, worker):
        delayed(app)
    scheduler.start(only=["scheduler"])
    worker.start(only=["worker"])
    wait_until(lambda: ended(scheduler) >= 3, "three runs")


def test_a_delay_schedule_goes_on_after_a_run_that_died(app: rota.Rota) -> None:
    @app.job("tick", every="100ms", anchor="delay", max_attempts=1)
    def tick() -> None:
        raise ValueError("no")

    app.start()
    wait_until(lambda: ended(app) >= 3, "three runs")
    assert {run.state for run in app.runs("tick") if run.finished_at} == {"dead"}


def test_a_delay_schedule_goes_on_after_a_run_whose_worker_is_gone(make_app: MakeApp) -> None:
    app = make_app(max_lost=1, lease=SHORT_LEASE)
    delayed(app)
    app.start(only=["scheduler"])
    lost = first_run(app)
    gone = timedelta(milliseconds=1)
    app.storage.write(operations.claim, "gone", queues=(), jobs=["tick"], limit=1, lease=gone)
    goes_on(app, 2)
    assert app.storage.read(operations.get_run, lost).state == "dead"


def test_a_delay_schedule_goes_on_after_a_run_that_an_operator_ended(app: rota.Rota) -> None:
    began = threading.Event()

    @app.job("tick", every="100ms", anchor="delay")
    def tick(ctx: rota.Context) -> None:
        if not began.is_set():
            began.set()
            assert not ctx.wait(PATIENCE), "it was cancelled"

    app.start()
    assert began.wait(PATIENCE)
    first = app.control.cancel(first_run(app)).id
    goes_on(app)
    assert app.storage.read(operations.get_run, first).state == "cancelled"


# A run that never begins


@pytest.mark.parametrize("end", ["cancel", "delete"])
@pytest.mark.parametrize("other", [False, True], ids=["here", "elsewhere"])
def test_a_delay_schedule_goes_on_after_a_run_that_never_began(
    make_app: MakeApp, end: str, other: bool
) -> None:
    """By this process, or by another one that has neither scheduler nor worker."""
    app = make_app()
    delayed(app)
    app.start(only=["scheduler"])
    asking = make_app() if other else app
    for number in (1, 2):
        goes_on(app, number if end == "cancel" else 1)
        (waiting,) = [run for run in app.runs("tick") if run.state == "queued"]
        getattr(asking.control, end)(waiting.id)
    wait_until(lambda: any(run.state == "queued" for run in app.runs("tick")), "one more run")


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_delay_schedule_goes_on_after_a_run_that_sql_cancelled(
    app: rota.Rota, database: str
) -> None:
    delayed(app)
    app.start(only=["scheduler"])
    for number in (1, 2):
        goes_on(app, number)
        (waiting,) = [run for run in app.runs("tick") if run.state == "queued"]
        with plain(database) as client:
            client.execute("SELECT rota.cancel_run(%s)", (waiting.id,))
    goes_on(app)


def test_a_delay_schedule_goes_on_after_an_occurrence_that_was_skipped(app: rota.Rota) -> None:
    delayed(app, overlap="skip")
    app.load()
    app.control.pause_dispatch()
    manual = app.control.trigger_job("tick").id
    app.start()

    def skipped() -> int:
        found = app.control.occurrences("tick")
        return sum(row["outcome"] == "skipped" for row in found)

    wait_until(lambda: skipped() >= 3, "three occurrences without a run")
    app.control.resume_dispatch()
    wait_until(lambda: ended(app) >= 3, "it and two more runs")
    assert app.storage.read(operations.get_run, manual).state == "succeeded"


# Definitions, and what operators do, at a process that has no scheduler


@contextmanager
def sleeping(app: rota.Rota) -> Iterator[None]:
    """A scheduler that has fired all there was, and has gone to sleep."""
    app.job("over", at="2020-01-01T00:00:00Z")(lambda: None)
    app.start(only=["scheduler"])
    wait_until(lambda: app.runs("over"), "its first look")
    yield
    goes_on(app, 1)


def test_a_schedule_of_a_program_that_only_loads_it_begins_on_time(make_app: MakeApp) -> None:
    with sleeping(make_app()):
        other = make_app()
        other.job("tick")(lambda: None)
        other.schedule("often", job="tick", every="100ms")
        other.load()


def test_a_schedule_of_a_process_that_only_works_begins_on_time(make_app: MakeApp) -> None:
    with sleeping(make_app()):
        worker = make_app()
        worker.job("tick", every="100ms")(lambda: None)
        worker.start(only=["worker"])


def test_a_schedule_of_a_file_begins_on_time(make_app: MakeApp, tmp_path: Path) -> None:
    with sleeping(make_app()):
        (tmp_path / "jobs.d").mkdir()
        (tmp_path / "jobs.d" / "tick.py").write_text("every = '100ms'\ndef run(ctx): ...\n")
        make_app(jobs_dir=str(tmp_path / "jobs.d")).load()


def ask(database: str, engine: str, statement: str) -> None:
    with plain(database) as client:
        client.execute(f"INSERT INTO {CONTROL[engine]} (statement) VALUES ('{statement}')")


def call(database: str, engine: str) -> None:
    if engine != "postgres":
        pytest.skip("only PostgreSQL has functions")
    with plain(database) as client:
        client.execute("SELECT rota.resume_schedule('often')")


@pytest.mark.parametrize("way", ["operator", "row", "function"])
def test_a_schedule_that_is_resumed_elsewhere_goes_on_at_once(
    make_app: MakeApp, database: str, engine: str, way: str
) -> None:
    other = make_app()
    other.job("tick")(lambda: None)
    other.schedule("often", job="tick", every="100ms")
    other.control.pause("often")
    ways: dict[str, Callable[[], object]] = {
        "operator": lambda: other.control.resume("often"),
        "row": lambda: ask(database, engine, "RESUME SCHEDULE often"),
        "function": lambda: call(database, engine),
    }
    with sleeping(make_app()):
        ways[way]()


def test_a_schedule_that_an_operator_makes_elsewhere_begins_on_time(make_app: MakeApp) -> None:
    other = make_app()
    other.job("tick")(lambda: None)
    other.load()
    with sleeping(make_app()):
        other.control.put_schedule(Schedule(name="often", job="tick", kind="every", expr="100ms"))


PROGRAM = """
import rota, sys
app = rota.Rota(sys.argv[1])
app.job("tick", every="100ms")(lambda: None)
app.load()
"""


@pytest.mark.each_engine
def test_a_schedule_of_a_program_that_ends_at_once_begins_on_time(
    make_app: MakeApp, database: str, engine: str
) -> None:
    if engine == "duckdb":
        pytest.skip("a DuckDB store belongs to one process")
    with sleeping(make_app()):
        subprocess.run([sys.executable, "-c", PROGRAM, database], check=True)
