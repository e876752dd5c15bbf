"""What a newcomer meets in the first hour: each message says what happened and what to do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

import rota
from rota.cli.up_screen import describe, say_screen
from rota.errors import Conflict, Invalid
from rota.extras import how_to_install
from rota.flow.control import Control
from rota.model.zone import parse_zone
from rota.storage import operations
from rota.storage.postgres.faults import translate
from rota.web.server import Web
from tests.surface.conftest import Cli, environment
from tests.surface.test_up import Up, descendants

# A package that is not there, as far as this process can see.
WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from rota.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.usefixtures("clean_logging")
@pytest.mark.parametrize(
    ("settings", "args", "message"),
    [
        ("databse = 'x'", "up", "rota.toml: setting 'databse' is unknown; did you mean 'database'"),
        ("[target]\nx = 1", "runs", "rota.toml: setting 'target' is unknown; did you mean 'target"),
        ("slots = = 3", "up", "file rota.toml is not valid TOML: Invalid value (at line 1, col"),
        ("", "up --database sqlit:///x", "database 'sqlit' is unknown; use sqlite:///rota.db or "),
        ("", "up --database postgresql+psycopg://a/b", "unknown; begin its URL with postgresql://"),
        ("", "up --database jdbc:postgresql://a/b", "is unknown; begin its URL with postgresql://"),
        ("", "up --database SQLite:///x", "'SQLite' is unknown; begin its URL with sqlite://"),
        ("", "start", 'Unknown command "start". Did you mean "up"? `rota --help` lists all'),
        ("", "xyzzy", 'Unknown command "xyzzy". `rota --help` lists all'),
        ("", "--database x runs", "option --database stands before the command; use: rota COMM"),
        ("", "token mak", "'mak' cannot be done to tokens; use create, list, revoke"),
        ("", "next @daily --tz CEST", "it is an abbreviation or an offset, which say nothing a"),
        ("", "next @daily --after 2026-03-28T12:00:00", "has no offset; add one, such as '+01:00'"),
        ("", "init /proc/nothing", "/proc/nothing cannot be written: "),
    ],
)  # fmt: skip
def test_wrong_use_says_what_to_do(cli: Cli, settings: str, args: str, message: str) -> None:
    if settings:
        Path("rota.toml").write_text(settings)
    before = os.listdir()
    answer = cli(*args.split())
    assert answer.code == 2
    assert message in answer.error
    assert os.listdir() == before


@pytest.mark.parametrize("name", ["CEST", "PST", "IST", "GMT+2", "UTC-5", "+02:00"])
def test_an_abbreviation_is_no_time_zone(name: str) -> None:
    """Near in letters is not near in hours: nobody is sent from CEST to EST."""
    with pytest.raises(
        Invalid, match=r"use the name of a place, such as 'Europe/Berlin', or 'UTC'"
    ):
        parse_zone(name)


def test_a_city_in_capitals_is_still_found() -> None:
    with pytest.raises(Invalid, match="did you mean 'Europe/Rome'"):
        parse_zone("ROME")


def test_a_store_that_is_not_here_may_be_in_another_folder(cli: Cli, tmp_path: Path) -> None:
    assert f"(this folder, {tmp_path}, has no rota.toml)" in cli("runs").error
    assert "this folder" not in cli("runs", "--database", f"sqlite:///{tmp_path}/x.db").error
    Path("rota.toml").touch()
    assert "this folder" not in cli("runs").error


@pytest.mark.parametrize(
    ("files", "address", "message"),
    [
        (["shop.py"], "shpo:app", "is not in this folder ({here}) and not installed; did you mean "
         "'shop'?"),
        (["src/bakery.py"], "bakery:app", "it is in src: pip install -e . or PYTHONPATH=src makes"),
        (["src/bakery/jobs.py"], "bakery.jobs:app", "it is in src: pip install -e ."),
        ([], "bakery:app", "start `rota up` where the module can be imported"),
        (["orders.py"], "orders:app", "has no rota.Rota at its top level; make one with app = ro"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("clean_logging")
def test_a_module_that_is_not_found(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, files: list[str], address: str, message: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in files:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    answer = cli("up", address)
    sys.modules.pop("orders", None)
    assert answer.code == 2
    assert message.format(here=Path.cwd()) in answer.error


@pytest.mark.parametrize(
    ("package", "args", "extra"),
    [
        ("psycopg", "up --database postgresql://me@127.0.0.1:1/x", "postgres"),
        ("duckdb", "up --database duckdb:///x.duckdb", "duckdb"),
        ("pytz", "up --database duckdb:///x.duckdb", "duckdb"),
        ("starlette", "up --only web", "web"),
    ],
)
def test_a_missing_extra_is_named(tmp_path: Path, package: str, args: str, extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, package, *args.split()],
        cwd=tmp_path, env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert how_to_install(extra) in done.stderr
    assert package in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("/no_such_shop", 'FATAL: database "no_such_shop" does not exist); check the name of the '
         "database, or make it with `createdb`"),
        ("nobody_here:x@", "check user and password"),
        (":@", "put the password into the URL, PGPASSWORD or a password file"),
    ],
)  # fmt: skip
def test_a_server_that_is_there_and_lets_nobody_in(
    cli: Cli, postgres_url: str, monkeypatch: pytest.MonkeyPatch, part: str, message: str
) -> None:
    told = urlsplit(postgres_url)
    if not told.password:
        pytest.skip("this server asks for no password")
    monkeypatch.delenv("PGPASSWORD", raising=False)
    host = told.netloc.rpartition("@")[2]
    url = {
        "/": f"postgresql://{told.netloc}{part}",
        "n": f"postgresql://{part}{host}{told.path}",
        ":": f"postgresql://{told.username}@{host}{told.path}",
    }[part[0]]
    answer = cli("runs", "--database", url)
    assert answer.code == 1
    assert message in answer.error
    assert told.password not in answer.error


@pytest.mark.parametrize(
    ("said", "way"),
    [
        ('password authentication failed for user "me"', "check user and password"),
        ("fe_sendauth: no password supplied", "put the password into the URL, PGPASSWORD or"),
        ('role "me" does not exist', "the server must have this role, with LOGIN"),
        ('role "me" is not permitted to log in', "the server must have this role, with LOGIN"),
        ('database "shop" does not exist', "make it with `createdb`"),
        ("connection refused", "check that the server runs and can be reached"),
    ],
)
def test_what_a_server_says_comes_with_the_way_out(said: str, way: str) -> None:
    told = str(translate(psycopg.OperationalError(f"FATAL:  {said}"), "postgresql://db/shop", "me"))
    assert told.startswith("postgresql://db/shop does not answer")
    assert way in told


def test_a_port_that_is_taken(cli: Cli) -> None:
    app = rota.Rota()
    app.load()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        app.settings = replace(app.settings, port=taken.getsockname()[1])
        with pytest.raises(Conflict, match=r"in use, perhaps by another `rota up`; stop that, or "):
            Web(app).prepare()
    app.close()


@pytest.mark.usefixtures("clean_logging")
def test_a_folder_that_cannot_be_written(cli: Cli) -> None:
    answer = cli("up", "--database", "sqlite:////proc/rota.db")
    assert answer.code == 1
    assert "/proc/rota.db cannot be opened; check that the folder /proc exists" in answer.error


def test_a_run_says_that_its_worker_serves_another_queue(cli: Cli, store: Control) -> None:
    row = {
        "id": "w-1", "host": "here", "pid": 1, "version": "1", "tzdata": "1", "origin": None,
        "jobs": '["chatty"]', "queues": '["default", "mail"]', "slots": 1, "stuck": 0,
    }  # fmt: skip
    store.store.write(operations.put_worker, row)
    reason = (
        "no live worker that knows the job 'chatty' serves queue 'talk' (they serve default, "
        "mail); start one with --queue talk, or without --queue for all"
    )
    made = cli("run", "chatty")
    assert made.err == f"{reason}\n"
    assert cli("runs", "--json").json[0]["reason"] == reason
    store.store.write(operations.put_worker, row | {"queues": '["talk"]'})
    assert cli("runs", "--json").json[0]["reason"] is None
    assert cli("run", "chatty").err == ""


@pytest.mark.usefixtures("store")
def test_a_schedule_that_does_not_run_says_the_way_out(cli: Cli) -> None:
    told = cli("explain", "nightly").out
    assert "no worker is alive; start one with `rota up [MODULE:APP]`" in told
    cli("pause", "nightly")
    cli("pause", "--queue", "default")
    cli("pause", "--dispatch")
    told = cli("explain", "nightly").out
    for way in ("nightly", "--queue default", "--dispatch"):
        assert f"`rota resume {way}`" in " ".join(told.split())


def test_lists_that_are_empty_say_how_they_fill(cli: Cli) -> None:
    assert cli("migrate").code == 0
    assert cli("runs").err == "no runs yet; a schedule makes them, or `rota run JOB`\n"
    assert cli("runs", "--state", "dead").err == "no runs match\n"
    for noun in ("jobs", "schedules", "queues", "workers"):
        assert cli(noun).err.startswith("no ")


def screen(app: rota.Rota, address: str | None, capsys: pytest.CaptureFixture[str]) -> str:
    say_screen(app, describe(app, address, ("scheduler", "worker")), None)
    return capsys.readouterr().out


def test_the_screen_names_the_next_step_where_there_is_nothing_to_do(
    cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    app = rota.Rota()
    app.load()
    empty = screen(app, None, capsys)
    assert "  folder     jobs.d (not there yet)\n" in empty
    assert "  next       Ctrl-C, then `rota init` (a folder with two working jobs)" in empty
    Path("jobs.d").mkdir()
    assert "  next       save a job in jobs.d; `rota init DIR`" in screen(app, None, capsys)

    @app.job
    def greet() -> None: ...

    app.load()
    assert "  next  " not in screen(app, None, capsys)
    app.close()


def test_who_has_an_app_hears_of_a_folder_only_where_there_is_one(
    cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    app = rota.Rota()
    app.load()
    told = screen(app, "shop:app", capsys)
    assert "jobs.d" not in told
    assert "  next  " not in told
    app.settings = replace(app.settings, jobs_dir="reports")
    assert "  folder     reports (not there yet)\n" in screen(app, "shop:app", capsys)
    Path("reports").mkdir()
    assert "  folder     reports\n" in screen(app, "shop:app", capsys)
    app.close()


def test_ctrl_c_before_anything_runs_leaves_a_store_that_is_closed(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from rota.cli import up
from rota.cli.main import main
up._introduce = lambda *told: os.kill(os.getpid(), signal.SIGINT)
sys.exit(main(["up", "--port", "0"]))
"""
    told = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (told.returncode, told.stderr) == (0, "")
    assert set(os.listdir(tmp_path)) - {".rota"} == {"rota.db"}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.parametrize("init", [False, True], ids=["empty", "init"])
def test_from_an_empty_folder_to_ctrl_c_nothing_is_left_behind(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, init: bool
) -> None:
    """`rota init` asks nothing; its jobs work at once."""
    pytest.importorskip("duckdb")
    temporary = tmp_path.parent / f"{tmp_path.name}-temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr("builtins.input", None)
    files = {".rota", "rota.db"}
    if init:
        assert cli("init").code == 0
        files |= {"jobs.d", "rota.toml", "warehouse.duckdb"}
    up = Up("--port", "0")
    assert up.process.stdout is not None
    blank = 0  # one below the title, one at the end of the screen
    while blank < 2:
        line = up.process.stdout.readline()
        assert line, up.lines
        blank += line == "\n"
    if init:
        for job in ("visits", "cleanup"):
            assert " succeeded in " in cli("run", job, "--wait").out
    below = descendants(up.process.pid)
    code, _ = up.stop(signal.SIGINT)
    assert code == 0
    assert set(os.listdir()) == files
    assert set(os.listdir(".rota")) == {".gitignore", "token"}
    assert os.listdir(temporary) == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in below)
