"""The command line in this process: fast enough to try every command."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.cli.main import main
from rota.flow.control import Control
from rota.flow.events import RunEvent
from rota.life import open_local_socket


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line that an error is."""
        assert self.out == ""
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err.rstrip("\n")


Cli = Callable[..., Answer]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Call `rota …` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> Answer:
        capsys.readouterr()
        code = main(list(args))
        told = capsys.readouterr()
        return Answer(code, told.out, told.err)

    return call


@pytest.fixture(params=["sqlite", "duckdb"])
def database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where commands and apps look without a setting. A command opens the SQLite store itself;
    the DuckDB one belongs to the app, and is asked for through its door."""
    name: str = request.param
    if name == "duckdb":
        pytest.importorskip("duckdb")
        monkeypatch.setenv("ROTA_DATABASE", "duckdb:///shop.duckdb")
    return name


@pytest.fixture
def store(cli: Cli, database: str) -> Iterator[Control]:
    """A store with a few jobs and no worker."""
    app = shop()
    door = open_local_socket(app)  # without the loops that would move its runs along
    yield app.control
    if door is not None:
        door.stop()
    app.close()


@pytest.fixture
def ended(cli: Cli, database: str) -> dict[str, str]:
    """A store where three runs have ended; their ids by job."""
    app = shop()
    ends = Ends(app, 3)
    app.start(["worker"])
    ids = {
        "greet": app.enqueue("greet", {"name": "Ada", "api_token": "t0p"}).id,
        "chatty": app.enqueue("chatty").id,
        "broken": app.enqueue("broken").id,
    }
    ends.wait()
    app.stop()
    return ids


def shop() -> rota.Rota:
    """An app with jobs of each kind, saved to the store."""
    app = rota.Rota()

    @app.job(max_attempts=1)
    def greet(name: str, copies: int = 1, api_token: str = "") -> str:
        """Says hello."""
        return f"Hello, {name}!"

    @app.job(queue="talk")
    def chatty(ctx: rota.Context) -> None:
        for number in range(3):
            ctx.logger.info("line %d", number)
        ctx.logger.warning("\x1b[31mred\x1b[0m")

    @app.job(max_attempts=1)
    def broken() -> None:
        raise RuntimeError("no bread at postgresql://me:geheim@db/shop")

    @app.job(schedule="0 3 * * *", timezone="Europe/Berlin")
    def nightly() -> None:
        pass

    app.load()
    return app


class Ends:
    """Waits until this many runs have ended."""

    def __init__(self, app: rota.Rota, count: int) -> None:
        self._left, self._all = count, threading.Event()
        for event in ("job.completed", "job.failed", "job.cancelled"):
            app.on(event)(self._ended)

    def _ended(self, event: RunEvent) -> None:
        self._left -= 1
        if self._left == 0:
            self._all.set()

    def wait(self) -> None:
        assert self._all.wait(20), "the runs did not end"


def environment() -> dict[str, str]:
    """For a process in another folder: it finds the same Rota."""
    source = str(Path(rota.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([source, *_python_path()])}


def _python_path() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


@pytest.fixture
def clean_logging() -> Iterator[None]:
    """`rota up` sets up logging for its process; here it must not stay."""
    root, ours = logging.getLogger(), logging.getLogger("rota")
    before = (list(root.handlers), root.level, ours.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])
