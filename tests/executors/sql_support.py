"""A store, a target, and SQL jobs whose runs a test moves along by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from rota.executors.sql import SqlExecutor
from rota.executors.targets import Targets, connect, kind_of
from rota.flow.notes import Notes
from rota.flow.run import Execution, Owner, execute
from rota.flow.settle import retry_of
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.outcome import settle as decide
from rota.model.run import ClaimedRun, NewRun, Run
from rota.storage import operations
from rota.storage.operations.audit import Actor
from rota.storage.store import Store, open_store

LEASE = timedelta(seconds=30)
ME = Actor(by="operator", via="test")
NEVER_ENDS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT count(*) FROM n",
    "postgres": "SELECT pg_sleep(600)",
    # Of both sides, so that there is nothing to be decided before all pairs are made.
    "duckdb": "SELECT count(*) FROM range(1000000000000) a, range(1000) b "
    "WHERE a.range + b.range = -1",
}


class World:
    """A store with a target called `there`; `folder` holds the files of the job `job`."""

    def __init__(self, folder: Path, database: str, target: str | None = None) -> None:
        self.database, self.folder = database, folder / "jobs.d" / "job"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.url = target or database
        self.kind = kind_of(self.url)
        named = {} if target is None else {"there": target}
        self.targets = Targets(store=database, named=named, default="there" if target else "store")
        self.store: Store = open_store(database)
        self.store.migrate()
        self.executor = SqlExecutor()
        self.outcomes: list[Outcome] = []

    def close(self) -> None:
        self.executor.close()
        self.store.close()

    # Files and jobs

    def write(self, **files: str) -> None:
        """`write(a="SELECT 1")` makes a.sql."""
        for name, text in files.items():
            (self.folder / f"{name}.sql").write_text(text, "utf-8")

    def job(self, **options: Any) -> Job:
        names = sorted(path.name for path in self.folder.glob("*.sql"))
        told = {"folder": str(self.folder), "files": names, **options.pop("spec", {})}
        job = Job(name="job", executor="sql", source="file", spec=told, **options)
        self.executor.check(job)
        self.store.write(operations.put_jobs, [job])
        return job

    # Runs

    def enqueue(self, args: str = "{}", max_attempts: int = 1) -> str:
        run = NewRun(
            id=str(uuid4()), job="job", queue="default", args=args, max_attempts=max_attempts
        )
        return self.store.write(operations.enqueue, [run])[0].id

    def claim(self) -> ClaimedRun:
        self.store.write(operations.promote, 10)
        (run,) = self.store.write(
            operations.claim, "worker", queues=[], jobs=["job"], limit=1, lease=LEASE
        )
        return run

    def begin(self, job: Job | None = None, run: ClaimedRun | None = None) -> Begun:
        """Run the next attempt in a thread; the test may stop it."""
        return Begun(
            self, run or self.claim(), job or self.store.read(operations.jobs_named, ["job"])["job"]
        )

    def run(self, job: Job | None = None, **options: Any) -> Run:
        """A new run, done and settled."""
        self.enqueue(**options)
        return self.again(job)

    def again(self, job: Job | None = None) -> Run:
        """The next attempt, done and settled."""
        return self.begin(job).ended()

    def steps(self, run: Run | ClaimedRun) -> list[tuple[str, str]]:
        return [
            (row["name"], row["status"]) for row in self.store.read(operations.list_steps, run.seq)
        ]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """By a connection of nobody else to the target."""
        connection = connect(self.url)
        try:
            cursor = connection.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()


class Begun:
    def __init__(self, world: World, run: ClaimedRun, job: Job) -> None:
        self.world, self.run, self.outcome = world, run, Outcome(kind="released")
        owner = Owner(
            store=world.store,
            notes=Notes(world.store),
            lease=LEASE,
            target=world.targets,
            done=self._done,
        )
        self.execution = Execution(run, job, owner)
        self._thread = threading.Thread(
            target=execute, args=(self.execution, world.executor.run), daemon=True
        )
        self._thread.start()

    def _done(self, execution: Execution, outcome: Outcome) -> None:
        self.outcome = outcome

    def until_step(self, name: str) -> Begun:
        """Wait until a step is shown as running."""
        wait_for(lambda: (name, "running") in self.world.steps(self.run))
        return self

    def stop(self, reason: str) -> Begun:
        self.execution.stop(reason)
        return self

    def join(self) -> Outcome:
        self._thread.join(30)
        assert not self._thread.is_alive(), "the attempt goes on"
        return self.outcome

    def ended(self) -> Run:
        """Wait for the outcome and write it."""
        outcome = self.join()
        retry = retry_of(self.run, self.execution.job)
        self.world.store.write(
            operations.settle, [decide(self.run, outcome, retry=retry, max_lost=3)]
        )
        return self.world.store.read(operations.get_run, self.run.id)


def wait_for(happened: Callable[[], object], seconds: float = 20) -> None:
    give_up_at = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < give_up_at, "it did not happen"
        time.sleep(0.01)


def values(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows]
