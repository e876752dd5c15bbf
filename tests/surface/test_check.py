"""`rota check` and `rota init`: what people see first."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.jobsd.support import wait_until
from tests.surface.conftest import Cli
from tests.surface.test_up import Up

pytest.importorskip("duckdb")

GOOD = 'schedule = "0 3 * * *"\ntimezone = "Europe/Berlin"\n'


def job(name: str = "accounting", toml: str = GOOD, **files: str) -> Path:
    folder = Path("jobs.d") / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.toml").write_text(toml)
    for stem, text in (files or {"01": "SELECT 1"}).items():
        (folder / f"{stem}.sql").write_text(text)
    return folder


def warehouse() -> None:
    Path("rota.toml").write_text(
        'default_target = "w"\n[targets]\nw = "duckdb:///w.duckdb"\npg = "postgresql://x/y"\n'
    )


def test_good_jobs_are_listed_with_their_next_five_times(cli: Cli) -> None:
    warehouse()
    job()
    answer = cli("check")
    assert answer.code == 0, answer.err
    assert "At 03:00 (Europe/Berlin)" in answer.out
    assert answer.out.count("03:00:00 CE") == 5
    assert answer.err == "1 good job, 0 errors, 0 variables not set, 0 warnings\n"
    assert not Path("rota.db").exists()
    assert not Path("w.duckdb").exists()


def test_an_error_is_told_with_file_and_line_and_fails(cli: Cli) -> None:
    warehouse()
    job()
    job("broken", 'schedule = "0 3 * * *"\ntimeuot = "1m"')
    answer = cli("check")
    assert answer.code == 1
    assert "jobs.d/broken/job.toml:2: error: option 'timeuot' is unknown; did you" in answer.out
    assert "accounting" in answer.out


def test_json_has_jobs_and_findings(cli: Cli) -> None:
    warehouse()
    job()
    Path("jobs.d/bad.py").write_text("schedule = '0 3 * * *'\nshedule = 1\ndef run(ctx:\n")
    answer = cli("check", "--json")
    assert answer.code == 1
    told = json.loads(answer.out)
    assert not told["ok"]
    assert [one["name"] for one in told["jobs"]] == ["accounting"]
    assert len(told["jobs"][0]["next"]) == 5
    (finding,) = told["findings"]
    assert (finding["kind"], finding["file"], finding["line"], finding["job"]) == (
        "error", "jobs.d/bad.py", 3, "bad",
    )  # fmt: skip


def test_missing_variables_are_each_told_at_their_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse()
    monkeypatch.setenv("KNOWN", "x")
    text = "SELECT '${KNOWN}', '${DAY}', '${ROTA_RUN_ID}';\nSELECT '${ONE}' -- ${NOT}\n, '${TWO}'"
    job(toml=GOOD + '[params]\nday = "x"\n', **{"01": text, "02": "SELECT '${ONE:-1}'"})
    answer = cli("check")
    assert answer.code == 1
    assert "jobs.d/accounting/01.sql:2: missing: variable ONE is not set" in answer.out
    assert "jobs.d/accounting/01.sql:3: missing: variable TWO is not set" in answer.out
    assert answer.out.count("missing") == 2
    assert cli("check", "--ignore-missing").code == 0


def test_what_cannot_run_is_an_error(cli: Cli) -> None:
    warehouse()
    job("own", **{"01": "SELECT 1;\nCOMMIT;"})
    job("quote", **{"01": "SELECT 'open"})
    job("hidden", **{"01": "SELECT '${ROTA_DATABASE:-x}'"})
    job("target", GOOD + 'target = "nowhere"')
    job("fine", **{"01": "-- rota: autonomous\nBEGIN; COMMIT;"})
    answer = cli("check")
    assert answer.code == 1
    assert "jobs.d/own/01.sql:2: error: begins or ends a transaction" in answer.out
    assert "jobs.d/quote/01.sql:1: error: " in answer.out
    told = "jobs.d/hidden/01.sql:1: error: ROTA_DATABASE cannot be read in SQL; only ROTA_JOB_NAME"
    assert told in answer.out
    assert "jobs.d/target/job.toml:3: error: target 'nowhere' is unknown" in answer.out
    assert "jobs.d/fine" not in answer.out


def test_scripts_beside_the_folder_are_checked_too(cli: Cli) -> None:
    warehouse()
    job()
    Path("startdb.d").mkdir()
    Path("startdb.d/01.sql").write_text("ATTACH '${WHERE}' AS x")
    assert "startdb.d/01.sql:1: missing: variable WHERE" in cli("check").out


def test_long_sql_on_the_sqlite_store_is_warned_of(cli: Cli) -> None:
    job()
    answer = cli("check")
    assert answer.code == 0
    assert "jobs.d/accounting/job.toml: warning: runs on the SQLite store" in answer.out


def test_an_option_without_effect_is_warned_of(cli: Cli) -> None:
    folder = Path("jobs.d/accounting")
    folder.mkdir(parents=True)
    (folder / "01.sql").write_text("SELECT 1")
    (folder / "job.toml").write_text('every = "1h"\nqueue_max = 3\noverlap = "skip"\n')
    Path("jobs.d/tidy.py").write_text(
        'at = "2090-01-01T00:00Z"\nanchor = "delay"\ndef run(ctx): ...\n'
    )
    answer = cli("check")
    assert answer.code == 0
    told = "jobs.d/accounting/job.toml: warning: queue_max has no effect with overlap = skip"
    assert told in answer.out
    assert "jobs.d/tidy.py: warning: anchor = delay has no effect" in answer.out
    (folder / "job.toml").write_text('every = "1h"\nqueue_max = 3\n')
    assert "queue_max" not in cli("check").out


def test_another_folder_is_named(cli: Cli) -> None:
    warehouse()
    job()
    Path("jobs.d").rename("elsewhere")
    assert "no folder jobs.d" in cli("check").error
    assert cli("check").code == 2
    assert cli("check", "elsewhere").code == 0


# Init


def test_init_makes_jobs_that_check_and_run(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = cli("init", "demo")
    assert answer.code == 0
    assert "wrote demo/jobs.d/visits/job.toml" in answer.out
    monkeypatch.chdir("demo")
    checked = cli("check", "--json").json
    assert checked["ok"]
    assert [one["name"] for one in checked["jobs"]] == ["cleanup", "visits"]
    assert checked["findings"] == []
    up = Up()
    try:
        wait_until(lambda: {"visits", "cleanup"} <= set(cli("jobs").out.split()), "the start")
        for name in ("visits", "cleanup"):
            ran = cli("run", name, "--wait")
            assert ran.code == 0, ran.err
    finally:
        code, screen = up.stop()
    assert code == 0
    assert "cleanup, visits" in screen
    rows = sqlite3.connect("rota.db").execute("SELECT DISTINCT status FROM rota_job_runs")
    assert rows.fetchall() == [("success",)]


def test_init_overwrites_nothing(cli: Cli) -> None:
    Path("rota.toml").write_text("mine")
    answer = cli("init")
    assert answer.code == 1
    assert "rota.toml exists already and is left as it is" in answer.error
    assert Path("rota.toml").read_text() == "mine"
    assert not Path("jobs.d").exists()


def test_init_says_what_it_wrote_as_json(cli: Cli) -> None:
    assert "jobs.d/cleanup.py" in cli("init", "--json").json["files"]


def test_init_into_what_is_no_folder_is_refused(cli: Cli) -> None:
    Path("file").write_text("")
    answer = cli("init", "file")
    assert answer.code == 2
    assert "cannot be written" in answer.error
