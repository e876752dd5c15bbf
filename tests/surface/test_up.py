"""`rota up`: loading an app, the screen, the lines, and a graceful stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import pytest

import rota
from rota.cli.load import load_app
from rota.cli.up_screen import describe, say_screen
from rota.errors import Invalid
from rota.storage import operations
from tests.api.support import PATIENCE, SHORT_LEASE, wait_until
from tests.surface.conftest import Cli, environment

APP = """
    import pathlib
    import rota

    app = rota.Rota()

    @app.job(every="1s", first_run="2020-01-01T00:00:00Z")
    def tick(ctx: rota.Context) -> None:
        ctx.logger.info("tick says %s", "hello")

    @app.job(max_attempts=1)
    def broken() -> None:
        raise RuntimeError("postgresql://me:geheim@db is shut")

    @app.job
    def slow(ctx: rota.Context) -> None:
        ctx.logger.info("waits for the file")
        while not pathlib.Path("go").exists():
            ctx.wait(0.01)
"""


# As `rota`, but for one thing: on a busy machine a Python file may take longer to be read than the
# start waits for it, and would be missing on the screen.
ROTA = """
import sys
from rota.cli.main import main
from rota.jobsd import folder
folder.START_SECONDS = 60.0
sys.exit(main(sys.argv[1:]))
"""


class Up:
    """A `rota up` process whose output a test can wait for."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ROTA, "up", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    def wait_for(self, *parts: str) -> str:
        """The first line that holds all of these."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.find(*parts), PATIENCE), self.lines
            found = self.find(*parts)
        assert found is not None
        return found

    def find(self, *parts: str) -> str | None:
        return next((one for one in self.lines if all(part in one for part in parts)), None)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """The exit code, and what stood on stdout."""
        self.process.send_signal(number)
        assert self.process.stdout is not None
        late = threading.Timer(PATIENCE, self.process.kill)
        late.start()
        try:
            told = self.process.stdout.read()
            code = self.process.wait(PATIENCE)
        finally:
            late.cancel()
        self._reader.join(PATIENCE)
        return code, told


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop.py").write_text(dedent(APP))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return tmp_path


@pytest.fixture
def fresh_modules() -> Iterator[None]:
    """What a test imports from its own folder does not stay."""
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if not name.startswith(("rota", "tests")):
            del sys.modules[name]


def test_a_variable_that_sets_nothing_is_told_or_refused(
    folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_SERVICE_HOST", "10.0.0.1")
    up = Up("shop:app")
    up.wait_for("warning: variable ROTA_SERVICE_HOST sets nothing")
    up.wait_for("tick", "started")
    assert up.stop()[0] == 0
    monkeypatch.setenv("ROTA_SLOTT", "3")
    for args in (["up"], ["up", "shop:app"]):
        answer = cli(*args)
        assert answer.code == 2
        assert "variable ROTA_SLOTT sets nothing; did you mean ROTA_SLOTS?" in answer.err


@pytest.mark.usefixtures("fresh_modules")
def test_a_process_that_only_serves_keeps_house_and_neither_fires_nor_works(
    folder: Path, cli: Cli
) -> None:
    app = load_app("shop:app")
    app.load()
    due = app.enqueue("broken", delay="1s").id
    app.close()
    up = Up("shop:app", "--only", "web", "--port", "0")
    wait_until(lambda: cli("runs", "--state", "queued", "--json").json, "the run to be queued")
    assert [run["id"] for run in cli("runs", "--json").json] == [due], "nothing fires"
    assert cli("workers", "--json").json == []
    assert up.stop()[0] == 0
    assert cli("runs", "--json").json[0]["state"] == "queued"


def test_it_works_says_so_and_stops_at_sigterm(folder: Path, cli: Cli) -> None:
    up = Up("shop:app", "--slots", "3", "--queue", "default")
    started = up.wait_for("tick", "started")
    up.wait_for("tick", "tick says hello")
    up.wait_for("tick", "succeeded in", started.rpartition("  ")[2])

    run = cli("run", "broken", "--json").json["id"]
    up.wait_for("broken", "attempt 1 failed in", "RuntimeError: postgresql://me:[redacted]@db", run)
    up.wait_for("broken", f"is dead; `rota show {run}` has the error")

    # Else one of its runs may be under way beside the slow one.
    cli("pause", "tick")
    ticks = ("runs", "--job", "tick", "--json")
    wait_until(lambda: all(one["finished_at"] for one in cli(*ticks).json), "the ticks' end")
    slow = cli("run", "slow", "--json").json["id"]
    up.wait_for("slow", "waits for the file")
    up.wait_for("slow", "started", slow)
    up.process.send_signal(signal.SIGTERM)
    up.wait_for("stopping; waits up to 30s for 1 run: slow (a second signal leaves at once)")
    Path("go").touch()
    assert up.process.stdout is not None
    screen = up.process.stdout.read()
    assert up.process.wait(20) == 0
    up.wait_for("rota", "stopped")

    assert "geheim" not in "\n".join(up.lines)
    assert f"Rota {rota.__version__}" in screen
    for line in (
        "  store      sqlite:///rota.db",
        "  app        shop:app",
        "  jobs       broken, slow, tick",
        "  worker     3 slots, queues default",
        "  look       rota runs",
    ):
        assert line in screen.splitlines()
    assert "  schedules  tick  every 1s  " in screen
    assert "Ctrl-C: runs under way get 30s; again: at once" in screen
    assert cli("show", slow, "--json").json["run"]["state"] == "succeeded"
    assert cli("workers", "--json").json == []
    assert sorted(os.listdir()) == [".rota", "go", "rota.db", "shop.py"]


def test_a_second_signal_leaves_at_once_and_nobody_looks_for_a_crash(
    folder: Path, cli: Cli
) -> None:
    # A busy machine may need longer for a goodbye than whoever asks twice should wait.
    with Path("shop.py").open("a") as file:
        file.write("\nimport rota.life\nrota.life.GOODBYE_SECONDS = 20.0\n")
    up = Up("shop:app")
    up.wait_for("tick", "started")
    slow = cli("run", "slow", "--json").json["id"]
    up.wait_for("slow", "started", slow)
    while up.process.poll() is None:  # one that comes right after the first is the same request
        up.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            up.process.wait(0.1)
    assert up.process.returncode == 130
    assert cli("show", slow, "--json").json["run"]["state"] == "running"
    assert cli("workers", "--json").json == []
    assert "went away" not in cli("doctor").out


def test_a_second_process_says_that_there_is_another(folder: Path, cli: Cli) -> None:
    first = Up("shop:app")
    first.wait_for("tick", "started")
    wait_until(lambda: cli("workers", "--json").json, "its first heartbeat")
    second = Up("shop:app", "--only", "worker")
    assert second.process.stdout is not None
    screen = [second.process.stdout.readline() for _ in range(4)]
    assert "1 other process works on it already; `rota workers` lists them" in "".join(screen)
    second.stop()
    _, told = first.stop()
    assert "other process" not in told


def descendants(process: int) -> set[int]:
    """Every process below this one. Threads and processes may end while they are looked at."""
    found: set[int] = set()
    with suppress(FileNotFoundError):
        for task in Path(f"/proc/{process}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                for child in (task / "children").read_text().split():
                    found |= {int(child)} | descendants(int(child))
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_ctrl_c_leaves_nothing_behind(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DuckDB store has a socket beside it, and a Python file runs in a process of its own."""
    pytest.importorskip("duckdb")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    Path("rota.toml").write_text('database = "duckdb:///rota.duckdb"\n')
    Path("jobs.d").mkdir()
    Path("jobs.d/tick.py").write_text(
        'schedule = "* * * * * *"\n\n\ndef run(ctx):\n    ctx.storage.put("x", b"kept")\n'
    )
    up = Up()
    up.wait_for("tick", "succeeded in")
    wait_until(Path("rota.duckdb.rota.sock").exists, "its door")
    below = descendants(up.process.pid)
    assert below
    code, _ = up.stop(signal.SIGINT)
    assert code == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in below)
    assert os.listdir(temporary) == []
    left = {name for name in os.listdir() if not name.startswith("rota.duckdb")}
    assert left - {".rota"} == {"jobs.d", "rota.toml", "temporary"}
    assert not [name for name in os.listdir() if "sock" in name or "pid" in name]


def test_without_an_app_it_fires_and_says_who_works(folder: Path, cli: Cli) -> None:
    up = Up("--database", "sqlite:///other.db", "--only", "scheduler", "--json")
    assert up.process.stdout is not None
    # The screen is a JSON document of several lines: the first closing brace ends it.
    lines = []
    for line in up.process.stdout:
        lines.append(line)
        if line == "}\n":
            break
    told = json.loads("".join(lines))
    assert told["app"] is None
    assert (told["database"], told["parts"]) == ("sqlite:///other.db", ["scheduler"])
    assert (told["jobs"], told["schedules"], told["slots"]) == ([], [], 0)
    code, _ = up.stop(signal.SIGINT)
    assert code == 0
    assert cli("schedules", "--database", "sqlite:///other.db", "--json").json == []
    assert not Path("rota.db").exists()


def test_a_lost_attempt_is_told_once(cli: Cli) -> None:
    app = rota.Rota("sqlite:///rota.db")
    app.job("slow")(lambda: None)
    app.enqueue("slow")
    lease = timedelta(milliseconds=20)
    assert app.storage.write(
        operations.claim, "gone", queues=(), jobs=["slow"], limit=1, lease=lease
    )
    app.close()
    Path("rota.toml").write_text(f'lease = "{SHORT_LEASE}"\n')
    up = Up("--only", "scheduler,worker")
    line = up.wait_for("its worker was lost")
    up.stop()
    assert line.split("  ")[-2] == "attempt 1: its worker was lost", line


def test_what_listens_for_others_says_so_and_that_it_is_not_encrypted(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("migrate").code == 0
    assert cli("token", "create", "ci").code == 0
    up = Up("--host", "0.0.0.0", "--port", "0")
    up.wait_for("host 0.0.0.0: others can reach it", "unencrypted", "tls_certificate")
    assert up.process.stdout is not None
    line = next(line for line in up.process.stdout if line.strip().startswith("web"))
    port = line.rpartition(":")[2].strip()
    assert f"listens on 0.0.0.0, port {port}; from here http://127.0.0.1:{port}" in line
    code, _ = up.stop()
    assert code == 0
    assert len([line for line in up.lines if "unencrypted" in line]) == 1


def test_the_screen_names_commands_that_work(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    def screen(usual: str, processes: int = 1) -> str:
        say_screen(app, describe(app, "shop:app", ("worker",)), usual, processes)
        return capsys.readouterr().out

    def look(usual: str) -> list[str]:
        return [line.strip() for line in screen(usual).splitlines() if "rota runs" in line]

    app = rota.Rota("sqlite:///other.db")
    app.load()
    assert look("sqlite:///other.db") == ["look       rota runs"]
    assert look("sqlite:///rota.db") == ["look       rota runs --database sqlite:///other.db"]
    secret = "postgresql://me:geheim@db/shop"
    app.settings = replace(app.settings, database=secret)
    assert "ROTA_DATABASE" not in screen(secret)
    told = screen("sqlite:///rota.db")
    assert (told.count("(with ROTA_DATABASE set"), "geheim" in told) == (1, False)
    assert "  10 slots, all queues\n" in told
    assert "  2 \N{MULTIPLICATION SIGN} 10 slots, all queues\n" in screen(secret, 2)
    assert describe(app, None, ())["database"] == "postgresql://me:[redacted]@db/shop"
    app.close()


@pytest.mark.usefixtures("fresh_modules")
@pytest.mark.parametrize(
    ("text", "address", "message"),
    [
        ("", "nope:app", "module 'nope' is not in this folder"),
        ("", "made.nope:app", "module 'made.nope' is not in this folder"),
        ("", "made.py:app", "'made.py' is a file; name the module: rota up made:app"),
        ("", "made:app", "module 'made' has no 'app'; it has no rota.Rota at its top level"),
        ("import rota\nshop = rota.Rota()", "made:app", "module 'made' has no 'app'; it has shop"),
        ("app = 5", "made:app", "'made:app' is an int, not a rota.Rota"),
        ("import nothing_like_this", "made", "No module named 'nothing_like_this' (made.py, line"),
        ("x = 1\ny = x / 0", "made", "ZeroDivisionError: division by zero (made.py, line 2: y = x"),
        ("def f(:", "made", "module 'made': SyntaxError: invalid syntax (made.py, line 1)"),
        ("import rota\nrota.Rota(slots=0)", "made", "slots 0 must be a whole number from 1"),
        ("", ".made:app", "module '.made' is not a name"),
    ],
)
def test_an_app_that_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, address: str, message: str
) -> None:
    (tmp_path / "made.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Invalid) as caught:
        load_app(address)
    assert message in str(caught.value)


@pytest.mark.usefixtures("clean_logging", "fresh_modules")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("nope:app", "rota: module 'nope' is not in this folder"),
        ("--only nap", "rota: --only 'nap' is unknown; use scheduler, worker, web or some of them"),
        ("--log-level loud", "rota: log level 'loud' is unknown; use debug, info"),
        ("--slots 0", "rota: slots 0 must be a whole number"),
        ("nope:app --slots 0", "rota: slots 0 must be a whole number"),
        ("--config no.toml", "rota: settings file no.toml does not exist"),
        ("shop:app --config no.toml", "rota: settings file no.toml does not exist"),
        ("--database sqlite:///no/such/folder/rota.db", "rota: no/such/folder/rota.db cannot be"),
    ],
)
def test_a_wrong_start_is_one_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, args: str, message: str
) -> None:
    for name in ("ROTA_DATABASE", "ROTA_SLOTS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    answer = cli("up", *args.split())
    assert answer.code == (1 if "folder/rota.db" in args else 2)
    assert answer.error.startswith(message)


FALL = """
    import asyncio
    import gc
    import threading
    import rota

    app = rota.Rota()

    def fall():
        raise SystemExit("the loop fell")

    @app.job
    def end_web() -> None:
        (thread,) = (one for one in threading.enumerate() if one.name == "rota-web")
        for one in gc.get_objects():
            if isinstance(one, asyncio.BaseEventLoop) and one._thread_id == thread.ident:
                one.call_soon_threadsafe(fall)
"""


def test_a_web_server_that_has_ended_is_on_the_screen_and_comes_back(
    folder: Path, cli: Cli
) -> None:
    (folder / "fall.py").write_text(dedent(FALL))
    up = Up("fall:app", "--port", "0", "--json")
    try:
        assert up.process.stdout is not None
        screen = json.loads("".join(iter(up.process.stdout.readline, "}\n")) + "}")
        url = screen["web"]["url"]
        port = url.rpartition(":")[2]
        wait_until(lambda: answers(url))
        assert cli("run", "end_web").code == 0
        end = json.loads(up.wait_for("the web server has ended: SystemExit: the loop fell"))
        assert end["level"] == "error"
        assert f"port {port} is served again in 1 s" in end["message"]
        assert "Traceback" in end["error"]
        up.wait_for(f"the web server answers again on port {port}")
        wait_until(lambda: answers(url))
        assert cli("run", "end_web").code == 0
        up.wait_for("the web server has ended", "is served again in 2 s")
    finally:
        code, _ = up.stop()
    assert code == 0


def answers(url: str) -> bool:
    with suppress(OSError):
        return bool(urllib.request.urlopen(f"{url}/healthz", timeout=5).status == 200)
    return False
