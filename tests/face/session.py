"""What `rota … --json` answers: every command, asked about a store with something of everything."""

from __future__ import annotations

import io
import json
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import rota
from rota.cli.main import main
from tests.api.support import wait_until
from tests.face.shapes import merge, shape_of

SECONDS = 60.0
JOB = """schedule = "0 3 * * *"
description = "counts"
owner = "Ada"
[params]
day = "today"
"""


def answers() -> dict[str, Any]:
    """The shape of each answer, by the command line that gave it."""
    with _folder() as told:
        told.ask("init", ".")
        Path("jobs.d/counts").mkdir()
        Path("jobs.d/counts/job.toml").write_text(JOB)
        Path("jobs.d/counts/01_count.sql").write_text("SELECT 1 AS n;")
        Path("jobs.d/wrong").mkdir()
        Path("jobs.d/wrong/job.toml").write_text("schedule = 3\n")
        told.ask("check", ok=False)
        told.ask("migrate", "--plan")
        told.ask("migrate")
        app = _app()
        told.act(app)
        app.stop()
        app.close()
        told.ask("prune")
        told.ask("bench", "--runs", "20")
        told.ask("doctor", ok=None)  # how good it finds a machine is no shape
        return told.shapes()


class Session:
    """Asks, and keeps the shape of what is answered."""

    def __init__(self) -> None:
        self._seen: dict[str, list[Any]] = {}

    def ask(self, *line: str, name: str | None = None, ok: bool | None = True) -> Any:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main([*line, "--json"])
        assert ok is None or (code == 0) == ok, (line, code, out.getvalue(), err.getvalue())
        answer = json.loads(out.getvalue() or err.getvalue())
        self._seen.setdefault(name or " ".join(line), []).append(shape_of(answer))
        return answer

    def act(self, app: rota.Rota) -> None:
        ended = _Ends(app, 4)
        app.start(["worker"])
        done = app.enqueue("greet", {"name": "Ada"}).id
        dead = app.enqueue("broken").id
        lines = app.enqueue("chatty").id
        steps = app.enqueue("counts").id
        ended.wait()
        wait_until(lambda: app.control.logs(lines), "its line is written")
        self._look(app, [done, dead, lines, steps])
        self._operate(app, done)

    def _look(self, app: rota.Rota, runs: list[str]) -> None:
        for run in runs:
            self.ask("show", run, name="show RUN")
            self.ask("logs", run, name="logs RUN")
        for line in ("jobs", "schedules", "runs", "queues", "workers"):
            self.ask(line)
        with app.lock("door"):
            self.ask("locks")
        for line in (
            "show nightly", "show greet", "explain nightly",
            "explain nightly --at 2026-01-01T03:00Z",
            "completion bash", "next @daily --count 2", "next 30_2_*_*_* --tz Europe/Berlin",
        ):  # fmt: skip
            words = [word.replace("_", " ") if "*" in word else word for word in line.split()]
            self.ask(*words, name=line)
        self.ask("sql", "-c", "SELECT * FROM runs LIMIT 1", name="sql -c SELECT")
        self.ask("sql", "-c", "SHOW SCHEDULES", name="sql -c SHOW")

    def _operate(self, app: rota.Rota, done: str) -> None:
        for line in (
            "schedule extra --job greet --every 1h --overlap skip", "schedule extra --jitter 5s",
            "pause extra --reason why", "resume extra --catch-up none", "drop extra",
            "pause --queue talk", "resume --queue talk", "pause --dispatch", "run greet",
            "run nightly", "enqueue greet --arg name=Bob --delay 1h --key k", "resume --dispatch",
            "run chatty --wait", "redo --all --state dead --yes", "delete --all --state dead --yes",
            "cancel --all --job greet --yes", "adopt",
        ):  # fmt: skip
            self.ask(*line.split())
        for verb in ("redo", "cancel"):
            run = done if verb == "redo" else app.enqueue("greet", delay="1h").id
            self.ask(verb, run, name=f"{verb} RUN")
        self.ask("delete", run, name="delete RUN")
        run = app.enqueue("greet", delay="1h").id
        self.ask("pause", run, name="pause RUN")
        self.ask("resume", run, name="resume RUN")
        self.ask("token", "create", "ci", "--role", "viewer")
        self.ask("token", "list")
        self.ask("token", "revoke", "ci")
        self.ask("show", "nothing", ok=False)

    def shapes(self) -> dict[str, Any]:
        return {line: merge(shapes) for line, shapes in self._seen.items()}


def _app() -> rota.Rota:
    app = rota.Rota()

    @app.job(max_attempts=1)
    def greet(name: str = "Eve", copies: int = 1) -> str:
        """Says hello."""
        return f"Hello, {name}!"

    @app.job(queue="talk")
    def chatty(ctx: rota.Context) -> None:
        ctx.logger.info("a line")

    @app.job(max_attempts=1)
    def broken() -> None:
        raise RuntimeError("no bread")

    app.schedule("nightly", job="greet", cron="0 3 * * *", timezone="Europe/Berlin")
    app.serve_folder()
    return app


class _Ends:
    """Waits until this many runs have ended."""

    def __init__(self, app: rota.Rota, count: int) -> None:
        self._left, self._all = count, threading.Event()
        for event in ("job.completed", "job.failed"):
            app.on(event)(self._ended)

    def _ended(self, event: object) -> None:
        self._left -= 1
        if self._left == 0:
            self._all.set()

    def wait(self) -> None:
        assert self._all.wait(SECONDS), "the runs did not end"


@contextmanager
def _folder() -> Iterator[Session]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield Session()
        finally:
            os.chdir(before)
