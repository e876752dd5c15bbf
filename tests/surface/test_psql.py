"""From psql alone, with no command of Rota: enqueue, pause, look. The DBA never leaves SQL."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import psycopg
import pytest

from rota.model.views import VIEWS
from tests.api.support import wait_until
from tests.surface.conftest import Cli, environment
from tests.surface.test_up import Up

Psql = Callable[[str], list[str]]
JOB = """
    schedule = False

    def run(ctx, to: str = ""):
        ctx.logger.info("to %s", to)
"""


@pytest.fixture
def psql(postgres_url: str) -> Psql:
    """The values that a script answers, one a line; where there is no psql, by its driver."""
    program = shutil.which("psql")

    def by_program(script: str) -> list[str]:
        asked = [program or "", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", postgres_url]
        done = subprocess.run(asked, input=script, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.split("\n")[:-1]

    def by_driver(script: str) -> list[str]:
        lines: list[str] = []
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            cursor = connection.execute(script)
            while True:
                if cursor.description:
                    for row in cursor.fetchall():
                        lines.append("|".join("" if cell is None else str(cell) for cell in row))
                if not cursor.nextset():
                    return lines

    return by_program if program else by_driver


@pytest.fixture
def up(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Up]:
    """A process that serves a folder, and that nobody talks to."""
    folder = tmp_path / "jobs.d"
    (folder / "report").mkdir(parents=True)
    (folder / "send.py").write_text(dedent(JOB))
    (folder / "report" / "job.toml").write_text('at = "2090-01-01T03:00:00Z"\n')
    (folder / "report" / "01_rows.sql").write_text("SELECT 42 AS answer;\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROTA_DATABASE", postgres_url)
    assert environment()["ROTA_DATABASE"] == os.environ["ROTA_DATABASE"]
    process = Up()
    yield process
    process.stop()


def test_the_whole_of_it_from_psql(psql: Psql, up: Up) -> None:
    def ask(sql: str) -> str:
        return "\n".join(psql(sql))

    there = "SELECT to_regclass('rota.jobs') IS NOT NULL"
    wait_until(lambda: ask(there) in ("t", "True"), "the store is there")
    jobs = "SELECT count(*) FROM rota.jobs WHERE name IN ('send', 'report') AND error IS NULL"
    wait_until(lambda: ask(jobs) == "2", "the folder was read")

    # A transaction that is rolled back leaves nothing; one that is committed is a run.
    psql("BEGIN; SELECT rota.enqueue('send', '{\"to\": \"nobody\"}'); ROLLBACK;")
    assert ask("SELECT count(*) FROM rota.runs") == "0"
    run_id = ask("BEGIN; SELECT rota.enqueue('send', '{\"to\": \"ada\"}'); COMMIT;")
    ended = f"SELECT status FROM rota.job_runs WHERE run_id = '{run_id}' AND record_type = 'run'"
    wait_until(lambda: ask(ended) == "success", "the run was executed")

    step = "SELECT status FROM rota.job_runs WHERE job_name = 'report' AND record_type = 'step'"
    ask("SELECT rota.trigger_job('report')")
    wait_until(lambda: ask(step) == "success", "the SQL job was executed")

    # Pause, by function and by control row.
    paused = "SELECT status, paused_reason FROM rota.schedules WHERE name = 'report'"
    ask("SELECT rota.pause_schedule('report', 'by function')")
    assert ask(paused) == "PAUSED|by function"
    ask("SELECT rota.resume_schedule('report')")
    assert ask(paused) == "ACTIVE|"
    number = ask(
        "INSERT INTO rota.control (statement) VALUES ('PAUSE SCHEDULE report REASON ''by row''') "
        "RETURNING id"
    )
    answer = f"SELECT status FROM rota.control WHERE id = {number}"
    wait_until(lambda: ask(answer) == "done", "the row was answered")
    assert ask(paused) == "PAUSED|by row"
    told = ask(f"SELECT rows -> 0 ->> 'schedule_status' FROM rota.control WHERE id = {number}")
    assert told == "PAUSED"

    # A run that waits is cancelled.
    waiting = ask("SELECT rota.enqueue('send', delay => '1 hour')")
    assert ask(f"SELECT rota.cancel_run('{waiting}', 'not today')") == "cancelled"
    assert ask(f"SELECT state FROM rota.runs WHERE run_id = '{waiting}'") == "cancelled"

    for view in VIEWS:
        count = int(ask(f"SELECT count(*) FROM rota.{view}"))
        assert count > 0 or view in ("job_queue", "occurrences", "dead"), view


def test_migrate_makes_the_roles(
    postgres_url: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = f"t{secrets.token_hex(4)}"  # roles are the whole server's
    monkeypatch.setenv("ROTA_DATABASE", postgres_url)
    monkeypatch.setenv("ROTA_SCHEMA", schema)
    names = [f"{schema}_{role}" for role in ("operator", "viewer", "worker")]
    found = f"SELECT rolname FROM pg_roles WHERE rolname LIKE '{schema}%' ORDER BY 1"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        planned = cli("migrate", "--roles", "--plan", "--json").json
        assert planned[-1]["name"] == "roles"
        assert f"GRANT {chr(34)}{schema}_viewer" in planned[-1]["sql"]
        assert admin.execute(found).fetchall() == []
        assert cli("migrate", "--roles", "--json").json["applied"][-1] == "roles"
        assert admin.execute(found).fetchall() == [(name,) for name in names]
        assert cli("migrate", "--json").json["applied"] == []
        assert cli("migrate", "--roles", "--json").json["applied"] == ["roles"]
        for name in names:
            admin.execute(f'DROP OWNED BY "{name}"')
            admin.execute(f'DROP ROLE "{name}"')


def test_a_file_has_no_roles(cli: Cli) -> None:
    assert "a file has no roles" in cli("migrate", "--roles").error
