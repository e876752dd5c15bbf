"""What the conformance tests share: a clock, places, and short ways to make and move runs."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import psycopg
import sqlalchemy

from rota.duckdb_instances import open_instance, path_from_url
from rota.flow.fire import fire as fire_plans
from rota.model.definition import Definition
from rota.model.duration import parse_duration
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.outcome import settle as decide
from rota.model.plan import FirePlan, plan_fire
from rota.model.retry import Retry
from rota.model.run import BulkRuns, ClaimedRun, NewRun, Run
from rota.model.schedule import Schedule
from rota.storage import operations, rows
from rota.storage.engine import Probe, Row
from rota.storage.operations.audit import Actor
from rota.storage.operations.settling import OnTerminated, Settled
from rota.storage.postgres.fast_paths import FastPaths
from rota.storage.store import Store, open_store

BEGINNING = datetime(2025, 1, 1, tzinfo=UTC)
FAR = datetime(8000, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
ORIGIN = "jobs.d"
PATIENCE = 60.0  # seconds: a bound for a broken build, never waited for in a working one
ME = Actor(by="operator", via="test")
T = TypeVar("T")


class VirtualClock:
    """Time that moves only when the test says so."""

    def __init__(self) -> None:
        self.moment = BEGINNING

    def __call__(self) -> datetime:
        return self.moment

    def advance(self, span: str) -> None:
        self.moment += parse_duration(span, "span")

    def after(self, span: str) -> datetime:
        """The instant that far from now."""
        return self.moment + parse_duration(span, "span")


class Place:
    """A database of the test's own, and the ways to reach it."""

    engine: str
    view_prefix: str  # what the names of the public views begin with
    fast_paths = True  # where the engine has any

    def __init__(self, url: str, clock: VirtualClock) -> None:
        self.url, self.clock = url, clock
        self._opened: list[Any] = []

    def open(self, *, probe: Probe | None = None) -> Store:
        """A store as another process would open it."""
        return self.keep(
            open_store(self.url, clock=self.clock, probe=probe, fast_paths=self.fast_paths)
        )

    def begin(self) -> Any:
        """A driver's connection with an open transaction that may write."""
        raise NotImplementedError

    def sqlalchemy(self) -> sqlalchemy.Engine:
        """An engine whose transactions may write."""
        raise NotImplementedError

    def autocommit(self) -> Any:
        """A driver's connection that never opens a transaction by itself."""
        raise NotImplementedError

    def table(self, name: str) -> str:
        """The stored table's own name."""
        raise NotImplementedError

    def view(self, name: str) -> str:
        """The public view's own name."""
        return f"{self.view_prefix}{name}"

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Plain SQL from outside Rota, committed."""
        connection = self.autocommit()
        cursor = connection.execute(sql)
        found = cursor.fetchall() if cursor.description else []
        connection.close()
        return found

    def keep(self, thing: T) -> T:
        """Close it when the test ends."""
        self._opened.append(thing)
        return thing

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()


class SqlitePlace(Place):
    engine = "sqlite"
    view_prefix = "rota_"

    @property
    def path(self) -> Path:
        return Path(self.url.removeprefix("sqlite:///"))

    def begin(self) -> sqlite3.Connection:
        connection = self.autocommit()
        connection.execute("BEGIN IMMEDIATE")
        return connection

    def autocommit(self) -> sqlite3.Connection:
        opened = sqlite3.connect(
            self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
        )
        return self.keep(opened)

    def sqlalchemy(self) -> sqlalchemy.Engine:
        engine = sqlalchemy.create_engine(self.url, poolclass=sqlalchemy.NullPool)

        # The driver begins before the first write only, and we want to read first.
        @sqlalchemy.event.listens_for(engine, "connect")
        def leave_it(connection: sqlite3.Connection, _: object) -> None:
            connection.isolation_level = None

        @sqlalchemy.event.listens_for(engine, "begin")
        def begin(connection: sqlalchemy.Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        return engine

    def table(self, name: str) -> str:
        return f"_rota_{name}"


class PostgresPlace(Place):
    engine = "postgres"
    view_prefix = "rota."

    def begin(self) -> psycopg.Connection[Any]:
        connection = self.keep(psycopg.connect(self.url))
        connection.execute("SELECT 1")
        return connection

    def autocommit(self) -> psycopg.Connection[Any]:
        return self.keep(psycopg.connect(self.url, autocommit=True))

    def sqlalchemy(self) -> sqlalchemy.Engine:
        url = sqlalchemy.make_url(self.url).set(drivername="postgresql+psycopg")
        return sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)

    def table(self, name: str) -> str:
        return f"rota_data.{name}"


class PlainPostgresPlace(PostgresPlace):
    """Every operation is the plain one. What is asserted of all places is so asserted of each fast
    path and of the operation that it stands for: both answer the same and leave the same rows."""

    fast_paths = False


class DuckdbPlace(Place):
    """In memory, by a name of its own: stores that open it share it like threads of a process."""

    engine = "duckdb"
    view_prefix = "_rota."

    def __init__(self, url: str, clock: VirtualClock) -> None:
        super().__init__(url, clock)
        self.instance = self.keep(open_instance(path_from_url(url)))
        # Half of the time of a small statement is to wake threads that have nothing to do.
        self.execute("SET threads = 1")

    def begin(self) -> Any:
        cursor = self.autocommit()
        cursor.begin()
        return cursor

    def autocommit(self) -> Any:
        cursor = self.keep(self.instance.cursor())
        cursor.execute("SET TimeZone = 'UTC'")
        return cursor

    def table(self, name: str) -> str:
        return f"_rota_data.{name}"


PLACE_TYPES: Mapping[str, type[Place]] = {
    "sqlite": SqlitePlace, "postgres": PostgresPlace, "duckdb": DuckdbPlace,
}  # fmt: skip
# The one table that clients write.
CONTROL = {engine: kind.view_prefix + "control" for engine, kind in PLACE_TYPES.items()}


# Runs


def new_run(**options: Any) -> NewRun:
    return NewRun(**{"id": str(uuid4()), "job": "job", "queue": "default", "args": "{}", **options})


def enqueue(store: Store, **options: Any) -> str:
    """The id of a run made now."""
    return store.write(operations.enqueue, [new_run(**options)])[0].id


def enqueue_many(store: Store, count: int, **options: Any) -> list[str]:
    """The ids of runs made now, in one call."""
    keyed = "key" in options  # names one run: the others are told of it
    runs = [new_run(**options) for _ in range(count)] if keyed else alike(count, **options)
    return [made.id for made in store.write(operations.enqueue, runs)]


def alike(count: int, **options: Any) -> BulkRuns:
    """Runs as a program makes them in bulk."""
    return BulkRuns(new_run(**options), [str(uuid4()) for _ in range(count)], ["{}"] * count)


def claim(
    store: Store,
    limit: int = 10,
    *,
    worker: str = "worker",
    jobs: Sequence[str] = ("job",),
    queues: Sequence[str] = (),
    lease: timedelta = LEASE,
) -> list[ClaimedRun]:
    return store.write(operations.claim, worker, queues=queues, jobs=jobs, limit=limit, lease=lease)


def sweep(store: Store, limit: int) -> int:
    """A sweep from the first owner on; how many slots and schedules it freed."""
    freed, _ = store.write(operations.sweep, 0, limit=limit)
    return freed


def fast_paths(store: Store) -> FastPaths | None:
    """Those of a PostgreSQL store, with what they remember; None of any other one."""
    path = store._fast.get(operations.claim)
    found: FastPaths | None = getattr(path, "__self__", None)
    return found


def claim_one(store: Store) -> ClaimedRun:
    (run,) = claim(store, 1)
    return run


def settle(
    store: Store,
    run: ClaimedRun,
    kind: str = "succeeded",
    *,
    retry: Retry | None = None,
    max_lost: int = 3,
    on_terminated: OnTerminated | None = None,
    ran_seconds: float | None = None,
    **outcome: Any,
) -> list[Settled]:
    """End the attempt. Without `retry` the run has three attempts, a second apart."""
    told = Outcome(kind=kind, **outcome)
    policy = retry or Retry(max_attempts=3, delay=timedelta(seconds=1))
    one = decide(run, told, retry=policy, max_lost=max_lost, ran_seconds=ran_seconds)
    return store.write(operations.settle, [one], on_terminated)


def rescue(store: Store, max_lost: int = 3) -> list[Settled]:
    """What any process does about expired leases."""
    lost = Outcome(kind="lost", error="lease expired")
    found = store.read(operations.expired_runs, 100)
    return store.write(
        operations.settle, [decide(run, lost, retry=Retry(), max_lost=max_lost) for run in found]
    )


def as_claimed(run: Run) -> ClaimedRun:
    """What a worker that had claimed the run would hold."""
    return ClaimedRun(**{field: getattr(run, field) for field in ClaimedRun.__struct_fields__})


def states(store: Store, ids: Sequence[str]) -> list[str]:
    return [store.read(operations.get_run, run_id).state for run_id in ids]


def all_runs(store: Store, **which: Any) -> list[Run]:
    """Oldest first."""
    return store.read(operations.list_runs, limit=500, **which)[::-1]


def slots(store: Store, key: str) -> list[int]:
    """The taken slot numbers of a key: `o/...` for overlap, `c/...` for concurrency."""
    found = store.engine.read(lambda tx: tx.all("taken_numbers", key=key))
    return sorted(row["number"] for row in found)


# Schedules


def put_definition(
    store: Store,
    name: str = "accounting",
    *,
    version: str = "one",
    every: str | None = "1m",
    error: str | None = None,
    origin: str = ORIGIN,
    changed: bool = True,
    **options: Any,
) -> str | None:
    """A file job as a folder registers it; why it was refused."""
    spec = {"folder": "/somewhere", "version": version}
    job = Job(
        name=name, executor="sql", source="file", origin=origin, spec=spec,
        enabled=error is None, error=error,
    )  # fmt: skip
    schedule = None
    if every is not None and error is None:
        own = {"overlap": "queue", "overlap_key": job.overlap_key, **options}
        schedule = Schedule(name=name, job=name, kind="every", expr=every, **own)
    wanted = Definition(job=job, schedule=schedule)
    names = {name} if changed else set()
    return store.write(
        operations.put_definitions, [wanted], ME, changed=names, live_seconds=30
    ).get(name)


def put_schedule(store: Store, name: str = "schedule", **options: Any) -> Schedule:
    """Every 10 seconds unless said otherwise."""
    told = {"job": "job", "kind": "every", "expr": "10s", **options}
    return store.write(operations.put_schedule, Schedule(name=name, **told), ME)


def plans(store: Store) -> list[FirePlan]:
    due = store.peek(operations.due_schedules, 100)
    return [plan_fire(schedule, due.now) for schedule in due.schedules]


def fire(store: Store, planned: Sequence[FirePlan]) -> int:
    return fire_plans(
        store,
        planned,
        store.read(operations.jobs_named, {plan.schedule.job for plan in planned}),
    ).runs


def tick(store: Store) -> int:
    """The number of runs that due schedules make now."""
    due = store.peek(operations.due_schedules, 100)
    store.write(operations.disable_broken_schedules, due.broken)
    return fire(store, [plan_fire(schedule, due.now) for schedule in due.schedules])


def ledger(store: Store, schedule: Schedule) -> list[Row]:
    """Oldest first."""
    return store.read(operations.list_occurrences, schedule.id, before=FAR, limit=500)[::-1]


def outcomes(store: Store, schedule: Schedule) -> list[str]:
    return [row["outcome"] for row in ledger(store, schedule)]


def overwrite(store: Store, schedule: Schedule, **columns: Any) -> None:
    """Change a schedule's row behind everybody's back, as a person with a SQL prompt can."""
    row = rows.schedule_row(replace(schedule))
    options = {name: columns.pop(name) for name in rows.JSON_OPTIONS if name in columns}
    row["options"] = rows.to_json({**rows.from_json(row["options"]), **options})
    row |= columns
    store.engine.write("overwrite", lambda tx: tx.one("update_schedule", **row))


def put_job(store: Store, name: str = "job", **options: Any) -> Job:
    job = Job(name=name, **options)
    store.write(operations.put_jobs, [job])
    return job


def corrupt_job(store: Store, name: str = "job") -> None:
    """What only somebody else's SQL does to a row."""
    table = f"{store.engine.prefix}jobs"  # type: ignore[attr-defined]
    change = f"UPDATE {table} SET policies = '{{}}' WHERE name = :name"
    store.engine.write("corrupt", lambda tx: tx.text(change, {"name": name}))


def together(*calls: Callable[[], T]) -> list[T]:
    """The answers of calls that begin at the same moment, each on a thread of its own."""
    barrier = threading.Barrier(len(calls), timeout=PATIENCE)

    def begin(call: Callable[[], T]) -> T:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(begin, calls))


def worker_row(worker_id: str, **options: object) -> dict[str, object]:
    return {
        "id": worker_id, "host": "box", "pid": 7, "version": "0.1", "tzdata": "2025a",
        "origin": None, "jobs": '["job"]', "queues": "[]", "slots": 4, "stuck": 0, **options,
    }  # fmt: skip
