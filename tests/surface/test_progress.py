"""What a terminal sees of how far a command is: on a real pseudo-terminal."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import rota
from rota.cli.progress import Progress
from tests.api.support import PATIENCE
from tests.surface.conftest import environment

HIDE, SHOW, COLOUR = "\x1b[?25l", "\x1b[?25h", re.compile(r"\x1b\[[0-9;]*3[0-9]")
# As `rota`, but what is drawn after seconds is drawn at once, and each time.
ROTA = """
import sys
from rota.cli import enqueue, progress
from rota.cli.main import main
progress.BAR_SECONDS = progress.DRAW_SECONDS = enqueue.SPINNER_SECONDS = 0.0
code = main(sys.argv[1:])
if "rich.live" in sys.modules:
    print("rich was needed")
sys.exit(code)
"""


class Screen:
    """A terminal that a test reads. `error` is the end that a program writes to."""

    def __init__(self, columns: int = 100) -> None:
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, (24, columns))
        self.error = os.fdopen(self.slave, "w", buffering=1, closefd=False)
        self.text = ""
        self._decode = codecs.getincrementaldecoder("utf-8")()

    def read(self) -> str:
        """What was written since the last time: up to a mark that is written now."""
        before = len(self.text)
        os.write(self.slave, b"\0")
        self.wait_for("\0")
        self.text = self.text.replace("\0", "")
        return self.text[before:]

    def wait_for(self, text: str) -> None:
        while text not in self.text:
            assert select.select([self.master], [], [], PATIENCE)[0], self.text
            self.text += self._decode.decode(os.read(self.master, 65536))

    def close(self) -> None:
        self.error.close()
        os.close(self.master)
        os.close(self.slave)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    made = Screen()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    yield made
    made.close()


def test_nothing_is_drawn_for_two_seconds_then_a_bar_that_goes_away(screen: Screen) -> None:
    clock = Clock()
    with Progress(silent=False, stream=screen.error, monotonic=clock) as progress:
        progress.show("redo", 0, 5_000)
        clock.now += 1.9
        progress.show("redo", 1_000, 5_000)
        assert screen.read() == ""
        clock.now += 0.1
        progress.show("redo", 2_000, 5_000)
        drawn = screen.read()
        assert "redo" in drawn
        assert "2,000 of 5,000, 0:03 left" in drawn
        assert HIDE in drawn
        assert COLOUR.search(drawn)
        clock.now += 0.05  # too soon to be drawn again
        progress.show("redo", 2_001, 5_000)
        assert screen.read() == ""
    end = screen.read()
    assert SHOW in end
    assert "\x1b[2K" in end


def test_a_fault_gives_the_cursor_back(screen: Screen) -> None:
    def work() -> None:
        with Progress(silent=False, stream=screen.error, after=0.0) as progress:
            progress.show("checks", 1, 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert screen.read().endswith("\x1b[2K")
    assert SHOW in screen.text


def test_text_that_is_too_long_or_moves_a_terminal_stays_one_line(screen: Screen) -> None:
    with Progress(silent=False, stream=screen.error, after=0.0) as progress:
        progress.show("running: [red]" + "x" * 300 + "\nsecond\x1b[2J")
        drawn = screen.read()
    assert "[red]x" in drawn
    assert "…" in drawn
    assert "\n" not in drawn
    assert "\x1b[2J" not in drawn


@pytest.mark.parametrize("term", ["dumb", "unknown", "xterm"])
def test_nothing_is_drawn_on_a_dumb_terminal_or_with_json(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    monkeypatch.setenv("TERM", term)
    with Progress(silent=term == "xterm", stream=screen.error, after=0.0) as progress:
        progress.show("redo", 1, 2)
        assert not progress.drawn
    assert screen.read() == ""


def test_nothing_is_drawn_in_a_pipe() -> None:
    read, write = os.pipe()
    with os.fdopen(write, "w") as pipe, Progress(silent=False, stream=pipe, after=0.0) as progress:
        progress.show("redo", 1, 2)
        assert not progress.drawn
    with os.fdopen(read) as end:
        assert end.read() == ""


def test_no_color_takes_the_colour_only(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with Progress(silent=False, stream=screen.error, after=0.0) as progress:
        progress.show("redo", 1, 2)
        drawn = screen.read()
    assert "1 of 2" in drawn
    assert not COLOUR.search(drawn)


# Commands, as processes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    app = rota.Rota()
    app.job("bare")(bare)
    for _ in range(3):
        app.enqueue("bare")
    app.close()
    jobs = tmp_path / "jobs.d" / "report"
    jobs.mkdir(parents=True)
    (jobs / "job.toml").write_text('every = "1h"\ntarget = "store"\n')
    (jobs / "01.sql").write_text("SELECT 1;\n")
    return tmp_path


def bare() -> None:
    pass


@pytest.mark.parametrize(
    ("command", "drawn"),
    [
        ("cancel --all --yes", "of 3"),
        ("check", "0 of 1"),
        ("bench --runs 2000", "of 2,100"),
    ],
)
def test_commands_that_know_their_total(folder: Path, command: str, drawn: str) -> None:
    assert drawn in run_on(Screen(), command)


@pytest.mark.parametrize(
    "command", ["cancel --all --yes --json", "check --json", "bench --runs 10 --json", "jobs"]
)
def test_what_draws_nothing_needs_no_rich(folder: Path, command: str) -> None:
    screen = Screen()
    assert run_on(screen, command) == ""


def test_a_table_is_drawn_by_rich_on_a_terminal_only(folder: Path) -> None:
    program = "import sys; from rota.cli.main import main; main(['jobs'])"
    program += "; print('rich.table' in sys.modules)"
    screen = Screen()
    for out, needed in ((subprocess.PIPE, "False"), (screen.slave, "True")):
        done = subprocess.Popen(
            [sys.executable, "-c", program], stdout=out, env={**environment(), "TERM": "xterm"}
        )
        told = done.communicate(timeout=PATIENCE)[0]
        text = screen.read() if told is None else told.decode()
        assert text.split()[-1] == needed
    screen.close()


def test_who_waits_sees_the_state_and_the_last_log_line(folder: Path) -> None:
    app = rota.Rota()
    go = threading.Event()

    @app.job
    def slow(ctx: rota.Context) -> None:
        ctx.progress(30, 120)
        ctx.logger.info("reads orders.csv")
        assert go.wait(PATIENCE)

    app.start(["worker"])
    screen = Screen()
    try:
        text = run_on(screen, "run slow --wait", lambda: wait_and_go(screen, go))
    finally:
        go.set()
        app.stop()
    assert "running, attempt 1, 30 of 120 (25%): reads orders.csv" in clean(text)


def wait_and_go(screen: Screen, go: threading.Event) -> None:
    screen.wait_for("30 of 120 (25%): reads orders.csv")
    go.set()


def clean(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def run_on(screen: Screen, command: str, meanwhile: Callable[[], None] = lambda: None) -> str:
    """What stood on the terminal that is stderr of a command; it ends well."""
    with subprocess.Popen(
        [sys.executable, "-c", dedent(ROTA), *command.split()],
        stdout=subprocess.PIPE,
        stderr=screen.slave,
        env={**environment(), "TERM": "xterm-256color", "COLUMNS": "100"},
        text=True,
    ) as process:
        try:
            meanwhile()
            out, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    screen.read()
    text = screen.text
    assert process.returncode == 0, (out, text)
    assert ("rich was needed" in out) is (HIDE in text)
    assert text.count(HIDE) == text.count(SHOW)
    return text
