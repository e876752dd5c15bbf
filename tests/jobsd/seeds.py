"""The folders of the seed documents, served by a real worker, in time that the test owns.

Fires are the test's: time passes when it says so. What runs, runs in the worker's threads; a SQL
file that reads a gate waits there until the test opens it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import rota
from rota.duckdb_instances import open_instance
from rota.executors.targets import Target, connect
from rota.flow.events import RunEvent
from rota.flow.fire import Fire
from rota.jobsd.folder import Folder
from rota.model.run import Run
from rota.storage.store import open_store
from rota.testing import Clock
from tests.jobsd.support import SEED, Jobs, Time, wait_until

ENDED = ("succeeded", "dead", "cancelled")
# Time that jumps by hours must not make a lease run out.
LEASE = "365d"
ASKING = "asking"

# The four questions of the first document; `_mallardb` is called `_rota` here.
REGISTERED = "SELECT * FROM _rota.jobs;"
BUSY = "SELECT name, queued, running FROM _rota.jobs WHERE running OR queued > 0;"
FAILED = """\
SELECT job_name, file_name, error_message, started_at
FROM _rota.job_runs
WHERE status = 'failed' AND started_at > NOW() - INTERVAL '24 hours';
"""
AVERAGE = """\
SELECT job_name, AVG(finished_at - started_at) AS avg_duration
FROM _rota.job_runs
WHERE status = 'success' AND file_name IS NULL
GROUP BY job_name;
"""


def this_hour() -> datetime:
    """The questions ask for the last 24 hours, so virtual time begins near the real one."""
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


class Gate:
    """A FIFO. SQL that reads it waits until the test opens it, once for each time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)

    @property
    def sql(self) -> str:
        return f"SELECT content FROM read_text('{self.path}')"

    def open(self) -> None:
        """Let the one reader through, as soon as it is there."""
        wait_until(self._opened, "somebody at the gate")

    def _opened(self) -> bool:
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads it yet
            return False
        os.write(descriptor, b"go\n")
        os.close(descriptor)
        return True


class Seed:
    """An app on a store with DuckDB as the default target, and the folder it serves."""

    def __init__(
        self, folder: Path, database: str, now: datetime | None = None, **settings: Any
    ) -> None:
        self.jobs, self.clock = Jobs(folder / "jobs.d"), Clock(now or this_hour())
        self.store = open_store(database, clock=self.clock)
        self.store.migrate()
        self.app = rota.Rota(
            database, storage=self.store, jobs_dir=str(self.jobs.root), lease=LEASE, **settings
        )
        self.time = Time()
        self.folder = Folder(self.app, monotonic=self.time)
        self.app._folder = self.folder
        self.fire = Fire(self.store, monotonic=self.clock.monotonic, fired=self.app.woken)

    @property
    def target(self) -> Target:
        return self.app.targets.find()

    def accounting(self, *files: str, toml: str = SEED) -> None:
        """The folder of the first document: job.toml, 01.sql, 02.sql and so on."""
        named = {f"{number:02}": text for number, text in enumerate(files, start=1)}
        self.jobs.sql("accounting", toml, **named)

    # Life

    def start(self) -> Seed:
        self.app.start(["worker"])
        return self

    def stop(self) -> None:
        self.app.stop(grace="0s")

    def settle(self) -> None:
        """Look, keep still, look again: what a change of the folder needs to be taken."""
        self.folder.step()
        self.time.now += 1.0
        self.folder.step()

    def hear(self, *names: str) -> list[tuple[str, RunEvent]]:
        heard: list[tuple[str, RunEvent]] = []
        for name in names:
            self.app.on(name)(lambda event, name=name: heard.append((name, event)))
        return heard

    # Time

    def pass_time(self, span: str, times: int = 1) -> None:
        """Let time pass in pieces; whatever is due after each of them fires."""
        for _ in range(times):
            self.clock.advance(span)
            while self.fire.step() == 0.0:
                pass
        self.app.woken()  # what waits for an instant waits in the test's time

    # Looking

    def runs(self, job: str) -> list[Run]:
        """The oldest first."""
        return list(reversed(self.app.control.runs(job=job)))

    def states(self, job: str) -> list[str]:
        return [run.state for run in self.runs(job)]

    def until(self, job: str, states: Iterable[str]) -> None:
        wanted = list(states)
        wait_until(lambda: self.states(job) == wanted, f"{job} in {wanted}")

    def until_ended(self, job: str, count: int) -> None:
        def ended() -> bool:
            return sum(state in ENDED for state in self.states(job)) >= count

        wait_until(ended, f"the end of {count} runs")

    def until_step(self, run: Run, name: str) -> None:
        def running() -> bool:
            steps = self.app.control.steps(run.id)
            return (name, "running") in [(one["name"], one["status"]) for one in steps]

        wait_until(running, f"{name} under way")

    def ended(self, run_id: str) -> Run:
        wait_until(lambda: self.app.control.run(run_id).state in ENDED, "the run's end")
        return self.app.control.run(run_id)

    def run(self, job: str) -> Run:
        return self.ended(self.app.control.trigger(job).id)

    def steps(self, run: Run) -> list[tuple[str, str]]:
        return [(one["name"], one["status"]) for one in self.app.control.steps(run.id)]

    def log(self, run: Run) -> list[str]:
        return [line["text"] for line in self.app.control.log_tail(run.id, limit=20)]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Asked of the database that the jobs work on, by somebody else."""
        connection = connect(self.target.url)
        try:
            return list(connection.execute(sql).fetchall())
        finally:
            connection.close()

    def ask(self, question: str) -> list[dict[str, Any]]:
        """The answer to a question of the document, as rows with names. Beside another store it is
        asked by a job, on a database of its own: runs on one DuckDB file go one at a time."""
        if self.target.is_store:
            connection = connect(self.target.url)
            try:
                cursor = connection.execute(question)
                names = [column[0] for column in cursor.description]
                rows = cursor.fetchall()
            finally:
                connection.close()
        else:
            (self.jobs.root / ASKING / "01.sql").write_text(question)
            self.settle()
            ended = self.run(ASKING)
            assert ended.error is None
            answer = json.loads(ended.result or "")
            names, rows = answer["columns"], answer["rows"]
        found = [dict(zip(names, row, strict=True)) for row in rows]
        return [row for row in found if ASKING not in row.values()]

    def prepare_to_ask(self) -> None:
        if not self.target.is_store:
            self.jobs.sql(ASKING, f'schedule = false\ntarget = "{ASKING}"\n')

    def attached(self) -> set[str]:
        return {name for (name,) in self.rows("SELECT database_name FROM duckdb_databases()")}


@contextmanager
def kept_open(target: Target) -> Iterator[None]:
    """As a worker that is busy has it: what was attached and not detached would still be there."""
    instance = open_instance(target.path)
    try:
        yield
    finally:
        instance.close()
