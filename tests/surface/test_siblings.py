"""`rota up --processes N`: workers beside the first one, that come and go with it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from rota.cli import siblings
from tests.api.support import PATIENCE, wait_until
from tests.surface.conftest import Cli
from tests.surface.test_up import Up

APP = """
    import os
    import pathlib
    import sys
    import threading
    import rota

    app = rota.Rota()

    @app.job
    def who() -> int:
        return os.getpid()

    @app.job
    def linger(ctx: rota.Context) -> object:
        return slow(ctx) if "--sibling" in sys.orig_argv else rota.Snooze("50ms")

    @app.job
    def slow(ctx: rota.Context) -> str:
        pathlib.Path(f"begun_{os.getpid()}_{ctx.run_id}").touch()
        while not pathlib.Path("go").exists():
            ctx.wait(0.01)
        return "whole"

    # Long enough that none of the others is late, however busy the machine.
    @app.job(isolation="thread", timeout="2s", max_attempts=1)
    def stick() -> object:
        if "--sibling" in sys.orig_argv:
            return rota.Snooze("50ms")
        return threading.Event().wait()
"""


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Up]:
    (tmp_path / "shop.py").write_text(dedent(APP))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    up = Up("shop:app", "--processes", "3", "--slots", "2")
    yield up
    up.process.kill()  # its siblings see it, and end
    up.process.wait(20)


def pids(cli: Cli) -> set[int]:
    answer = cli("workers", "--json")
    return {worker["pid"] for worker in answer.json} if answer.code == 0 else set()  # no store yet


def are_gone(processes: set[int]) -> bool:
    return not any(Path(f"/proc/{pid}/cmdline").exists() for pid in processes)


def three(cli: Cli, without: int = 0) -> Callable[[], bool]:
    return lambda: len(pids(cli) - {without}) == 3


def test_they_work_come_back_and_stop_together(up: Up, cli: Cli) -> None:
    wait_until(three(cli))
    assert {worker["slots"] for worker in cli("workers", "--json").json} == {2}
    killed = next(iter(pids(cli) - {up.process.pid}))
    os.kill(killed, signal.SIGKILL)
    up.wait_for(f"worker process {killed} ended (signal 9); it starts again")
    wait_until(three(cli, without=killed))
    processes = pids(cli) - {killed}
    assert cli("run", "who", "--wait", "--json").code == 0
    code, _ = up.stop()
    assert code == 0
    assert are_gone(processes)


def children(parent: int, states: str) -> set[int]:
    """Those of a process that are in one of these states, as the system tells them."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            pid, _, rest = path.read_text().partition(" (")
            state, ppid = rest.rpartition(") ")[2].split()[:2]
            if int(ppid) == parent and state in states:
                found.add(int(pid))
    return found


def test_a_process_that_starts_anew_leaves_none_of_them_behind(up: Up, cli: Cli) -> None:
    wait_until(three(cli))
    before = children(up.process.pid, "RSD")
    assert cli("run", "linger").code == 0
    wait_until(begun)
    assert cli("run", "stick").code == 0
    up.wait_for("starting anew")
    Path("go").touch()  # one of them is still at work
    wait_until(lambda: len(pids(cli) - before - {up.process.pid}) == 2)
    (lingering,) = {run for _, run in begun()}
    assert cli("show", lingering, "--json").json["run"]["state"] == "succeeded"
    wait_until(lambda: up.process.pid in pids(cli), "the first one's row")
    assert children(up.process.pid, "Z") == set()
    assert not children(up.process.pid, "RSD") & before


def begun() -> list[tuple[str, str]]:
    """(process, run) of what has begun."""
    return [(path.name.split("_")[1], path.name.split("_")[2]) for path in Path().glob("begun_*")]


def test_all_of_them_let_their_runs_end(up: Up, cli: Cli) -> None:
    wait_until(three(cli))
    for _ in range(20):  # more than slots, and than what is claimed ahead
        cli("enqueue", "slow")
    wait_until(lambda: len({process for process, _ in begun()}) == 3)
    processes = pids(cli)
    up.process.send_signal(signal.SIGINT)
    up.wait_for("stopping; waits up to 30s for")
    Path("go").touch()
    assert up.process.wait(PATIENCE) == 0
    assert are_gone(processes)
    states = {cli("show", run, "--json").json["run"]["state"] for _, run in begun()}
    assert states == {"succeeded"}
    assert cli("workers", "--json").json == []


def test_each_says_what_its_runs_do_in_the_same_words(up: Up, cli: Cli) -> None:
    wait_until(three(cli))
    for _ in range(20):
        cli("enqueue", "slow")
    wait_until(lambda: len({process for process, _ in begun()}) == 3)
    one_of_each = dict(begun())
    for run in one_of_each.values():
        up.wait_for("slow", "started", run)
    Path("go").touch()
    for run in one_of_each.values():
        up.wait_for("slow", "succeeded in", run)
    wait_until(lambda: len(cli("runs", "--state", "succeeded", "--json").json) == 20)
    code, told = up.stop()
    assert code == 0
    assert told.count("Ctrl-C") == 1, "one screen"
    ends = [line for line in up.lines if "stopping; nothing" in line or line.endswith("stopped")]
    assert len(ends) == 2, up.lines


def test_an_edit_that_all_of_them_see_is_told_once(up: Up, cli: Cli) -> None:
    wait_until(three(cli))
    Path("jobs.d").mkdir()
    Path("jobs.d/hello.py").write_text("schedule = False\n\ndef run(ctx): ...\n")
    wait_until(lambda: all("hello" in one["jobs"] for one in cli("workers", "--json").json))
    up.stop()
    assert len([line for line in up.lines if "job hello is new" in line]) == 1, up.lines


def test_they_end_when_the_first_one_is_killed(up: Up, cli: Cli) -> None:
    wait_until(three(cli))
    others = pids(cli) - {up.process.pid}
    up.stop(signal.SIGKILL)
    wait_until(lambda: are_gone(others))


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--processes", "0"], "--processes 0 must be a whole number from 1 to 256"),
        (
            ["--processes", "2", "--database", "duckdb:///x.duckdb"],
            "a DuckDB store is opened by one process",
        ),
        (["--processes", "2", "--database", "sqlite:///:memory:"], "a store in memory belongs to"),
    ],
)
@pytest.mark.usefixtures("clean_logging")
def test_what_cannot_be_is_refused(cli: Cli, flags: list[str], told: str) -> None:
    answer = cli("up", *flags)
    assert answer.code == 2
    assert told in answer.err
    assert os.listdir() == []


def test_one_that_could_not_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begin, begun, tries = subprocess.Popen, threading.Event(), []

    def fail_twice(*args: Any, **more: Any) -> Any:
        tries.append(1)
        if len(tries) <= 2:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        process = begin(*args, **more)
        begun.set()
        return process

    monkeypatch.setattr(siblings, "RESTART_SECONDS", 0.001)
    monkeypatch.setattr(siblings.subprocess, "Popen", fail_twice)
    kept = siblings.Siblings(1, [])
    kept._command = ["sleep", "600"]
    kept.start()
    assert begun.wait(PATIENCE)
    kept.ask_to_stop()
    kept.wait()
    assert len(tries) == 3
    assert "a worker process could not be started" in caplog.text
