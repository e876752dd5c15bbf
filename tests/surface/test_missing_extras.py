"""What jobs need and this installation does not have: `check` warns, `doctor` and `up` say it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rota.extras import how_to_install
from tests.api.support import PATIENCE
from tests.surface.conftest import environment


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A folder with a job for DuckDB, and Pythons that have neither DuckDB nor psycopg."""
    job = tmp_path / "jobs.d" / "visits"
    job.mkdir(parents=True)
    (job / "job.toml").write_text('every = "1h"\ntarget = "warehouse"\n')
    (job / "01.sql").write_text("SELECT 1;\n")
    plain = tmp_path / "jobs.d" / "plain"
    plain.mkdir()
    (plain / "job.toml").write_text('every = "1h"\ntarget = "store"\n')
    (plain / "01.sql").write_text("-- rota: autonomous\nSELECT 1;\n")
    (tmp_path / "rota.toml").write_text('[targets]\nwarehouse = "duckdb:///warehouse.duckdb"\n')
    blocked = tmp_path / "site"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(
        "import sys\nsys.modules.update(dict.fromkeys(['duckdb', 'psycopg']))\n"
    )
    path = os.pathsep.join([str(blocked), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**environment(), "PYTHONPATH": path}


MESSAGE = f"target warehouse needs duckdb, not installed here; {how_to_install('duckdb')}"


def rota(env: dict[str, str], folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rota", *args],
        cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip


def test_check_warns_and_is_content(env: dict[str, str], tmp_path: Path) -> None:
    """It may run where jobs do not."""
    done = rota(env, tmp_path, "check")
    assert f"jobs.d/visits/job.toml: warning: {MESSAGE}" in done.stdout
    assert done.stdout.count("not installed here") == 1
    assert done.returncode == 0
    found = json.loads(rota(env, tmp_path, "check", "--json").stdout)
    assert found["ok"] is True
    told = [one for one in found["findings"] if one["message"] == MESSAGE]
    assert [(one["kind"], one["job"]) for one in told] == [("warning", "visits")]


def test_doctor_finds_a_problem(env: dict[str, str], tmp_path: Path) -> None:
    rota(env, tmp_path, "migrate")
    done = rota(env, tmp_path, "doctor", "--json")
    assert done.returncode == 1
    (found,) = (one for one in json.loads(done.stdout)["findings"] if one["check"] == "targets")
    assert found["status"] == "problem"
    assert found["says"] == "target warehouse needs duckdb, not installed here"
    assert found["fix"] == how_to_install("duckdb")


def test_the_screen_of_up_has_it_among_the_problems(env: dict[str, str], tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "rota", "up", "--port", "0"],
        cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            lines = iter(process.stdout.readline, "")
            line = next((line for line in lines if line.startswith("  problems")), "no such line")
        finally:
            process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert f"{MESSAGE} (for visits)" in line
    assert process.returncode == 0


def test_nothing_is_said_where_all_is_there(env: dict[str, str], tmp_path: Path) -> None:
    done = rota({**env, "PYTHONPATH": ""}, tmp_path, "check")
    assert "not installed" not in done.stdout + done.stderr
