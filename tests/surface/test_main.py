"""Exit codes, errors, help, and what a command may import."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rota
from rota.cli import logs
from rota.cli.commands import COMMANDS as TABLES
from tests.surface.conftest import Cli, environment

COMMANDS = list(TABLES.values())
# Everything that reads a store, with arguments that would be right if there were one.
READING = [
    "jobs", "schedules", "runs", "show x", "logs 01997f3a", "queues", "workers", "locks",
    "run x", "enqueue x", "schedule x --job y --every 5m", "pause x", "resume x", "drop x",
    "cancel 01997f3a", "redo 01997f3a", "delete 01997f3a", "prune",
]  # fmt: skip
# Each is a millisecond, or brings others.
NOT_FOR_A_LIST = (
    "rota.flow.explain", "rota.flow.findings", "rota.model.cron", "rota.model.cron_words",
    "rota.model.definition", "rota.model.fold", "rota.model.result", "rota.model.views",
    "rota.storage.postgres.judge", "rota.storage.postgres.select", "rota.storage.sqlite.select",
)  # fmt: skip
LOADED = """
import json, sys
from rota.cli.main import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""
COLLECTED = """
import gc, json, sys
from rota.cli.main import main
seen = []
gc.callbacks.append(lambda phase, told: seen.append(told["generation"]))
print(json.dumps([main(sys.argv[1:]), seen]), file=sys.stderr)
"""
ENDED = """
import atexit, gc, json, sys
from rota.cli.main import main
atexit.register(lambda: print(json.dumps([code, len(gc.get_objects())]), file=sys.stderr))
code = main(sys.argv[1:])
"""


def test_version_is_the_package_version(cli: Cli) -> None:
    assert cli("--version").out.strip() == f"rota {rota.__version__}"


def test_help_lists_every_command(cli: Cli) -> None:
    for flags in ([], ["--help"], ["-h"]):
        answer = cli(*flags)
        assert answer.code == 0
        for command in COMMANDS:
            assert re.search(rf"^  {command.name} +{re.escape(command.help)}$", answer.out, re.M)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_of_each_command_shows_an_example_and_json(cli: Cli, command: object) -> None:
    answer = cli(command.name, "--help")  # type: ignore[attr-defined]
    assert answer.code == 0
    assert f"Example: rota {command.name}" in answer.out  # type: ignore[attr-defined]
    assert "--json" in answer.out
    assert ("--database" in answer.out) == (command.name not in ("next", "init"))  # type: ignore[attr-defined]


def test_help_in_a_pipe_has_whole_lines_and_no_blanks_behind_them(cli: Cli) -> None:
    text = cli("up", "--help").out
    assert (
        "\n  --host ADDRESS: Where web listens: 127.0.0.1 if not given. Any other address needs a "
        "token first.\n"
    ) in text
    assert not re.search(r" $", text, re.M)
    # Nothing but a heading begins at the left: no line is the rest of another.
    assert not re.search(r"^[a-z]", text, re.M)
    assert "\x1b" not in text


@pytest.mark.parametrize(("columns", "widest"), [(200, 80), (80, 80), (50, 50)])
@pytest.mark.parametrize("command", [*TABLES, ""])
def test_help_on_a_terminal_is_folded(
    cli: Cli, command: str, columns: int, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_pipe = cli(*filter(None, [command, "--help"])).out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    painted = cli(*filter(None, [command, "--help"])).out
    text = re.sub(r"\x1b\[\d+m", "", painted)
    assert text != painted
    # Examples are whole, to be copied; the summaries of all commands are short enough for 80.
    lines = [line for line in text.splitlines() if not line.startswith(("Example: ", "Usage: "))]
    if command:
        assert max(map(len, lines)) <= widest
    # The same words, but for the colon between a name and its meaning.
    assert text.replace(":", "").split() == in_pipe.replace(":", "").split()
    monkeypatch.setenv("NO_COLOR", "1")
    assert cli(*filter(None, [command, "--help"])).out == text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("rns", 'rota: Unknown command "rns". Did you mean "runs"?'),
        ("runs --lim 5", "rota: Unknown option --lim. Did you mean --limit?"),
        ("runs --limit x", "rota: --limit takes a whole number, not 'x'; write digits, such as 20"),
        ("show", "rota: X is missing; use: rota show X [OPTIONS]"),
        ("jobs --database rota.db", "rota: database 'rota.db' is not a URL"),
        ("jobs --database mysql://x/y", "rota: database 'mysql' is unknown"),
        ("jobs --config no.toml", "rota: settings file no.toml does not exist"),
    ],
)
def test_wrong_use_exits_2_with_one_line(cli: Cli, args: str, message: str) -> None:
    answer = cli(*args.split())
    assert answer.code == 2
    assert answer.error.startswith(message)


@pytest.mark.parametrize("args", READING)
def test_a_missing_store_is_not_created(cli: Cli, args: str) -> None:
    answer = cli(*args.split())
    assert answer.code == 2
    assert answer.error.startswith(
        "rota: no store at rota.db; start one with `rota up [MODULE:APP]`, "
        "or point --database elsewhere (this folder, "
    )
    assert os.listdir() == []


def test_an_empty_file_is_no_store(cli: Cli) -> None:
    Path("rota.db").touch()
    assert "no store at rota.db" in cli("runs").error


def test_with_json_an_error_is_an_object_on_stderr(cli: Cli) -> None:
    answer = cli("runs", "--json")
    assert (answer.code, answer.out) == (2, "")
    assert "no store at rota.db" in json.loads(answer.err)["error"]
    assert "Unknown option" in json.loads(cli("runs", "--json", "--nope").err)["error"]


@pytest.mark.usefixtures("store")
def test_what_the_state_of_a_thing_forbids_exits_1(cli: Cli) -> None:
    run = cli("enqueue", "broken", "--json").json["id"]
    assert cli("cancel", run).code == 0
    answer = cli("cancel", run)
    assert answer.code == 1
    assert "is cancelled; cancel is not possible then (possible: redo)" in answer.error


def test_settings_come_from_the_file_that_is_named(cli: Cli) -> None:
    Path("other.toml").write_text('database = "sqlite:///other.db"\n')
    assert cli("migrate", "--config", "other.toml").code == 0
    assert Path("other.db").exists()
    assert cli("jobs", "--config", "other.toml", "--json").json == []
    assert cli("jobs", "--database", "sqlite:///other.db", "--json").json == []


@pytest.mark.usefixtures("store")
def test_an_interrupt_exits_130_quietly(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    run = cli("enqueue", "broken", "--json").json["id"]

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(logs.time, "sleep", interrupt)
    answer = cli("logs", run, "-f")
    assert (answer.code, answer.out, answer.err) == (130, "", "")


@pytest.mark.usefixtures("store")
def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rota.cli", "jobs", "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment()) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 0


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("args", "unwanted"),
    [
        (["--version"], {"dataclasses", "inspect", "rota.cli.commands", "rota.cli.reader"}),
        (["--help"], {"rich", "msgspec", "sqlite3", "rota.config", "rota.cli.table"}),
        (["runs", "--help"], {"rich", "sqlite3"}),
        (["next", "@daily"], {"rich", "asyncio", "msgspec", "sqlite3", "rota.app", "rota.config"}),
        (
            ["runs"],
            {
                "rich",
                "asyncio",
                "ctypes",
                "shutil",
                "importlib.resources",
                "rota.executors.context",
                "psycopg",
                "rota.app",
                "rota.executors.python",
                "rota.model.interpolate",
            },
        ),
    ],
)
def test_a_command_loads_only_what_it_needs(args: list[str], unwanted: set[str]) -> None:
    """Each of these costs tens of milliseconds, and a command should answer within 300."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *args], capture_output=True, text=True, env=environment()
    )
    code, loaded = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    assert not unwanted & set(loaded)


@pytest.mark.usefixtures("store")
def test_a_command_is_done_before_it_looks_for_garbage() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COLLECTED, "runs"], capture_output=True, text=True, env=environment()
    )
    assert json.loads(done.stderr.splitlines()[-1]) == [0, []], done.stderr


@pytest.mark.usefixtures("store")
def test_a_command_ends_without_looking_for_garbage() -> None:
    """What Python looks at while it ends is what was made after the command was done."""
    done = subprocess.run(
        [sys.executable, "-c", ENDED, "runs"], capture_output=True, text=True, env=environment()
    )
    code, looked_at = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    assert looked_at < 1_000


@pytest.mark.parametrize(("engine", "other"), [("sqlite", "psycopg"), ("postgres", "sqlite3")])
def test_a_list_needs_its_own_driver_only(
    cli: Cli, request: pytest.FixtureRequest, engine: str, other: str
) -> None:
    url = "sqlite:///x.db" if engine == "sqlite" else request.getfixturevalue("postgres_url")
    assert cli("migrate", "--database", url).code == 0
    told = ["runs", "--database", url, "--state", "dead", "--limit", "5"]
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *told], capture_output=True, text=True, env=environment()
    )
    code, loaded = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    unwanted = {"rich", "duckdb", other, "rota.app", *NOT_FOR_A_LIST}
    assert not unwanted & set(loaded)
