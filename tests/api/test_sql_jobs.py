"""SQL jobs in a running app: leases, deadlines and operators, with real loops."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

import rota
from rota.executors.targets import connect
from rota.model.job import Job
from rota.model.retry import ONCE
from rota.model.run import Run
from tests.api.support import execution_of, run_out, wait_until
from tests.executors.sql_support import NEVER_ENDS

MakeApp = Callable[..., rota.Rota]


def slow_statement(engine: str, seconds: float) -> str:
    """SQL that takes about so long, or longer. File engines cannot sleep: they count as far as they
    come in so much time of their processors, whoever else uses these."""
    if engine == "postgres":
        return f"SELECT pg_sleep({seconds})"
    count, tried, own, clock, processors = {
        "sqlite": (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) "
            "SELECT count(*) FROM n",
            500_000,
            sqlite3.connect,
            time.thread_time,
            1,
        ),
        "duckdb": (
            "SELECT count(*) FROM range({}) AS a(x), range(1000) AS b(y) WHERE hash(x * y) % 7 = 3",
            20_000,
            duckdb.connect,
            time.process_time,
            os.cpu_count() or 1,
        ),
    }[engine]
    connection: Any = own(":memory:")
    began = clock()
    connection.execute(count.format(tried)).fetchall()
    used = clock() - began
    connection.close()
    return count.format(int(tried * seconds * processors / used))


def add_sql(app: rota.Rota, folder: Path, *files: str, spec: Any = None, **options: Any) -> Job:
    folder.mkdir(exist_ok=True)
    names = [f"{number:02}.sql" for number in range(1, len(files) + 1)]
    for name, text in zip(names, files, strict=True):
        (folder / name).write_text(text)
    told = {"folder": str(folder), "files": names, **(spec or {})}
    job = Job(name=folder.name, executor="sql", source="file", spec=told, retry=ONCE, **options)
    app.add_job(job)
    return job


def ended(app: rota.Rota, run_id: str, patience: int = 1) -> Run:
    states = ("succeeded", "dead", "cancelled", "paused")
    for left in reversed(range(patience)):
        with suppress(AssertionError) if left else nullcontext():
            wait_until(lambda: app.control.run(run_id).state in states, "the run ended")
            break
    return app.control.run(run_id)


def running(app: rota.Rota, run_id: str, name: str) -> bool:
    return any(
        (step["name"], step["status"]) == (name, "running") for step in app.control.steps(run_id)
    )


def rows(database: str, sql: str) -> list[Any]:
    connection = connect(database)
    try:
        return list(connection.execute(sql).fetchall())
    finally:
        connection.close()


def hold_a_step(app: rota.Rota, engine: str, database: str, folder: Path, seconds: int) -> Run:
    """A step that lasts longer than its lease, with another worker that would rescue it."""
    slow = slow_statement(engine, seconds)
    add_sql(
        app,
        folder / "long",
        "CREATE TABLE effects (i INTEGER)",
        f"INSERT INTO effects VALUES (1); {slow}",
        "INSERT INTO effects VALUES (2)",
    )
    app.start()
    made = app.control.trigger("long")
    wait_until(lambda: running(app, made.id, "02.sql"), "the step began")
    run = ended(app, made.id, patience=10)
    assert (run.state, run.attempt, run.lost, run.error) == ("succeeded", 1, 0, None)
    assert rows(database, "SELECT i FROM effects ORDER BY i") == [(1,), (2,)]
    return run


def other_worker(make_app: MakeApp, lease: str) -> rota.Rota:
    other = make_app(lease=lease)

    @other.job
    def nothing() -> None: ...

    other.start()
    return other


@pytest.mark.timeout(300)  # eight seconds of all processors, which others may use as well
def test_a_step_longer_than_its_lease_ends_succeeded_once(
    make_app: MakeApp, engine: str, database: str, tmp_path: Path, awake: None
) -> None:
    other_worker(make_app, "5s")
    app = make_app(lease="5s")
    ticks: list[float] = []

    @app.job(every="1s")
    def tick() -> None:
        ticks.append(1)

    run = hold_a_step(app, engine, database, tmp_path, 8)
    assert run.started_at is not None
    if engine != "sqlite":  # there one step holds the whole store
        assert len(ticks) >= 2


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_step_of_a_minute_with_a_lease_of_ten_seconds(
    make_app: MakeApp, engine: str, database: str, tmp_path: Path, awake: None
) -> None:
    other_worker(make_app, "10s")
    hold_a_step(make_app(lease="10s"), engine, database, tmp_path, 60)


def test_a_timeout_interrupts_a_statement(app: rota.Rota, engine: str, tmp_path: Path) -> None:
    add_sql(app, tmp_path / "slow", NEVER_ENDS[engine], "SELECT 1", timeout="1h")
    app.start()
    made = app.control.trigger("slow")
    wait_until(lambda: running(app, made.id, "01.sql"), "the step began")
    run_out(execution_of(app, made.id), timedelta(seconds=1))
    run = ended(app, made.id)
    assert (run.state, run.error) == ("dead", "timed out after 1s")
    assert [step["status"] for step in app.control.steps(run.id)] == ["timed_out"]
    assert app.control.attempts(run.id)[0]["outcome"] == "timed_out"


def test_a_cancel_interrupts_a_statement(make_app: MakeApp, tmp_path: Path) -> None:
    target = f"duckdb:///{tmp_path}/there.duckdb"
    app = make_app(targets={"there": target}, default_target="there")
    add_sql(app, tmp_path / "slow", NEVER_ENDS["duckdb"])
    app.start()
    made = app.control.trigger("slow")
    wait_until(lambda: running(app, made.id, "01.sql"), "the step began")
    app.control.cancel(made.id, "enough")
    run = ended(app, made.id)
    assert (run.state, run.reason) == ("cancelled", "enough")


def test_a_stopping_worker_gives_a_step_back(
    make_app: MakeApp, engine: str, tmp_path: Path
) -> None:
    target = f"duckdb:///{tmp_path}/there.duckdb"
    app = make_app(targets={"there": target}, default_target="there")
    add_sql(app, tmp_path / "slow", "CREATE TABLE t (i INTEGER)", NEVER_ENDS["duckdb"])
    app.start()
    made = app.control.trigger("slow")
    wait_until(lambda: running(app, made.id, "02.sql"), "the step began")
    app.stop(grace="0s")
    run = app.control.run(made.id)
    assert (run.state, run.failures, run.lost) == ("queued", 0, 0)


def ask(ctx: rota.Context) -> str:
    return str(ctx.db.execute("SELECT 'from duck: ' || current_database()").fetchone()[0])


def test_ctx_db_is_the_target_of_the_job(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(
        targets={
            "duck": f"duckdb:///{tmp_path}/there.duckdb", "lite": f"sqlite:///{tmp_path}/lite.db",
        },
        default_target="duck",
    )  # fmt: skip

    app.job(ask)
    app.job("ask_elsewhere", isolation="process")(ask)
    app.start()
    for name in ("ask", "ask_elsewhere"):
        run = ended(app, app.control.trigger(name).id)
        assert (run.result, run.error) == ('"from duck: there"', None)
