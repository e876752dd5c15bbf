"""The folder that `make up` starts: every example is run here, and does what it says."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import rota
from rota.cli.load import load_app
from rota.model.run import Run
from tests.jobsd.support import wait_until
from tests.surface.conftest import Cli, Ends
from tests.surface.test_up import Up

ROOT = Path(__file__).parents[2]
ENDED = ("succeeded", "dead", "cancelled")
FILES = ("alert_on_failures", "bake_labels", "daily_report", "import_orders", "partner_feed")
CODE = ("flaky", "greet", "heartbeat", "minutely", "ticker")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The examples, copied: what they write stays out of the tree."""
    folder = tmp_path / "examples"
    written = shutil.ignore_patterns("rota.db*", "warehouse.duckdb*", "partner.csv", "__pycache__")
    shutil.copytree(ROOT / "examples", folder, ignore=written)
    for path in (folder / "out").iterdir():
        path.unlink()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr("rota.jobsd.folder.START_SECONDS", 60.0)
    return folder


@pytest.fixture
def app(project: Path) -> Iterator[rota.Rota]:
    """Served as `rota up` does, but nothing fires by itself."""
    app = rota.Rota()
    app.start(["worker"])
    yield app
    app.stop(grace="0s")


def run(app: rota.Rota, job: str) -> Run:
    made = app.control.trigger(job)
    return ended(app, made.id)


def ended(app: rota.Rota, run_id: str) -> Run:
    wait_until(lambda: app.control.run(run_id).state in ENDED, "the run's end", seconds=60)
    return app.control.run(run_id)


def steps(app: rota.Rota, run_id: str) -> list[tuple[int, str, str]]:
    return [(one["attempt"], one["name"], one["status"]) for one in app.control.steps(run_id)]


def rows(path: str) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def result(run: Run) -> Any:
    assert run.result is not None
    return json.loads(run.result)


def test_orders_become_parquet(app: rota.Rota) -> None:
    assert run(app, "import_orders").state == "succeeded"
    found = duckdb.sql("SELECT count(*), sum(total), max(customer) FROM 'out/orders.parquet'")
    count, total, customer = found.fetchall()[0]
    assert (count, str(total), customer) == (20, "178.40", "Ivo")


def test_orders_that_are_not_sensible_are_not_published(app: rota.Rota) -> None:
    with open("data/orders.csv", "a") as file:
        file.write("21,2026-03-07,Ada,croissant,-3,1.80\n")
    ended = run(app, "import_orders")
    assert ended.state == "dead"
    assert "02_check.sql:2: " in (ended.error or "")
    assert "1 orders without a sensible quantity or price" in (ended.error or "")
    assert steps(app, ended.id) == [(1, "01_load.sql", "succeeded"), (1, "02_check.sql", "failed")]
    assert os.listdir("out") == []


def test_the_daily_report(app: rota.Rota) -> None:
    run(app, "import_orders")
    ended = run(app, "daily_report")
    (row,) = result(ended)["rows"]
    assert row[1:] == [6, "178.40"]
    report = rows("out/daily_report.csv")
    assert report[0] == {
        "day": "2026-03-02", "orders": "4", "revenue": "29.00", "best_seller": "croissant",
    }  # fmt: skip
    assert len(report) == 6


def test_the_feed_that_fails_is_tried_again_told_and_mended(app: rota.Rota) -> None:
    run(app, "import_orders")
    dead = run(app, "partner_feed")
    assert (dead.state, dead.attempt) == ("dead", 3)
    assert steps(app, dead.id) == [
        (1, "01_forget.sql", "succeeded"),
        (1, "02_load.sql", "failed"),
        (2, "02_load.sql", "failed"),
        (3, "02_load.sql", "failed"),
    ]

    told = run(app, "alert_on_failures")
    assert told.error is None
    (alert,) = result(told)["rows"]
    assert alert[:2] == ["partner_feed", 1]
    assert run(app, "alert_on_failures").state == "succeeded"  # a failure is told once
    (line,) = rows("out/alerts.csv")
    assert (line["run_id"], line["job_name"]) == (dead.id, "partner_feed")
    assert "data/partner.csv" in line["message"]

    shutil.copy("data/partner_sample.csv", "data/partner.csv")
    app.control.redo(dead.id)
    mended = ended(app, dead.id)
    assert mended.state == "succeeded"
    assert steps(app, dead.id)[4:] == [(4, "02_load.sql", "succeeded")]
    (row,) = result(run(app, "daily_report"))["rows"]
    assert row[1:] == [7, "333.00"]


def test_labels_with_progress(app: rota.Rota) -> None:
    run(app, "import_orders")
    shown = run(app, "bake_labels")
    assert (shown.state, result(shown)) == ("succeeded", {"labels": 3})
    wait_until(lambda: len(app.control.logs(shown.id)) >= 3, "its lines are written")
    lines = [line["text"] for line in app.control.logs(shown.id)]
    assert lines == [f"label for {one} is made" for one in ("croissant", "rye bread", "sourdough")]
    assert json.loads(shown.progress or "") == {"done": 3, "total": 3}
    kept = [one["name"] for one in app.control.files("labels/")]
    assert sorted(kept) == [f"labels/{one}.txt" for one in ("croissant", "rye bread", "sourdough")]


def test_rota_check_finds_nothing(cli: Cli, project: Path) -> None:
    answer = cli("check", "--json")
    assert (answer.code, answer.json["findings"]) == (0, [])
    assert sorted(job["name"] for job in answer.json["jobs"]) == sorted(FILES)


def test_hello(project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    app = load_app("examples.hello:app")
    assert {job.name for job in app.jobs()} == set(CODE)
    ends = Ends(app, 3)
    app.start(["worker"])
    try:
        for name in ("heartbeat", "ticker", "greet"):
            app.control.trigger(name)
        ends.wait()
        states = {run.job: run.state for run in app.control.runs()}
    finally:
        app.stop()
    assert states == {"heartbeat": "succeeded", "ticker": "succeeded", "greet": "succeeded"}


def test_make_up_runs_both(cli: Cli, project: Path) -> None:
    """The recipe itself, in the copy; an environment with everything installed is here already."""
    recipe = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "-C", str(ROOT), "up", "READY="],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    last = recipe.strip().splitlines()[-1]
    assert last == f"cd examples && exec {ROOT}/.venv/bin/rota up --open-local hello:app"
    up = Up("hello:app")
    try:
        up.wait_for("heartbeat", "succeeded in")
        for name in ("import_orders", "daily_report"):
            assert cli("run", name, "--wait").code == 0
    finally:
        code, screen = up.stop(signal.SIGTERM)
    assert code == 0
    jobs = next(line for line in screen.splitlines() if line.startswith("  jobs "))
    assert jobs.split(maxsplit=1)[1] == ", ".join(sorted(CODE + FILES))
    assert {"daily_report.csv", "orders.parquet"} <= set(os.listdir("out"))


def test_make_clean_demo_leaves_what_the_project_has(tmp_path: Path) -> None:
    written = ("rota.db", "rota.db-wal", "warehouse.duckdb", ".rota/token", "out/orders.parquet")
    kept = ("rota.toml", "jobs.d/a.py", "out/.gitkeep")
    for name in (*written, *kept):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    subprocess.run(
        ["make", "clean-demo", f"EXAMPLES={tmp_path}"], cwd=ROOT, check=True, capture_output=True
    )
    left = {str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*") if one.is_file()}
    assert left == set(kept)
