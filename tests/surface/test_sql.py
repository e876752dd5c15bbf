"""`rota sql`: statements from the command line, a file, a pipe and a prompt."""

from __future__ import annotations

import csv
import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from rota.cli.prompt import Completer
from rota.flow.control import Control
from rota.sql.parser import is_complete
from tests.surface.conftest import Cli, environment

CREATE = """CREATE SCHEDULE s FOR JOB greet EVERY '1h'
  WITH SCHEDULE OPTIONS (args = '{"name": "Ada"}')"""


@pytest.mark.each_engine
def test_a_statement_does_and_shows(cli: Cli, store: Control) -> None:
    assert cli("sql", "-c", CREATE).code == 0
    answer = cli("sql", "-c", "SHOW SCHEDULE s")
    assert "label" in answer.out.splitlines()[0]
    assert 'RUN JOB greet WITH \'{"name": "Ada"}\'' in answer.out
    (row,) = (one for one in store.audit() if one["thing"] == "s")
    assert (row["action"], row["via"]) == ("create_schedule", "sql")


def test_a_statement_that_makes_a_schedule_is_shown_so_that_it_can_be_pasted(
    cli: Cli, store: Control, tmp_path: Path
) -> None:
    cli("sql", "-c", CREATE)
    shown = cli("sql", "-c", "SHOW CREATE SCHEDULE s").out
    assert shown.startswith('CREATE SCHEDULE "s" FOR JOB "greet"\n')
    assert "\\n" not in shown
    cli("sql", "-c", "DROP SCHEDULE s")
    (tmp_path / "again.sql").write_text(shown)
    assert cli("sql", "-f", "again.sql").code == 0
    assert store.schedule("s").args == {"name": "Ada"}
    (row,) = cli("sql", "--json", "-c", "SHOW CREATE SCHEDULE s").json
    assert row["create_statement"] == shown.rstrip("\n")


def test_json_is_a_list_of_objects(cli: Cli, store: Control) -> None:
    found = cli("sql", "--json", "-c", "SELECT name, enabled FROM jobs WHERE name = 'greet'").json
    assert found == [{"name": "greet", "enabled": 1}]
    assert cli("sql", "--json", "-c", "SELECT name FROM jobs WHERE name = 'x'").json == []
    (shown,) = cli("sql", "--json", "-c", "SHOW SCHEDULES").json
    assert (shown["label"], shown["schedule_status"]) == ("nightly", "ACTIVE")
    assert shown["next_run"].endswith("+00:00")


def test_csv_has_a_header(cli: Cli, store: Control) -> None:
    answer = cli("sql", "--csv", "-c", "SELECT 'a,\"b' AS x, NULL AS y, 1 AS z")
    assert list(csv.reader(io.StringIO(answer.out))) == [["x", "y", "z"], ['a,"b', "", "1"]]


def test_a_file_holds_several_statements(cli: Cli, store: Control, tmp_path: Path) -> None:
    (tmp_path / "all.sql").write_text(f"-- first\n{CREATE};\nPAUSE SCHEDULE s REASON 'x;y';\n")
    assert cli("sql", "-f", "all.sql").code == 0
    assert store.schedule("s").paused_reason == "x;y"


def test_statements_come_through_a_pipe(cli: Cli, store: Control) -> None:
    command = [sys.executable, "-m", "rota.cli", "sql", "--json"]
    done = subprocess.run(
        command, input=b"SELECT 1 AS one", capture_output=True, env=environment(), timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b'"one": 1' in done.stdout


@pytest.mark.parametrize(
    ("statement", "code", "error"),
    [
        ("PAUSE SHEDULE x", 2, "did you mean SCHEDULE?"),
        ("SHOW SCHEDULE x", 2, "schedule 'x' does not exist"),
        ("DROP TABLE jobs", 2, "expected SCHEDULE or SCHEDULES after DROP, got 'TABLE' at 1:6"),
        ("SELECT * FROM _rota_jobs", 2, "views"),
        ("SELECT nonsense", 2, "nonsense"),
        ("SELECT nam FROM schedules", 2, "; did you mean name?"),
        ("", 2, "there is no statement"),
        (f"{CREATE}; {CREATE}", 1, "exists already"),
        ("CREATE SCHEDULE y AS $$ SELECT 1 $$ ON nowhere EVERY '1h'", 2, "target 'nowhere'"),
    ],
)
def test_errors_are_one_line_with_an_exit_code(
    cli: Cli, store: Control, statement: str, code: int, error: str
) -> None:
    answer = cli("sql", "-c", statement)
    assert (answer.code, answer.err.count("\n")) == (code, 1)
    assert error in answer.err


def test_wrong_use(cli: Cli, store: Control, tmp_path: Path) -> None:
    (tmp_path / "bytes.sql").write_bytes(b"SHOW \xff")
    (tmp_path / "large.sql").write_bytes(b"-" * (8 * 1024 * 1024 + 1))
    for args, error in {
        ("-c", "SHOW JOBS", "-f", "x"): "--command or --file",
        ("-c", "SHOW JOBS", "--json", "--csv"): "--json or --csv",
        ("-f", "missing.sql"): "missing.sql cannot be read: No such file",
        ("-f", "."): "cannot be read",
        ("-f", "bytes.sql"): "is not UTF-8",
        ("-f", "large.sql"): "larger than 8,388,608 bytes",
    }.items():
        answer = cli("sql", *args)
        assert (answer.code, error in answer.err) == (2, True), answer


@pytest.mark.each_engine
def test_more_rows_than_may_be_shown_are_told(cli: Cli, store: Control) -> None:
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10001) "
    answer = cli("sql", "-c", f"{many} SELECT i FROM n")
    assert "the first 10,000 rows are shown" in answer.err


@pytest.mark.each_engine
def test_the_prompt(cli: Cli, store: Control, tmp_path: Path) -> None:
    told = converse(
        tmp_path,
        "help",
        "SHOW",
        "SCHEDULES;",
        "SHOW NONSENSE;",
        "SELECT 'a;",
        "b' AS two_lines;",
        "quit",
    )
    assert "CREATE SCHEDULE x AS" in told
    assert "schedule_status       ACTIVE" in told, "too wide for a table"
    assert "expected SCHEDULES" in told
    assert "two_lines" in told
    history = tmp_path / "state" / "rota" / "sql_history"
    assert "SHOW NONSENSE;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def converse(folder: Path, *lines: str) -> str:
    """What a terminal shows after these lines were typed."""
    mine, theirs = pty.openpty()
    told = {
        **environment(),
        "XDG_STATE_HOME": str(folder / "state"),
        "TERM": "dumb",
        "COLUMNS": "80",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "rota.cli", "sql"],
        stdin=theirs, stdout=theirs, stderr=theirs, env=told, cwd=folder,
    )  # fmt: skip
    os.close(theirs)
    seen = ""
    try:
        for line in lines:
            seen += until(mine, ("rota> ", "  ... "))
            os.write(mine, line.encode() + b"\n")
        seen += until(mine, ())
        assert process.wait(60) == 0
    finally:
        process.kill()
        os.close(mine)
    return seen


def until(terminal: int, prompts: tuple[str, ...]) -> str:
    """What comes, up to one of the prompts or the end."""
    seen = ""
    while not (prompts and seen.endswith(prompts)):
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        seen += piece.decode(errors="replace")
    return seen


def test_completion() -> None:
    complete = Completer(lambda: ["nightly", "Sales/daily"])
    assert complete.words("sche") == ["SCHEDULE", "SCHEDULES", "schedule_changes", "schedules"]
    assert complete.words("NIGHT") == ["nightly"]
    assert (complete("sales", 0), complete("sales", 1)) == ("Sales/daily", None)


def test_when_a_prompt_has_a_whole_statement() -> None:
    for text in ("SHOW JOBS;", "SELECT ';';", "NONSENSE;", "SHOW JOBS; SHOW JOBS; "):
        assert is_complete(text, "sqlite"), text
    for text in ("SHOW JOBS", "SELECT ';", "CREATE SCHEDULE x AS $$ SELECT 1;", "/* ;", ""):
        assert not is_complete(text, "sqlite"), text
