"""The seed's own folder, unchanged, with the real sql executor; its queries tell the truth."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import rota
from rota.storage import operations
from tests.jobsd.support import SEED, Jobs, ended, wait_until

duckdb = pytest.importorskip("duckdb")

FILES = {
    "01": "CREATE TABLE IF NOT EXISTS orders (id INTEGER);\nINSERT INTO orders VALUES (1), (2);",
    "02": "CREATE OR REPLACE TABLE totals AS SELECT count(*) AS orders FROM orders;",
    "03": "SELECT orders FROM totals;",
}


def test_the_seeds_folder_runs_on_a_duckdb_target(jobs: Jobs, tmp_path: Path) -> None:
    jobs.sql("accounting", SEED, **FILES)
    jobs.sql("daily_sync", SEED, **{"01": "SELECT * FROM nothing_of_that_name"})
    app = rota.Rota(
        f"sqlite:///{tmp_path / 'rota.db'}",
        jobs_dir=str(jobs.root),
        targets={"w": f"duckdb:///{tmp_path / 'w.duckdb'}"},
        default_target="w",
    )
    app.start(["worker"])  # its schedule is every quarter of an hour: none may pass here
    try:
        good, bad = ended(app, "accounting"), ended(app, "daily_sync")
        assert (good.state, good.error) == ("succeeded", None)
        assert '"rows":[[2]]' in (good.result or "")
        assert bad.state == "dead"
        assert "01.sql:1: " in (bad.error or "")
    finally:
        app.stop()
    store = sqlite3.connect(tmp_path / "rota.db")
    assert store.execute(
        "SELECT name, schedule, enabled, queue_max, timeout, file_count, queued, running, error"
        " FROM rota_jobs ORDER BY name"
    ).fetchall() == [
        ("accounting", "0 */15 * * * *", 1, 3, "30m", 3, 0, 0, None),
        ("daily_sync", "0 */15 * * * *", 1, 3, "30m", 1, 0, 0, None),
    ]
    assert store.execute(
        "SELECT file_name, status FROM rota_job_runs WHERE job_name = 'accounting' ORDER BY id"
    ).fetchall() == [
        (None, "success"), ("01.sql", "success"), ("02.sql", "success"), ("03.sql", "success"),
    ]  # fmt: skip
    failed = "SELECT job_name, file_name FROM rota_job_runs WHERE status = 'failed' ORDER BY id"
    assert store.execute(failed).fetchall() == [("daily_sync", None), ("daily_sync", "01.sql")]


def test_jobs_on_a_duckdb_store_read_their_own_history(jobs: Jobs, tmp_path: Path) -> None:
    jobs.sql("accounting", SEED, **FILES)
    alert = "SELECT count(*) FROM _rota.job_runs WHERE status = 'success' AND file_name IS NULL"
    jobs.sql("alert", "schedule = false", **{"01": alert})
    app = rota.Rota(f"duckdb:///{tmp_path / 'w.duckdb'}", jobs_dir=str(jobs.root))
    app.start(["worker"])
    try:
        assert ended(app, "accounting").state == "succeeded"
        told = ended(app, "alert")
        assert (told.state, told.error) == ("succeeded", None)
        assert '"rows":[[1]]' in (told.result or "")
        jobs.remove("accounting")
        wait_until(
            lambda: app.storage.read(operations.jobs_named, ["accounting"])["accounting"].retired,
            "it",
        )
    finally:
        app.stop()
    with duckdb.connect(str(tmp_path / "w.duckdb")) as connection:
        assert connection.execute("SELECT orders FROM totals").fetchall() == [(2,)]
