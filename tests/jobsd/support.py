"""A folder of jobs that a test writes, and an app that serves it."""

from __future__ import annotations

import os
import shutil
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rota
from rota.executors.protocol import Context
from rota.jobsd.folder import Folder
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.run import Run
from rota.storage import operations

SEED = """\
schedule = "0 */15 * * * *"  # cron expression (required)
enabled = true                # optional, default true
queue_max = 3                 # optional, max queued runs
timeout = "30m"               # optional, job timeout
"""
PATIENCE = 60.0


class Recorder:
    """Stands in for the sql executor: runs nothing, remembers which texts it would have run."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, list[str]]] = []
        self.started, self.open = threading.Semaphore(0), threading.Event()
        self.open.set()

    def check(self, job: Job) -> None:
        """Everything is fine."""

    def run(self, context: Context) -> Outcome:
        folder = Path(context.definition.spec["folder"])
        texts = [(folder / name).read_text() for name in context.definition.spec["files"]]
        self.ran.append((context.job, texts))
        self.started.release()
        assert self.open.wait(PATIENCE), "nobody opened"
        return Outcome(kind="succeeded")


class Jobs:
    """The folder, and short ways to change it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def sql(self, name: str, toml: str | None = 'every = "1h"', **files: str) -> Path:
        """A SQL job; `files` by their names without .sql, one if none is given."""
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        for stem, text in (files or {"01": "SELECT 1"}).items():
            (folder / f"{stem}.sql").write_text(text)
        if toml is not None:
            (folder / "job.toml").write_text(toml)
        return folder

    def python(self, name: str, text: str = "") -> Path:
        path = self.root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            textwrap.dedent(text) or 'schedule = "0 3 * * *"\n\ndef run(ctx):\n    return 1\n'
        )
        return path

    def remove(self, name: str) -> None:
        path = self.root / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            os.unlink(f"{path}.py")


class Time:
    """A monotonic clock of the test's own."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Served:
    """An app and its folder, moved along by hand: no thread, no watch."""

    def __init__(self, app: rota.Rota, jobs: Jobs, **options: Any) -> None:
        self.app, self.jobs, self.time = app, jobs, Time()
        self.sql = Recorder()
        app.executor("sql", self.sql)
        told: dict[str, Any] = {"inspection_seconds": PATIENCE, **options}
        self.folder = Folder(app, monotonic=self.time, **told)
        app._folder = self.folder

    def load(self) -> Served:
        self.folder.load()
        return self

    def look(self) -> float:
        return self.folder.step()

    def settle(self) -> None:
        """Look, keep still, look again: what a change needs to be taken."""
        self.look()
        self.time.now += 1.0
        self.look()

    def error(self, name: str) -> str:
        found = self.app.storage.read(operations.jobs_named, [name])[name].error
        return found or ""

    def names(self) -> list[str]:
        return sorted(job.name for job in self.app.jobs())

    def registered(self) -> dict[str, str]:
        """What the store says of jobs that are not retired: version, or error."""
        found = self.app.storage.read(operations.registered, self.folder.origin, limit=500)
        return {one.name: one.error or one.version for one in found if not one.retired}

    def schedule(self, name: str) -> Any:
        return self.app.control.schedule(name)


def ended(app: rota.Rota, name: str) -> Run:
    """A run of this job, once it has ended."""
    run_id = app.enqueue(name).id
    wait_until(lambda: app.control.run(run_id).finished_at, f"the end of {name}")
    return app.control.run(run_id)


def wait_until(
    happens: Callable[[], object], what: object = "it", seconds: float = PATIENCE
) -> None:
    until = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < until, f"{what} did not happen"
        time.sleep(0.01)
