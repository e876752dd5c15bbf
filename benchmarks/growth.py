"""Staying fast: what each verb costs as rows pile up.

    python benchmarks/growth.py [--engines sqlite,postgres] [--small] [--json FILE]
                                [--parts runs,prune,schedules,held] [--held SECONDS] [--rate 200]

runs       every verb on an empty table, then up to 1,000,000 queued, 1,000,000 waiting and
           5,000,000 finished runs. Goal: a claim takes at most 1.5 x what it takes when empty.
prune      many runs are deleted: how fast, what is left of the table, what a claim costs then.
           Goals: the same 1.5 x, and new runs fill the space of the old ones.
schedules  1,000,000 schedules, none of them due. Goals: a tick takes under 1 ms, and the
           process does not grow.
held       PostgreSQL: somebody leaves a transaction open for ten minutes while 200 runs a second
           come and go. Nothing can be vacuumed meanwhile. Goal: claims stay within 2 x.

"Empty" is a second store that holds the runs that are claimed to measure it, and little else. The
two take turns, so that a busy machine is as busy for both. Figures are medians in milliseconds of
real time, commits synced; `--small` has a tenth of the rows and holds for 60 s.
"""

import argparse
import gc
import itertools
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ids import NAME_SINCE

from rota.flow import promote, prune, rescue
from rota.flow.enqueue import new_run_ids
from rota.flow.fire import BATCH as FIRE_BATCH
from rota.model.job import Job
from rota.model.outcome import Outcome, settle
from rota.model.retention import RETENTION
from rota.model.retry import Retry
from rota.model.run import ClaimedRun, NewRun
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.rows import schedule_row
from rota.storage.store import Store, open_store

CLAIM_GOAL, HELD_GOAL, SIZE_GOAL = 1.5, 2.0, 1.2  # times what it was at first
TICK_GOAL = 1.0  # ms
MEMORY_GOAL = 1.0  # MB, for a million schedules

JOBS = [f"job{number}" for number in range(20)]
QUEUES = ["queue0", "queue1", "queue2", "queue3"]
LEASE = timedelta(seconds=60)
KEEP_LAST = 50  # runs of each job, however old

WARM_UP, ONES, HUNDREDS, LOOKS, FEW = 20, 200, 30, 40, 10
OWN = 6_000  # queued runs that the measurement of an empty table needs
CHUNK = 100_000  # rows an insert

# Queued, waiting and finished runs, beside those that are claimed to measure.
FULL = [(0, 0, 0), (10_000, 10_000, 50_000), (100_000, 100_000, 500_000)]
FULL += [(1_000_000, 1_000_000, 5_000_000)]
SMALL = [(0, 0, 0), (1_000, 1_000, 5_000), (10_000, 10_000, 50_000), (100_000, 100_000, 500_000)]

# A job has one queue. One run in ten is urgent, one can wait. A third have a concurrency key that
# nobody else wants, so a queued one owns its slot.
COLUMNS = """id, job, queue, priority, state, due_at, created_at, queued_at, claimed_at, started_at,
finished_at, attempt, failures, max_attempts, args, concurrency_key, wanted_key, schedule_id,
worker_id, error"""
ROW = """'job' || (n % 20), 'queue' || (n % 4),
CASE n / 20 % 10 WHEN 0 THEN 10 WHEN 1 THEN -10 ELSE 0 END"""
ARGS = """'{"customer": ' || n || ', "document": "invoice-' || n || '.pdf", "copies": 2}'"""
KEY = "CASE WHEN n / 7 % 3 = 0 THEN 'customer-' || n END"
END = "CASE WHEN n % 100 < 95 THEN 'succeeded' WHEN n % 100 < 99 THEN 'dead' ELSE 'cancelled' END"
FINISHED_DAYS = 6  # over which finished runs are spread: retention keeps them all


def runs_select(state: str, *, at: Callable[[str], str], id: str, count: int, last: int) -> str:
    """What is inserted for the numbers n of one state. `at` is an instant, seconds from now."""
    match state:
        case "queued":
            due = at(f"(n - {last}) * 0.001 - 60")
            return f"""{id}, {ROW}, 'queued', {due}, {due}, {due}, NULL, NULL, NULL, 0, 0, 3,
                {ARGS}, {KEY}, NULL, NULL, NULL, NULL"""
        case "waiting":
            due = at("n * 0.01 + 86400")
            return f"""{id}, {ROW}, 'waiting', {due}, {at("-3600")}, NULL, NULL, NULL, NULL, 0, 0,
                3, {ARGS}, {KEY}, 'c/' || {KEY}, NULL, NULL, NULL"""
        case _:
            end = at(f"(n - {last}) * {FINISHED_DAYS * 86400.0 / count} - 3600")
            return f"""{id}, {ROW}, {END}, {end}, {end}, {end}, {end}, {end}, {end}, 1,
                CASE WHEN n % 100 < 95 THEN 0 ELSE 1 END, 3, {ARGS}, {KEY}, NULL,
                CASE WHEN n % 10 = 3 THEN n % 1000 END, 'worker-1',
                CASE WHEN n % 100 >= 95 THEN 'ValueError: no such customer' END"""


class SqliteRows:
    """Rows by the million, past the store."""

    prefix = "_rota_"
    series = "WITH RECURSIVE s(n) AS (SELECT {0} UNION ALL SELECT n + 1 FROM s WHERE n < {1})"
    # The shape of new_run_ids: ordered by time.
    id = """printf('%08x-%04x-7', (1700000000000 + n) >> 16, (1700000000000 + n) & 65535)
        || substr(hex(randomblob(2)), 1, 3) || '-8' || substr(hex(randomblob(2)), 1, 3) || '-'
        || hex(randomblob(6))"""

    def __init__(self, url: str) -> None:
        self.connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.execute("PRAGMA busy_timeout = 60000")

    def execute(self, sql: str) -> Any:
        row = self.connection.execute(sql).fetchone()
        return None if row is None else row[0]

    def at(self, seconds: str) -> str:
        return f"CAST((unixepoch() + ({seconds})) * 1000000 AS INTEGER)"

    def settle_down(self) -> None:
        """What a quiet minute does by itself."""
        self.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def vacuum(self) -> None:
        """Pages of deleted rows are free at once."""

    def size(self) -> int:
        """MB in use by rows and their indexes."""
        pages = self.execute("PRAGMA page_count") - self.execute("PRAGMA freelist_count")
        return pages * self.execute("PRAGMA page_size") >> 20

    def close(self) -> None:
        self.connection.close()


class PostgresRows:
    """Rows by the million, past the store."""

    prefix = "rota_data."
    series = "WITH s(n) AS (SELECT * FROM generate_series({0}::bigint, {1}))"
    id = """(lpad(to_hex(1700000000000 + n), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8'
        || substr(md5(random()::text), 1, 15))::uuid"""

    def __init__(self, url: str) -> None:
        import psycopg

        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("SET synchronous_commit = off")

    def execute(self, sql: str) -> Any:
        cursor = self.connection.execute(sql)
        row = cursor.fetchone() if cursor.description else None
        return None if row is None else row[0]

    def at(self, seconds: str) -> str:
        return f"(now() + ({seconds}) * interval '1 second')"

    def settle_down(self) -> None:
        """What a quiet minute does by itself; here, so that it does not happen meanwhile."""
        for table in ("runs", "run_ids", "slots", "schedules"):
            self.execute(f"VACUUM (ANALYZE) {self.prefix}{table}")
        self.execute("CHECKPOINT")

    vacuum = settle_down

    def size(self) -> int:
        """MB of the runs, their ids and their indexes, free space and all."""
        tables = " + ".join(
            f"pg_total_relation_size('{self.prefix}{table}')" for table in ("runs", "run_ids")
        )
        return self.execute(f"SELECT {tables}") >> 20

    def close(self) -> None:
        self.connection.close()


Rows = SqliteRows | PostgresRows


def add_runs(rows: Rows, state: str, first: int, last: int) -> None:
    """Runs first + 1 .. last of a state. Numbers differ between states, so keys and ids do too."""
    table, shift = f"{rows.prefix}runs", {"queued": 1, "waiting": 2, "finished": 3}[state]
    mark = rows.execute(f"SELECT coalesce(max(seq), 0) FROM {table}")
    for begin in range(first, last, CHUNK):
        end = min(begin + CHUNK, last)
        offset = shift * 100_000_000
        select = runs_select(state, at=rows.at, id=rows.id, count=last - first, last=offset + last)
        series = rows.series.format(offset + begin + 1, offset + end)
        if isinstance(rows, SqliteRows):
            rows.execute(f"INSERT INTO {table} ({COLUMNS}) {series} SELECT {select} FROM s")
        else:
            select = select.replace(f"{ARGS}", f"({ARGS})::json")
            rows.execute(f"{series} INSERT INTO {table} ({COLUMNS}) SELECT {select} FROM s")
    if isinstance(rows, PostgresRows):
        rows.connection.execute(NAME_SINCE, [mark])
    if state == "queued":
        rows.execute(
            f"""INSERT INTO {rows.prefix}slots (key, number, owner_run)
                SELECT 'c/' || concurrency_key, 1, seq FROM {table}
                 WHERE seq > {mark} AND state = 'queued' AND concurrency_key IS NOT NULL"""
        )


# As in the row of a schedule that skips what overlaps.
OPTIONS = schedule_row(Schedule(name="-", job="-", kind="every", expr="1m", overlap="skip"))[
    "options"
]


def add_schedules(rows: Rows, count: int) -> None:
    """Schedules whose next occurrence is a day away or more."""
    true, false = ("1", "0") if isinstance(rows, SqliteRows) else ("true", "false")
    for begin in range(0, count, CHUNK):
        series = rows.series.format(begin + 1, min(begin + CHUNK, count))
        head = f"""INSERT INTO {rows.prefix}schedules (name, job, kind, expr, next_fire_at, enabled,
            paused, args, options, plan_key, created_at)"""
        body = f"""SELECT 'schedule-' || n, 'job' || (n % 20), 'cron', '0 4 * * *',
            {rows.at("86400 + n * 0.01")}, {true}, {false}, '{{}}',
            '{OPTIONS}', 'plan ' || (n % 20), {rows.at("0")} FROM s"""
        first, then = (head, series) if isinstance(rows, SqliteRows) else (series, head)
        rows.execute(f"{first} {then} {body}")


def load_schedules(engine: str, url: str, count: int) -> None:
    with closing(open_rows(engine, url)) as rows:
        add_schedules(rows, count)
        rows.settle_down()


def open_rows(engine: str, url: str) -> Rows:
    return SqliteRows(url) if engine == "sqlite" else PostgresRows(url)


# Measuring


@dataclass(frozen=True, slots=True)
class Timing:
    median: float
    p95: float


class Stopwatch:
    """Milliseconds by verb."""

    def __init__(self) -> None:
        self.took: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def timing(self, verb: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.took[verb].append((time.perf_counter() - began) * 1000)

    def timings(self) -> dict[str, Timing]:
        return {verb: timing(took) for verb, took in self.took.items()}


def timing(took: Sequence[float]) -> Timing:
    ordered = sorted(took)
    return Timing(statistics.median(ordered), ordered[int(len(ordered) * 0.95)])


def claim(store: Store, limit: int, jobs: Sequence[str] = JOBS) -> list[ClaimedRun]:
    return store.write(operations.claim, "worker-1", queues=(), jobs=jobs, limit=limit, lease=LEASE)


def settle_all(store: Store, runs: Sequence[ClaimedRun]) -> None:
    done = Outcome(kind="succeeded", result="null")
    answers = store.write(
        operations.settle, [settle(run, done, retry=Retry(), max_lost=3) for run in runs]
    )
    assert len(answers) == len(runs)


def new_runs(count: int, number: int, *, keys: int = 1_000_000) -> list[NewRun]:
    """What the bulk rows are like. A key comes again after so many runs."""
    return [
        NewRun(
            id=new_run_ids(1)[0],
            job=JOBS[n % 20],
            queue=QUEUES[n % 4],
            priority={0: 10, 1: -10}.get(n // 20 % 10, 0),
            args='{"customer": 1, "document": "invoice-1.pdf", "copies": 2}',
            concurrency_key=f"again-{n % keys}" if n // 7 % 3 == 0 else None,
        )
        for n in range(number, number + count)
    ]


def measure_work(store: Store, watch: Stopwatch, *, ones: int, hundreds: int) -> None:
    """Claim and settle, one at a time and by the hundred."""
    for limit, rounds in ((1, ones), (100, hundreds)):
        for _ in range(rounds):
            with watch.timing(f"claim {limit}"):
                runs = claim(store, limit)
            assert len(runs) == limit
            with watch.timing(f"settle {limit}"):
                settle_all(store, runs)


def measure_stranger(store: Store, watch: Stopwatch) -> None:
    """A worker that knows one job of twenty passes by the runs of the others."""
    for _ in range(FEW):
        with watch.timing("claim job0"):
            runs = claim(store, 1, JOBS[:1])
        settle_all(store, runs)


NUMBERS = itertools.count()


def measure_enqueue(store: Store, watch: Stopwatch, *, ones: int, hundreds: int) -> None:
    for count, rounds in ((1, ones), (100, hundreds)):
        for _ in range(rounds):
            runs = new_runs(count, next(NUMBERS) * 100)
            with watch.timing(f"enqueue {count}"):
                store.write(operations.enqueue, runs)


def look_tick(store: Store) -> None:
    assert not store.peek(operations.due_schedules, FIRE_BATCH).schedules
    store.peek(operations.next_fire_at)


def look_promote(store: Store) -> None:
    store.read(operations.next_due_at)
    assert store.write(operations.promote, promote.BATCH) == 0
    store.read(operations.held_keys, "", promote.KEYS)


def look_rescue(store: Store) -> None:
    assert store.read(operations.expired_runs, rescue.BATCH) == []


def look_sweep(store: Store) -> None:
    store.sweep(rescue.SWEEP_LIMIT)


def look_prune(store: Store) -> None:
    for state, age in RETENTION.items():
        prune_state(store, state, age)


def prune_state(store: Store, state: str, age: timedelta) -> int:
    return store.write(
        operations.prune_runs,
        state,
        age_seconds=age.total_seconds(),
        keep_last=KEEP_LAST,
        limit=prune.BATCH,
    )


LOOK_VERBS: dict[str, Callable[[Store], None]] = {
    "tick": look_tick,
    "promote": look_promote,
    "rescue": look_rescue,
    "sweep": look_sweep,
    "prune": look_prune,
}


def measure_looks(store: Store, watch: Stopwatch, rounds: int = LOOKS) -> None:
    """What every process asks again and again, mostly for nothing."""
    for verb, look in LOOK_VERBS.items():
        for _ in range(rounds):
            with watch.timing(verb):
                look(store)


def measure_all(store: Store) -> dict[str, Timing]:
    measure_work(store, Stopwatch(), ones=WARM_UP, hundreds=2)
    watch = Stopwatch()
    gc.disable()
    measure_work(store, watch, ones=ONES, hundreds=HUNDREDS)
    measure_stranger(store, watch)
    measure_looks(store, watch)
    measure_enqueue(store, watch, ones=ONES, hundreds=HUNDREDS)
    gc.enable()
    return watch.timings()


# Parts


class Report:
    """The table on the screen, the series in the file, and which goals are reached."""

    def __init__(self) -> None:
        self.series: list[dict[str, Any]] = []
        self.missed: list[str] = []

    def add(self, part: str, engine: str, at: str, figures: dict[str, Any]) -> None:
        self.series.append({"part": part, "engine": engine, "at": at, **figures})

    def line(self, *cells: object) -> None:
        print(f"{cells[0]!s:28}" + "".join(f"{cell!s:>12}" for cell in cells[1:]), flush=True)

    def goal(self, what: str, value: float, limit: float) -> None:
        reached = value <= limit
        if not reached:
            self.missed.append(f"{what}: {value:.2f}, goal {limit:g}")
        print(f"  {'reached' if reached else 'MISSED'}: {what} {value:.2f} (goal {limit:g})")


def shown(timings: dict[str, Timing]) -> dict[str, Any]:
    return {verb: {"median": t.median, "p95": t.p95} for verb, t in timings.items()}


class Bench:
    """One engine, one store; `empty` is the store it is compared with."""

    def __init__(self, engine: str, url: str, report: Report, empty: "Bench | None" = None) -> None:
        self.engine, self.url, self.report, self.empty = engine, url, report, empty
        self.store = open_store(url)
        self.store.migrate()
        self.store.write(operations.put_jobs, [Job(name=name) for name in JOBS])
        self.store.write(operations.ensure_queues, QUEUES)
        self.rows = open_rows(engine, url)
        self.numbers = {"queued": 0, "waiting": 0, "finished": 0}

    def close(self) -> None:
        self.rows.close()
        self.store.close()

    def grow(self, state: str, count: int) -> None:
        add_runs(self.rows, state, self.numbers[state], self.numbers[state] + count)
        self.numbers[state] += count

    def runs(self, steps: Sequence[tuple[int, int, int]]) -> None:
        """Each step adds to the one before."""
        print(f"\n{self.engine}: ms, by number of queued, waiting and finished runs")
        before = (0, 0, 0)
        for step in steps:
            for state, now, was in zip(
                ("finished", "waiting", "queued"), reversed(step), reversed(before), strict=True
            ):
                self.grow(state, now - was)
            self.grow("queued", OWN)
            before = step
            self._fresh(step)
            self.rows.settle_down()
            timings = measure_all(self.store)
            if not any(step):
                self.report.line("queued/waiting/finished", *timings)
            at = "/".join(f"{count:,}" for count in step)
            self.report.line(at, *(f"{one.median:.2f}" for one in timings.values()))
            self.report.add("runs", self.engine, at, shown(timings))
        self._compare_claims(f"{at} runs")

    def _fresh(self, step: tuple[int, int, int]) -> None:
        """A claim right after a burst, before anything has gathered statistics or cleaned up."""
        watch = Stopwatch()
        measure_work(self.store, watch, ones=WARM_UP, hundreds=2)
        timings = watch.timings()
        if any(step):
            self.report.line("  right after the burst", f"{timings['claim 1'].median:.2f}")
            at = "/".join(f"{count:,}" for count in step)
            self.report.add("burst", self.engine, at, shown(timings))

    def _compare_claims(self, what: str) -> None:
        assert self.empty is not None
        self.empty.grow("queued", OWN)
        self.empty.rows.settle_down()
        ours, theirs = Stopwatch(), Stopwatch()
        for limit, rounds in ((1, ONES), (100, HUNDREDS)):
            for _ in range(rounds):
                for store, watch in ((self.store, ours), (self.empty.store, theirs)):
                    with watch.timing(f"claim {limit}"):
                        runs = claim(store, limit)
                    settle_all(store, runs)
        full, empty = ours.timings(), theirs.timings()
        for verb in full:
            ratio = full[verb].median / empty[verb].median
            self.report.goal(f"{self.engine}, {what}: {verb} against empty", ratio, CLAIM_GOAL)
            self.report.add("ratio", self.engine, f"{what}: {verb}", {"ratio": ratio})

    def prune(self, count: int) -> None:
        """Deletes up to `count` finished runs, then adds as many."""
        print(f"\n{self.engine}: pruning {count:,} runs")
        size = self.rows.size()
        age = timedelta(days=FINISHED_DAYS / 2)
        deleted, took = 0, []
        while deleted < count:
            began = time.perf_counter()
            made = prune_state(self.store, "succeeded", age)
            took.append((time.perf_counter() - began) * 1000)
            deleted += made
            if made < prune.BATCH:
                break
        tenth = max(1, len(took) // 10)
        first, last = statistics.median(took[:tenth]), statistics.median(took[-tenth:])
        seconds = sum(took) / 1000
        print(
            f"  {deleted:,} in {seconds:.1f} s; a batch of {prune.BATCH}: "
            f"{first:.1f} ms at first, {last:.1f} ms at last"
        )
        self._compare_claims("right after pruning")
        self.rows.vacuum()
        shrunk = self.rows.size()
        self.grow("finished", deleted)
        filled = self.rows.size()
        self.rows.settle_down()
        self._compare_claims("pruned and filled")
        print(f"  size {size} MB, {shrunk} MB after, {filled} MB with as many new ones")
        figures = {"first_ms": first, "last_ms": last, "deleted": deleted, "seconds": seconds}
        sizes = {"size": size, "shrunk": shrunk, "filled": filled}
        self.report.add("prune", self.engine, f"{deleted:,}", {**figures, **sizes})
        self.report.goal(f"{self.engine}: size after as many new runs", filled / size, SIZE_GOAL)

    def schedules(self, count: int) -> None:
        print(f"\n{self.engine}: {count:,} schedules, none due")
        resident = []
        for add in (0, count):
            # In a process of its own: pages that a loader keeps are not the memory of a scheduler.
            with ProcessPoolExecutor(1, get_context("spawn")) as elsewhere:
                elsewhere.submit(load_schedules, self.engine, self.url, add).result()
            watch = Stopwatch()
            for _ in range(ONES):
                look_tick(self.store)
            for _ in range(ONES):
                with watch.timing("tick"):
                    look_tick(self.store)
            gc.collect()
            resident.append(resident_mb())
            tick = watch.timings()["tick"]
            self.report.line(f"{add:,}", f"{tick.median:.2f} ms", f"{resident[-1]:.1f} MB")
            self.report.add(
                "schedules", self.engine, f"{add:,}",
                {**shown(watch.timings()), "resident_mb": resident[-1]},
            )  # fmt: skip
        self.report.goal(f"{self.engine}: a tick, ms", tick.median, TICK_GOAL)
        grown = resident[1] - resident[0]
        self.report.goal(f"{self.engine}: memory grown, MB", grown, MEMORY_GOAL)

    def held(self, seconds: float, rate: int) -> None:
        """A worker with free slots asks for more than there is, 20 times a second."""
        import psycopg

        print(f"\n{self.engine}: a transaction held open for {seconds:.0f} s at {rate} runs/s")
        assert self.empty is not None  # in a database of its own, which can be vacuumed
        flow = Flow(self.store, self.empty.store, rate)
        flow.work(5.0)
        self._held_line("before", flow.work(10.0))
        with psycopg.connect(self.url) as other:
            other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            other.execute(f"SELECT count(*) FROM {self.rows.prefix}queues")
            for part in range(12):
                during = flow.work(seconds / 12)
                self._held_line(f"{seconds * (part + 1) / 12:.0f} s", during)
        self._held_line("let go", flow.work(10.0))
        ratio = during["claim"].median / during["elsewhere"].median
        self.report.goal(f"{self.engine}: claim, held against elsewhere", ratio, HELD_GOAL)

    def _held_line(self, at: str, timings: dict[str, Timing]) -> None:
        if at == "before":
            self.report.line("", *timings, "claim p95")
        medians = [f"{one.median:.2f}" for one in timings.values()]
        self.report.line(at, *medians, f"{timings['claim'].p95:.2f}")
        self.report.add("held", self.engine, at, shown(timings))


class Flow:
    """Runs that come and go at a rate: 20 times a second some are enqueued, claimed and settled.

    Four times a second the same happens in a store that nobody holds: claims `elsewhere`.
    """

    beats_per_second = 20

    def __init__(self, store: Store, elsewhere: Store, rate: int) -> None:
        self.store, self.elsewhere = store, elsewhere
        self.count, self.number = rate // self.beats_per_second, 0

    def work(self, seconds: float) -> dict[str, Timing]:
        watch = Stopwatch()
        begin, beats = time.monotonic(), int(seconds * self.beats_per_second)
        for beat in range(beats):
            time.sleep(max(0.0, begin + beat / self.beats_per_second - time.monotonic()))
            self._beat(self.store, watch)
            if beat % (self.beats_per_second // 4) == 0:
                beside = Stopwatch()
                self._beat(self.elsewhere, beside)
                watch.took["elsewhere"] += beside.took["claim"]
            if beat % self.beats_per_second == 0:
                for verb in ("promote", "rescue"):
                    with watch.timing(verb):
                        LOOK_VERBS[verb](self.store)
        return watch.timings()

    def _beat(self, store: Store, watch: Stopwatch) -> None:
        with watch.timing("enqueue"):
            store.write(operations.enqueue, new_runs(self.count, self.number, keys=1_000))
        self.number += self.count
        with watch.timing("claim"):
            runs = claim(store, 2 * self.count)
        with watch.timing("settle"):
            settle_all(store, runs)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def databases(engine: str) -> Iterator[tuple[str, str]]:
    """Two, on the same disk and the same server."""
    if engine == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/growth.db", f"sqlite:///{folder}/empty.db"
        return
    from tests.support.postgres import Cluster

    # PostgreSQL's own default for memory; the log's size only keeps loading from taking hours.
    settings = {"shared_buffers": "128MB", "max_wal_size": "4GB"}
    with Cluster(fsync=True, settings=settings) as cluster:
        yield cluster.create_database(), cluster.create_database()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engines", default="sqlite,postgres")
    parser.add_argument("--parts", default="runs,prune,schedules,held")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--held", type=float, metavar="SECONDS")
    parser.add_argument("--rate", type=int, default=200, help="runs a second while held")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    parts = options.parts.split(",")
    steps = SMALL if options.small else FULL
    report = Report()
    for engine in options.engines.split(","):
        # What is held gets a database of its own: nothing else may be left to clean.
        for group in ([part for part in parts if part != "held"], ["held"]):
            with ExitStack() as stack:
                wanted = [part for part in group if part in parts]
                if not wanted or (wanted == ["held"] and engine == "sqlite"):
                    continue
                url, other = stack.enter_context(databases(engine))
                empty = stack.enter_context(closing(Bench(engine, other, report)))
                bench = stack.enter_context(closing(Bench(engine, url, report, empty)))
                for part in wanted:
                    match part:
                        case "runs":
                            bench.runs(steps)
                        case "prune":
                            bench.prune(steps[-1][2] // 5)
                        case "schedules":
                            bench.schedules(100_000 if options.small else 1_000_000)
                        case "held":
                            seconds = options.held or (60 if options.small else 600)
                            bench.held(seconds, options.rate)
    for missed in report.missed:
        print(f"MISSED {missed}")
    if options.json:
        options.json.write_text(json.dumps(report.series, indent=1))


if __name__ == "__main__":
    main()
