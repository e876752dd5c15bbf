"""Many schedules due at once, and a day of downtime.

    python benchmarks/herd.py [--schedules 10000] [--engines sqlite,postgres]

Prints how long it takes until all schedules that are due in one instant have become runs, and,
after 24 hours down with minutely schedules: the time until the first occurrence that is on time
has fired, and the memory it took. Time is virtual; the seconds shown are real.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rota.flow.fire import Fire
from rota.model.job import Job
from rota.model.plan import FirePlan
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.operations.audit import Actor
from rota.storage.operations.firing import Fired
from rota.storage.store import Store, open_store

ME = Actor(by="bench", via="bench")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> datetime:
        return self.now


def prepare(url: str, count: int, catch_up: str) -> tuple[Store, Clock]:
    clock = Clock()
    store = open_store(url, schema=f"bench_{catch_up}", clock=clock)
    store.migrate()
    store.write(operations.put_jobs, [Job(name="job")])
    for number in range(count):
        store.write(
            operations.put_schedule,
            Schedule(
                name=f"s{number}", job="job", kind="cron", expr="* * * * *", catch_up=catch_up
            ),
            ME,
        )
    return store, clock


def fire_all(store: Store, clock: Clock) -> float:
    """Real seconds until nothing is due any more."""
    fire = Fire(store, monotonic=lambda: clock.now.timestamp(), fired=lambda: None)
    began = time.perf_counter()
    while fire.step() == 0.0:
        pass
    return time.perf_counter() - began


def recover(store: Store, clock: Clock) -> float:
    """Real seconds until the first occurrence that is on time has fired."""
    newest = BEGIN

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def fire(self, plans: Sequence[FirePlan], jobs: Mapping[str, Job]) -> Fired:
            nonlocal newest
            made = store.write(operations.fire, plans, jobs)
            due = [run.occurrence for plan in plans for run in plan.runs]
            newest = max([newest, *due])
            return made

    fire = Fire(Watched(), monotonic=lambda: clock.now.timestamp(), fired=lambda: None)
    began = time.perf_counter()
    while fire.step() == 0.0 and newest < clock.now:
        pass
    return time.perf_counter() - began


def measure(engine: str, url: str, count: int) -> None:
    for catch_up in ("one", "none", "all"):
        store, clock = prepare(url, count, catch_up)
        clock.now += timedelta(minutes=1)
        herd = fire_all(store, clock)
        clock.now += timedelta(days=1)
        # What a scheduler does after a day down: catch up, then be on time.
        recovered = recover(store, clock)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{engine:10} catch_up {catch_up:5} {count:,} due at once: {herd:.2f} s; "
            f"after 24 h down: {recovered:.2f} s; peak memory {memory:.0f} MB",
            flush=True,
        )
        store.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--engines", default="sqlite,postgres")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for engine in options.engines.split(","):
            url = f"sqlite:///{folder}/herd.db"
            if engine == "postgres":
                from tests.support.postgres import Cluster

                cluster = stack.enter_context(Cluster(fsync=True))
                cluster.start()
                url = cluster.create_database()
            measure(engine, url, options.schedules)


if __name__ == "__main__":
    main()
