"""Views stay quick: a filtered first page of each, with 1,000,000 finished runs.

    python benchmarks/views.py [--engines sqlite,postgres] [--small] [--json FILE]

The store holds 1,000,000 finished runs of 1,000 jobs, with their ledger, attempts and steps, 1,000
open runs, and 100,000 schedules. Each question is asked as a client without Rota asks it, on a
connection that is open already: once to warm up, then for the best of ten, in milliseconds: what
else the machine does meanwhile is not the view's. Goal: each under 100 ms. `--small` has a tenth of
the rows.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psycopg
from ids import NAME_THE_REST

from rota.model.job import Job
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.operations.audit import Actor
from rota.storage.store import open_store
from tests.support.postgres import Cluster

GOAL = 100.0  # ms
TIMES = 10
RUNS, SCHEDULES, JOBS, OPEN = 1_000_000, 100_000, 1_000, 1_000
# What PostgreSQL comes with; tests use less.
SETTINGS = {"shared_buffers": "128MB", "max_wal_size": "1GB"}

# A first page of each view, by the filters that people have. {run} is the id of a run.
PAGE = "LIMIT 50"
QUESTIONS: dict[str, Sequence[str]] = {
    "jobs": (
        f"WHERE name = 'job7' {PAGE}",
        f"WHERE running OR queued > 0 {PAGE}",
        f"WHERE error IS NOT NULL ORDER BY name {PAGE}",
        f"ORDER BY name {PAGE}",
    ),
    "job_queue": (f"WHERE job_name = 'job7' {PAGE}", f"ORDER BY queued_at {PAGE}"),
    "job_runs": (
        f"WHERE job_name = 'job7' ORDER BY id DESC {PAGE}",
        f"WHERE job_name = 'job7' AND status = 'failed' ORDER BY started_at DESC {PAGE}",
        f"WHERE job_name = 'job7' AND file_name IS NULL ORDER BY started_at DESC {PAGE}",
        f"WHERE status = 'running' {PAGE}",
        f"WHERE record_type = 'run' AND status = 'failed' {PAGE}",
        "WHERE run_id = '{run}'",
    ),
    "schedules": (
        "WHERE name = 'schedule77'",
        f"WHERE job_name = 'job7' ORDER BY name {PAGE}",
        f"WHERE status = 'PAUSED' ORDER BY name {PAGE}",
        f"WHERE owner = 'finance' ORDER BY next_fire_at {PAGE}",
    ),
    "occurrences": (
        f"WHERE schedule_id = 77 ORDER BY occurrence DESC {PAGE}",
        f"WHERE schedule_name = 'schedule77' ORDER BY occurrence DESC {PAGE}",
        f"WHERE job_name = 'job7' ORDER BY occurrence DESC {PAGE}",
    ),
    "runs": (
        "WHERE run_id = '{run}'",
        f"WHERE job_name = 'job7' ORDER BY seq DESC {PAGE}",
        f"WHERE state = 'dead' ORDER BY seq DESC {PAGE}",
        f"WHERE state = 'running' ORDER BY seq DESC {PAGE}",
        f"WHERE schedule_id = 77 ORDER BY seq DESC {PAGE}",
        f"ORDER BY seq DESC {PAGE}",
    ),
    "attempts": (
        "WHERE run_id = '{run}' ORDER BY number",
        f"WHERE job_name = 'job7' AND outcome = 'failed' ORDER BY started_at DESC {PAGE}",
        f"WHERE outcome IS NULL {PAGE}",
    ),
    "steps": (
        "WHERE run_id = '{run}' ORDER BY attempt, number",
        f"WHERE job_name = 'job7' AND status = 'failed' ORDER BY started_at DESC {PAGE}",
    ),
    "events": (
        "WHERE run_id = '{run}' ORDER BY happened_at",
        f"WHERE name = 'job7' AND kind = 'job.failed' ORDER BY happened_at DESC {PAGE}",
    ),
    "workers": (f"ORDER BY seen_at DESC {PAGE}",),
    "queues": ("WHERE name = 'default'", f"WHERE paused {PAGE}"),
    "dead": (
        f"WHERE job_name = 'job7' ORDER BY finished_at DESC {PAGE}",
        f"ORDER BY finished_at DESC {PAGE}",
    ),
}


class SqliteRows:
    """Rows by the million, past the store."""

    engine, views, prefix = "sqlite", "rota_", "_rota_"
    series = """(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {0})
        SELECT n FROM s)"""
    id = """printf('%08x-%04x-7', (1700000000000 + n) >> 16, (1700000000000 + n) & 65535)
        || lower(substr(hex(randomblob(2)), 1, 3) || '-8' || substr(hex(randomblob(2)), 1, 3)
        || '-' || hex(randomblob(6)))"""

    def __init__(self, url: str) -> None:
        self.connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        self.connection.execute("PRAGMA synchronous = OFF")

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql).fetchall()

    def at(self, seconds: str) -> str:
        return f"CAST((unixepoch() + ({seconds})) * 1000000 AS INTEGER)"

    def settle_down(self) -> None:
        self.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self.connection.close()


class PostgresRows:
    """Rows by the million, past the store."""

    engine, views, prefix = "postgres", "rota.", "rota_data."
    series = "(SELECT generate_series(1, {0}) AS n)"
    id = "gen_random_uuid()"

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(sql)
        return cursor.fetchall() if cursor.description else []

    def at(self, seconds: str) -> str:
        return f"now() + make_interval(secs => ({seconds})::float8)"

    def settle_down(self) -> None:
        """What autovacuum does in a quiet minute."""
        self.execute(NAME_THE_REST)
        self.execute("VACUUM (ANALYZE)")
        self.execute("CHECKPOINT")

    def close(self) -> None:
        self.connection.close()


Rows = SqliteRows | PostgresRows


def fill(rows: Rows, url: str, runs: int, schedules: int) -> None:
    """A few by real calls, the crowd by one INSERT each. Runs lie over the last six days; four in
    a hundred died, one was cancelled; one in ten is of SQL, with two steps."""
    store = open_store(url)
    store.migrate()
    store.write(operations.put_jobs, [Job(name=f"job{number}") for number in range(JOBS)])
    first = Schedule(
        name="schedule0", job="job0", kind="cron", expr="0 3 * * *", owner="finance",
        overlap_key="job job0",
    )  # fmt: skip
    store.write(operations.put_schedule, first, Actor(by="benchmark", via="benchmark"))
    store.close()
    table = rows.prefix
    copied = [
        column for column in _columns(rows, "schedules") if column not in ("id", "name", "job")
    ]
    kept = ", ".join(copied)
    own = {"paused": "n % 50 = 0", "owner": "CASE WHEN n % 200 = 0 THEN 'finance' ELSE 'ops' END"}
    values = ", ".join(own.get(column, column) for column in copied)
    rows.execute(
        f"""INSERT INTO {table}schedules (name, job, {kept})
            SELECT 'schedule' || n, 'job' || (n % {JOBS}), {values}
              FROM {table}schedules, {rows.series.format(schedules)} AS s
             WHERE name = 'schedule0'"""
    )
    end = rows.at(f"(n - {runs}) * {6 * 86400.0 / runs} - 60")
    state = (
        "CASE WHEN n % 100 < 95 THEN 'succeeded' WHEN n % 100 < 99 THEN 'dead' ELSE 'cancelled' END"
    )
    rows.execute(
        f"""INSERT INTO {table}runs (id, job, queue, priority, state, due_at, created_at, queued_at,
                claimed_at, started_at, finished_at, attempt, failures, max_attempts, args,
                schedule_id, occurrence, worker_id, error)
            SELECT {rows.id}, 'job' || (n % {JOBS}), 'default', 0, {state}, {end}, {end}, {end},
                {end}, {end}, {end}, 1, CASE WHEN n % 100 < 95 THEN 0 ELSE 1 END, 1, '{{"n": 1}}',
                1 + n % {schedules}, {end}, 'worker-1',
                CASE WHEN n % 100 >= 95 THEN 'ValueError: no such customer' END
              FROM {rows.series.format(runs)} AS s"""
    )
    rows.execute(
        f"""INSERT INTO {table}attempts (run_seq, number, worker_id, started_at, finished_at,
                outcome, error)
            SELECT seq, 1, worker_id, started_at, finished_at, 'failed', error
              FROM {table}runs WHERE state <> 'succeeded'"""
    )
    rows.execute(
        f"""INSERT INTO {table}steps (run_seq, attempt, number, name, started_at, finished_at,
                status, error)
            SELECT seq, 1, k, '0' || k || '.sql', started_at, finished_at,
                   CASE WHEN state = 'succeeded' THEN 'running' ELSE 'failed' END, error
              FROM {table}runs, (SELECT 1 AS k UNION ALL SELECT 2) AS k WHERE seq % 10 = 0"""
    )
    rows.execute(
        f"""INSERT INTO {table}step_marks (run_seq, number, attempt, finished_at)
            SELECT run_seq, number, attempt, finished_at FROM {table}steps
             WHERE status = 'running'"""
    )
    rows.execute(
        f"""INSERT INTO {table}occurrences (schedule_id, occurrence, last_occurrence, count,
                outcome, run_id, recorded_at)
            SELECT schedule_id, occurrence, occurrence, 1, 'fired', id, finished_at
              FROM {table}runs WHERE true"""
    )
    for state, lease in (("queued", "NULL"), ("running", rows.at("3600"))):
        now = rows.at("n * 0.001 - 30")
        rows.execute(
            f"""INSERT INTO {table}runs (id, job, queue, priority, state, due_at, created_at,
                    queued_at, started_at, lease_until, attempt, max_attempts, args)
                SELECT {rows.id.replace("1700000000000", "1800000000000")}, 'job' || (n % {JOBS}),
                    'default', 0, '{state}', {now}, {now}, {now}, {now}, {lease},
                    {1 if state == "running" else 0}, 1, '{{}}'
                  FROM {rows.series.format(OPEN // 2)} AS s"""
        )
    rows.settle_down()


def _columns(rows: Rows, table: str) -> list[str]:
    described = rows.connection.execute(f"SELECT * FROM {rows.prefix}{table} LIMIT 0").description
    return [column[0] for column in described or ()]


def ask(rows: Rows, sql: str) -> float:
    """The best, in milliseconds."""
    rows.execute(sql)
    taken = []
    for _ in range(TIMES):
        began = time.perf_counter()
        rows.execute(sql)
        taken.append((time.perf_counter() - began) * 1000)
    return min(taken)


def measure(rows: Rows) -> dict[str, float]:
    ((run,),) = rows.execute(
        f"SELECT id FROM {rows.prefix}runs WHERE state = 'dead' AND seq % 10 = 0 LIMIT 1"
    ) or rows.execute(f"SELECT id FROM {rows.prefix}runs WHERE state = 'dead' LIMIT 1")
    found = {}
    for view, questions in QUESTIONS.items():
        for told in questions:
            question = f"{view} {told}"
            found[question] = ask(rows, f"SELECT * FROM {rows.views}{question}".format(run=run))
    return found


@contextmanager
def database(engine: str) -> Iterator[str]:
    if engine == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/views.db"
    else:
        with Cluster(fsync=True, settings=SETTINGS) as cluster, cluster.database() as url:
            yield url


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engines", default="sqlite,postgres")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path)
    told = parser.parse_args()
    part = 10 if told.small else 1
    figures: dict[str, dict[str, float]] = {}
    for engine in told.engines.split(","):
        with database(engine) as url:
            rows: Rows = (SqliteRows if engine == "sqlite" else PostgresRows)(url)
            began = time.perf_counter()
            fill(rows, url, RUNS // part, SCHEDULES // part)
            print(f"{engine}: filled in {time.perf_counter() - began:.0f} s", flush=True)
            figures[engine] = measure(rows)
            rows.close()
        for question, taken in figures[engine].items():
            missed = "" if taken < GOAL else "MISSED  "
            print(f"{engine:9}{taken:9.1f} ms  {missed}{question}")
    if told.json:
        told.json.write_text(json.dumps(figures, indent=1))
    late = sum(taken >= GOAL for found in figures.values() for taken in found.values())
    sys.exit(f"{late} questions took {GOAL:g} ms or more" if late else 0)


if __name__ == "__main__":
    main()
