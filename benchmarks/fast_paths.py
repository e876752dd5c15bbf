"""What each fast path of PostgreSQL gains over the plain operation it stands for.

    python benchmarks/fast_paths.py [--rounds 15] [--only claim,fire]

Both run on one server, by turns, over the same rows; every other pair begins with the plain one.
Shown is the median of the ratios plain : fast, with the least and the largest, of the wall time and
of the CPU of this process and of its server processes together. Where others use the machine, too,
the CPU is the figure to trust.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psycopg

from rota.flow.fire import fire
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.outcome import settle as decide
from rota.model.plan import FirePlan, plan_fire
from rota.model.retry import ONCE
from rota.model.run import BulkRuns, ClaimedRun, NewRun
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.operations.audit import Actor
from rota.storage.operations.claiming import ClaimRequest
from rota.storage.store import Store, open_store
from tests.support.postgres import open_server

TICK = 1 / os.sysconf("SC_CLK_TCK")
ME = Actor(by="bench", via="bench")
LEASE = timedelta(minutes=10)
QUEUE = "default"
EMPTIED = (
    "runs", "run_ids", "run_keys", "slots", "occurrences", "schedules", "schedule_changes",
    "attempts", "events", "audit",
)  # fmt: skip


class Clock:
    """Moves by hand, so that schedules are due when they are to be fired."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Cost:
    wall: float
    cpu: float


class World:
    """One database, and the two stores that are compared."""

    def __init__(self, url: str) -> None:
        self.url, self.clock = url, Clock()
        self.fast = open_store(url, clock=self.clock)
        self.fast.migrate()
        self.plain = open_store(url, clock=self.clock, fast_paths=False)
        self.connection = psycopg.connect(url, autocommit=True)
        self.fast.write(operations.put_jobs, [Job(name="job")])
        self.fast.write(operations.ensure_queues, [QUEUE])

    def empty(self) -> None:
        for table in EMPTIED:
            self.connection.execute(f"TRUNCATE rota_data.{table}")

    def analyze(self) -> None:
        """As autovacuum would by now; and no dead entries of rounds before."""
        self.connection.execute("VACUUM ANALYZE")

    def cpu(self) -> float:
        """Seconds of this process and of the server processes of this database."""
        sessions = self.connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        ).fetchall()
        return time.process_time() + sum(server_seconds(pid) for (pid,) in sessions)

    def close(self) -> None:
        for opened in (self.fast, self.plain, self.connection):
            opened.close()


def server_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def new_run(**options: Any) -> NewRun:
    return NewRun(**{"id": str(uuid4()), "job": "job", "queue": QUEUE, "args": "{}", **options})


def bulk(template: NewRun, count: int) -> BulkRuns:
    return BulkRuns(template, [str(uuid4()) for _ in range(count)], ["{}"] * count)


def claim(store: Store, limit: int) -> list[ClaimedRun]:
    return store.write(
        operations.claim, "worker", queues=[], jobs=["job"], limit=limit, lease=LEASE
    )


# What is measured: each prepares rows, and answers what is timed.

Act = Callable[[], object]


def claims(world: World, store: Store, count: int, limit: int) -> Act:
    world.fast.write(operations.enqueue, bulk(new_run(), count))
    world.analyze()

    def act() -> None:
        for _ in range(count // limit):
            assert len(claim(store, limit)) == limit

    return act


def settles(world: World, store: Store, count: int, limit: int) -> Act:
    world.fast.write(operations.enqueue, bulk(new_run(), count))
    taken = claim(world.fast, count)
    world.analyze()
    ended = Outcome(kind="succeeded", result='{"rows": 1}')
    ends = [decide(run, ended, retry=ONCE, max_lost=3) for run in taken]

    def act() -> None:
        for at in range(0, count, limit):
            part = ends[at : at + limit]
            assert len(store.write(operations.settle, part)) == len(part)

    return act


def enqueues(world: World, store: Store, count: int, limit: int) -> Act:
    world.analyze()
    template = new_run()
    batches = [bulk(template, limit) for _ in range(count // limit)]

    def act() -> None:
        for batch in batches:
            store.write(operations.enqueue, batch, notify=False)

    return act


def put_schedules(world: World, count: int) -> None:
    first = Schedule(name="first", job="job", kind="every", expr="1h", overlap="queue")
    world.fast.write(operations.put_schedule, first, ME)
    names = ", ".join(
        f'"{name}"'
        for (name,) in world.connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'rota_data'"
            " AND table_name = 'schedules' AND column_name NOT IN ('id', 'name')"
        )
    )
    world.connection.execute(
        f"INSERT INTO rota_data.schedules (name, {names}) SELECT 'copy-' || n, {names}"
        f" FROM rota_data.schedules, generate_series(2, {count}) AS n"
    )
    made = world.fast.read(operations.schedule_named, "first")
    assert made.next_fire_at is not None
    world.clock.now = made.next_fire_at


def due(world: World) -> list[FirePlan]:
    read = world.fast.peek(operations.due_schedules, 10_000)
    return [plan_fire(schedule, read.now) for schedule in read.schedules]


def fires(world: World, store: Store, count: int, limit: int) -> Act:
    """Mixed schedules, each free to start."""
    put_schedules(world, count)
    world.analyze()
    planned, jobs = due(world), world.fast.read(operations.jobs_named, ["job"])
    assert len(planned) == count

    def act() -> None:
        for at in range(0, count, limit):
            assert fire(store, planned[at : at + limit], jobs).runs == limit

    return act


def fires_that_claim(world: World, store: Store, count: int, limit: int) -> Act:
    """On time, in a process whose worker has room."""
    put_schedules(world, count)
    world.analyze()
    planned, jobs = due(world), world.fast.read(operations.jobs_named, ["job"])
    asks = ClaimRequest(worker_id="worker", queues=(), jobs=["job"], limit=limit, lease=LEASE)

    def act() -> None:
        for at in range(0, count, limit):
            assert len(fire(store, planned[at : at + limit], jobs, asks).claimed) == limit

    return act


def fires_of_a_group(world: World, store: Store, count: int, limit: int) -> Act:
    put_schedules(world, count)
    world.analyze()
    plan, job = due(world)[0], Job(name="job")
    ids = world.fast.peek(operations.due_group, plan.schedule, count)
    assert len(ids) == count

    def act() -> None:
        for at in range(0, count, limit):
            assert store.write(operations.fire_group, plan, ids[at : at + limit], job).runs == limit

    return act


def admissions(world: World, store: Store, count: int, limit: int) -> Act:
    """Keys with a free slot and two runs that wait: a caller's transaction left them so."""
    keyed = [new_run(concurrency_key=f"key-{n % count}") for n in range(2 * count)]
    with psycopg.connect(world.url) as caller:
        world.fast.enqueue_on(caller, keyed)
    world.analyze()
    keys = [f"c/key-{n}" for n in range(count)]

    def act() -> None:
        for at in range(0, count, limit):
            assert store.write(operations.admit, keys[at : at + limit]) == limit

    return act


Prepare = Callable[[World, Store, int, int], Act]
# Name: what prepares it, how many rows in all, and how many in one call.
CASES: dict[str, tuple[Prepare, int, int]] = {
    "claim, 1 at a time": (claims, 200, 1),
    "claim, 100 at a time": (claims, 5_000, 100),
    "settle, 1 at a time": (settles, 200, 1),
    "settle, 100 at a time": (settles, 5_000, 100),
    "enqueue, 1 at a time": (enqueues, 400, 1),
    "enqueue, 1,000 at a time": (enqueues, 10_000, 1_000),
    "fire, 1 at a time": (fires, 200, 1),
    "fire, 100 at a time": (fires, 2_000, 100),
    "fire that claims, 1 at a time": (fires_that_claim, 200, 1),
    "fire_group, 2,000 at a time": (fires_of_a_group, 4_000, 2_000),
    "admit, 1 key": (admissions, 200, 1),
    "admit, 50 keys": (admissions, 500, 50),
}


def measure(world: World, prepare: Prepare, store: Store, count: int, limit: int) -> Cost:
    world.empty()
    act = prepare(world, store, count, limit)
    cpu, began = world.cpu(), time.perf_counter()
    act()
    return Cost(time.perf_counter() - began, world.cpu() - cpu)


def spread(ratios: Sequence[float]) -> str:
    return f"{median(ratios):5.2f}  ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="beginnings of names, with commas between")
    arguments = parser.parse_args()
    only = tuple(arguments.only.split(","))
    with open_server() as server, server.database() as url, closing(World(url)) as world:
        print(f"{'':32}{'wall':24}CPU, client and server")
        for name, (prepare, count, limit) in CASES.items():
            if not name.startswith(only):
                continue
            walls, cpus, spent = [], [], []
            for number in range(arguments.rounds + 1):
                pair = [world.fast, world.plain]
                cost = {
                    store: measure(world, prepare, store, count, limit)
                    for store in (pair if number % 2 else pair[::-1])
                }
                if not number:
                    continue  # connections, and plans that are made once
                fast, plain = cost[world.fast], cost[world.plain]
                walls.append(plain.wall / fast.wall)
                cpus.append(plain.cpu / max(fast.cpu, TICK))
                spent.append(1e6 * fast.cpu / count)
            print(f"{name:32}{spread(walls):24}{spread(cpus):24}{median(spent):6.0f} µs a row")


if __name__ == "__main__":
    main()
