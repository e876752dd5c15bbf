"""Metrics: the story told exactly by each of them, by one process and by several."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from prometheus_client.parser import text_string_to_metric_families

import rota
from rota.cli.siblings import Siblings
from rota.errors import Unavailable
from rota.flow.counters import Counters
from rota.model.limits import METRIC_JOBS
from rota.model.transitions import STATES
from rota.storage import operations
from rota.web.metrics import FRESH_SECONDS, NAMES, STALE_SECONDS, Metrics
from tests.api.support import PATIENCE, wait_until
from tests.support.operations import replace_operation
from tests.support.postgres import Server
from tests.surface.conftest import Cli, environment
from tests.surface.scenario import FAILED, scenario

Samples = dict[tuple[str, tuple[str, ...]], float]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape leaves out what takes longer: here nothing does."""
    monkeypatch.setattr("rota.web.metrics.WAIT_SECONDS", PATIENCE)


def samples(metrics: Metrics) -> Samples:
    """Every value of the page, by its name and its labels in the order of their names."""
    page, content_type = metrics.page()
    assert content_type.startswith("text/plain")
    return {
        (one.name, tuple(value for _, value in sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(page.decode())
        for one in family.samples
    }


def of(told: Samples, name: str) -> dict[tuple[str, ...], float]:
    return {labels: value for (one, labels), value in told.items() if one == name}


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param != "postgres":
        yield f"{request.param}:///{tmp_path}/rota.db"
        return
    server: Server = request.getfixturevalue("postgres_server")
    with server.database() as made:
        yield made


def test_the_story_is_told_by_each_metric(url: str) -> None:
    began = time.time()
    with scenario(url) as (app, story):
        told = samples(Metrics(app))
        lasted = time.time() - began
        runs = {(job, "dead" if job == FAILED else "succeeded"): 1.0 for job in story.jobs}
        assert of(told, "rota_runs_total") == runs
        assert of(told, "rota_runs_started_total") == {(): story.started}
        assert of(told, "rota_run_seconds_count") == {(): story.started}
        assert of(told, "rota_run_seconds_bucket")["+Inf",] == story.started
        assert of(told, "rota_fires_total") == {
            ("fired",): story.fires["fired"],
            ("skipped",): 0, ("dropped",): 0, ("coalesced",): 0, ("missed",): 0,
        }  # fmt: skip
        assert of(told, "rota_fire_lag_seconds_count") == {(): story.started}
        assert of(told, "rota_fire_lag_seconds_sum")[()] < story.started * lasted
        statuses = {(status,): value for status, value in story.statuses.items()}
        assert of(told, "rota_schedules") == {
            ("DISABLED",): 0, ("FINISHED",): 0, ("BROKEN",): 0, **statuses,
        }  # fmt: skip
        waits = [state for state in STATES if state not in ("succeeded", "dead", "cancelled")]
        assert of(told, "rota_queue_depth") == {("default", state): 0 for state in waits}
        assert of(told, "rota_oldest_due_seconds") == {("default",): 0}
        succeeded = of(told, "rota_last_success_timestamp")
        assert set(succeeded) == {(job,) for job in story.succeeded_jobs}
        ends = {(run.job,): run.finished_at for run in app.control.runs() if run.error is None}
        assert {job: round(at, 3) for job, at in succeeded.items()} == {
            job: round(at.timestamp(), 3) for job, at in ends.items() if at is not None
        }
        assert of(told, "rota_workers") == {(): story.workers}


def test_every_metric_is_named_and_no_other(tmp_path: Path) -> None:
    with scenario(f"sqlite:///{tmp_path}/rota.db") as (app, _):
        page = Metrics(app).page()[0].decode()
    described = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]
    assert sorted(described) == sorted(NAMES)


def test_what_waits_is_told_with_its_age_and_from_any_process(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/rota.db"
    app = rota.Rota(database)

    @app.job(queue="mail")
    def send() -> None:
        pass

    for _ in range(3):
        send.enqueue()
    other = rota.Rota(database)  # it does nothing: as a process that only serves the web
    told = samples(Metrics(other))
    assert of(told, "rota_queue_depth")["mail", "queued"] == 3
    assert 0 <= of(told, "rota_oldest_due_seconds")["mail",] < 60
    assert of(told, "rota_runs_started_total") == {(): 0}
    assert of(told, "rota_runs_total") == {}
    for one in (app, other):
        one.close()


def test_a_run_that_is_cancelled_before_it_began_has_ended_too(tmp_path: Path) -> None:
    app = rota.Rota(f"sqlite:///{tmp_path}/rota.db")
    app.job("job")(lambda: None)
    app.control.cancel(app.enqueue("job").id)
    assert of(samples(Metrics(app)), "rota_runs_total") == {("job", "cancelled"): 1}
    app.close()


def test_a_store_that_is_away_leaves_out_its_metrics_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, asked, now = rota.Rota(f"sqlite:///{tmp_path}/rota.db"), [], [0.0]
    app.load()
    metrics = Metrics(app, monotonic=lambda: now[0])
    assert of(samples(metrics), "rota_workers") == {(): 0}

    def away(*_: object, **__: object) -> None:
        asked.append(1)
        raise Unavailable("the database is away")

    replace_operation(monkeypatch, app.storage, operations.figures, away)
    now[0] += STALE_SECONDS
    for _ in range(5):
        told = samples(metrics)
        assert of(told, "rota_runs_started_total") == {(): 0}
        assert of(told, "rota_workers") == {}
    assert len(asked) == 1  # not by every scrape
    app.close()


def test_a_store_that_hangs_keeps_nobody_waiting_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, back = rota.Rota(f"sqlite:///{tmp_path}/rota.db"), threading.Event()
    app.load()
    monkeypatch.setattr("rota.web.metrics.WAIT_SECONDS", 0.01)

    def hang(**_: object) -> None:
        back.wait(30)
        raise Unavailable("the database came back too late")

    replace_operation(monkeypatch, app.storage, operations.figures, hang)
    told = samples(Metrics(app))
    assert of(told, "rota_workers") == {}
    assert of(told, "rota_runs_started_total") == {(): 0}
    back.set()
    app.close()


def test_the_store_is_asked_once_in_a_while(tmp_path: Path) -> None:
    app = rota.Rota(f"sqlite:///{tmp_path}/rota.db")
    app.job("job")(lambda: None)
    app.load()
    now = [1000.0]
    metrics = Metrics(app, monotonic=lambda: now[0])
    assert of(samples(metrics), "rota_queue_depth")["default", "queued"] == 0
    app.enqueue("job")
    assert of(samples(metrics), "rota_queue_depth")["default", "queued"] == 0
    now[0] += FRESH_SECONDS
    assert of(samples(metrics), "rota_queue_depth")["default", "queued"] == 1
    app.close()


def test_a_success_is_remembered_after_its_run_was_deleted(tmp_path: Path) -> None:
    now = [1000.0]
    with scenario(f"sqlite:///{tmp_path}/rota.db") as (app, _):
        metrics = Metrics(app, monotonic=lambda: now[0])
        before = of(samples(metrics), "rota_last_success_timestamp")
        for run in app.control.runs():
            app.control.delete(run.id)
        now[0] += FRESH_SECONDS
        assert of(samples(metrics), "rota_last_success_timestamp") == before != {}


def test_many_queues_and_jobs_make_no_more_series_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.web.metrics.METRIC_QUEUES", 3)
    app = rota.Rota(f"sqlite:///{tmp_path}/rota.db")
    for number in range(METRIC_JOBS + 5):
        app.job(f"job-{number}", queue=f"queue-{number % 5}")(lambda: None)
    app.load()
    for number in range(5):
        app.enqueue(f"job-{number}")
    told = samples(Metrics(app))
    depths = {queue: value for (queue, state), value in of(told, "rota_queue_depth").items()
              if state == "queued"}  # fmt: skip
    assert depths == {"queue-0": 1, "queue-1": 1, "queue-2": 1, "other": 2}
    app.close()


APP = """
    import rota

    app = rota.Rota()

    @app.job
    def work() -> None:
        pass
"""


def test_the_processes_beside_this_one_are_counted_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """Two workers do everything, this process nothing: its page tells all of it."""
    (tmp_path / "shop.py").write_text(dedent(APP))
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    app = rota.Rota()
    app.job("work")(lambda: None)
    app.load()
    arguments = ["--only", "worker", "--sibling", "--quiet", "shop:app"]
    siblings = Siblings(2, arguments, {"ROTA_DATABASE": "sqlite:///rota.db"}, app.counters)
    siblings.start()
    try:
        for _ in range(7):
            app.enqueue("work")
        wait_until(lambda: app.counters.counts().runs == [("work", "succeeded", 7)])
    finally:
        siblings.ask_to_stop()
        siblings.wait()
    told = samples(Metrics(app))
    assert of(told, "rota_runs_total") == {("work", "succeeded"): 7}
    assert of(told, "rota_runs_started_total") == {(): 7}
    assert of(told, "rota_run_seconds_count") == {(): 7}
    app.close()


def test_nothing_of_prometheus_is_imported_by_counting() -> None:
    code = "import sys, json, rota, rota.cli.up; print(json.dumps(sorted(sys.modules)))"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert not [name for name in json.loads(told.stdout) if name.startswith("prometheus")]
    assert Counters().counts().started == 0
