"""SQL that only a statement knows is run by any worker; and operators stop runs between steps."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.flow.learn import Learn
from rota.model.job import Job
from rota.model.run import Run
from rota.sql.execute import VIA, Statements
from rota.storage import operations
from rota.storage.operations.audit import Actor
from tests.api.support import wait_until
from tests.api.test_sql_jobs import add_sql, ended, rows, running
from tests.support.operations import replace_operation

MakeApp = Callable[..., rota.Rota]


def run_sql(app: rota.Rota, text: str) -> list[dict[str, Any]]:
    known = Statements(app.control_as(Actor(by="analyst", via=VIA)))
    return list(known.run(text))[-1].records()


def ends_of(app: rota.Rota, schedule: str) -> list[Run]:
    return [run for run in app.control.runs(schedule=schedule) if run.finished_at is not None]


def test_any_worker_runs_the_sql_of_a_statement(
    make_app: MakeApp, engine: str, database: str
) -> None:
    worker, console = make_app(), make_app()
    worker.start()  # it has no job at all
    run_sql(console, "CREATE SCHEDULE setup AS $$ CREATE TABLE t (i INTEGER) $$ EVERY '1d'")
    assert ended(console, run_sql(console, "EXECUTE SCHEDULE setup")[0]["run_id"]).error is None
    run_sql(
        console,
        "CREATE SCHEDULE fill AS $$ INSERT INTO t VALUES (1); SELECT count(*) AS n FROM t $$ "
        "EVERY '1d' WITH SCHEDULE OPTIONS (first_run = now)",
    )
    wait_until(lambda: ends_of(console, "fill"), "the schedule fired and its run ended")
    (run,) = ends_of(console, "fill")
    assert (run.state, run.error) == ("succeeded", None)
    assert rows(database, "SELECT i FROM t") == [(1,)]
    assert [step["name"] for step in console.control.steps(run.id)] == ["sql"]

    run_sql(console, "ALTER SCHEDULE fill SET AS $$ INSERT INTO t VALUES (2) $$")
    wait_until(lambda: "VALUES (2)" in str(worker._jobs["fill"].spec), "the worker learned it")
    assert ended(console, run_sql(console, "EXECUTE SCHEDULE fill")[0]["run_id"]).error is None
    assert rows(database, "SELECT i FROM t ORDER BY i") == [(1,), (2,)]

    run_sql(console, "DROP SCHEDULE fill")
    wait_until(lambda: "fill" not in worker._jobs, "the worker forgot it")
    assert "setup" in worker._jobs
    told = worker.control.workers()
    wait_until(lambda: worker.control.workers()[0]["jobs"] == ["setup"], f"it says so: {told}")


@pytest.mark.each_engine
def test_a_worker_that_starts_later_runs_what_waits(make_app: MakeApp, database: str) -> None:
    console = make_app()
    run_sql(console, "CREATE SCHEDULE s AS $$ SELECT 42 AS answer $$ EVERY '1d'")
    (made,) = run_sql(console, "EXECUTE SCHEDULE s")
    run_sql(console, "DROP SCHEDULE s")  # what is made stays
    make_app().start()
    run = ended(console, made["run_id"])
    assert (run.state, run.error) == ("succeeded", None)
    assert "42" in str(run.result)


def test_only_workers_with_the_target_take_its_jobs(make_app: MakeApp, tmp_path: Path) -> None:
    console = make_app()
    run_sql(console, "CREATE SCHEDULE s AS $$ SELECT 1 AS one $$ ON there EVERY '1d'")
    without = make_app()
    without.start()
    (made,) = run_sql(console, "EXECUTE SCHEDULE s")
    run_sql(console, "CREATE SCHEDULE t AS $$ SELECT 1 AS one $$ EVERY '1d'")
    wait_until(lambda: "t" in without._jobs, "it learned what it can run")
    assert "s" not in without._jobs
    assert console.control.run(made["run_id"]).state == "queued"
    make_app(targets={"there": f"sqlite:///{tmp_path}/there.db"}).start()
    assert ended(console, made["run_id"]).state == "succeeded"


def test_a_job_of_the_program_stays_what_it_is(make_app: MakeApp) -> None:
    app = make_app()

    @app.job
    def mine() -> None: ...

    stranger = Job(name="mine", executor="sql", source="api", spec={"text": "SELECT 1"})
    jobs, foreign = app._jobs, app._filed
    learn = Learn(app.storage, jobs=jobs, foreign=foreign, targets=None)
    assert not learn._take([stranger])
    assert (jobs["mine"].executor, foreign) == ("python", set())


def test_what_a_file_stood_in_the_way_of_is_learned_when_the_file_is_refused(
    make_app: MakeApp,
) -> None:
    app, now = make_app(), [100.0]
    run_sql(app, "CREATE SCHEDULE report AS $$ SELECT 1 $$ EVERY '1d'")
    app.set_file_job(Job(name="report", executor="sql", source="file"))
    learn = Learn(
        app.storage, jobs=app._jobs, foreign=app._filed, targets=None, monotonic=lambda: now[0]
    )
    learn.step()
    assert app._jobs["report"].source == "file"
    app.drop_file_job("report")  # by the folder: the store has refused it
    now[0] += 1
    learn.step()
    assert app._jobs["report"].source == "api"
    app.drop_file_job("report")
    assert (app._jobs["report"].source, app._filed) == ("api", {"report"})


def test_a_burst_of_wakes_is_one_look(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    app, now, looks, wakes = make_app(), [100.0], [], []
    learn = Learn(
        app.storage, jobs={}, foreign=set(), targets=None, monotonic=lambda: now[0],
        wake=lambda: wakes.append(1),
    )  # fmt: skip

    def look(plain: Callable[..., object], known: str | None) -> object:
        looks.append(known)
        return plain(known)

    replace_operation(monkeypatch, app.storage, operations.shared_jobs, look)
    assert learn.step() == 5.0
    for _ in range(10):
        learn.ask()
        now[0] += 0.01
    assert (len(looks), len(wakes)) == (1, 1)
    assert 0 < learn.step() < 1
    now[0] += 1
    assert learn.step() == 5.0
    assert len(looks) == 2


def test_a_paused_run_stops_after_its_step_and_resume_does_the_rest_once(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.executors.sql.sqlite.LOCK_TRIES", 600)  # each a tenth of a second
    there = tmp_path / "there.db"
    app = make_app(targets={"there": f"sqlite:///{there}"}, default_target="there")
    gate = sqlite3.connect(there, isolation_level=None)
    gate.execute("CREATE TABLE effects (i INTEGER)")
    insert = "INSERT INTO effects VALUES ({})"
    add_sql(app, tmp_path / "three", *(insert.format(number) for number in (1, 2, 3)))
    app.start()
    run_sql(app, "CREATE SCHEDULE s FOR JOB three EVERY '1d'")
    gate.execute("BEGIN IMMEDIATE")  # the first step waits for it
    (made,) = run_sql(app, "EXECUTE SCHEDULE s")
    wait_until(lambda: running(app, made["run_id"], "01.sql"), "the step began")
    assert run_sql(app, "PAUSE JOBS FOR SCHEDULE s")[0]["runs"] == 1
    gate.execute("COMMIT")
    assert ended(app, made["run_id"]).state == "paused"
    assert rows(f"sqlite:///{there}", "SELECT i FROM effects") == [(1,)]
    assert run_sql(app, "PAUSE JOBS FOR SCHEDULE s")[0]["runs"] == 0
    assert run_sql(app, "RESUME JOBS FOR SCHEDULE s")[0]["runs"] == 1
    wait_until(lambda: app.control.run(made["run_id"]).state == "succeeded", "it went on")
    assert rows(f"sqlite:///{there}", "SELECT i FROM effects ORDER BY i") == [(1,), (2,), (3,)]
    assert run_sql(app, "CANCEL JOBS FOR SCHEDULE s")[0]["runs"] == 0
    gate.close()
