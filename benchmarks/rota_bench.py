"""Rota's side of the benchmark, through its public API, in real processes.

    python rota_bench.py thread|async VERB URL [COUNT] [MORE]

The verbs are those of peers/common.py; `thread` has sync handlers, `async` has coroutines. Beside
them: `loop`, the storage alone, claiming and settling without a worker.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

from common import Seen, Timed, gate, main, pace, say, stamp
from herd import Clock, fire_all
from producers import together
from schedules import multiply_schedules

import rota
from rota.model.job import Job
from rota.model.outcome import Outcome, settle
from rota.model.retry import ONCE
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.operations.audit import Actor
from rota.storage.store import open_store
from rota.version import VERSION

HOW = sys.argv[1]
SLOTS = 50
# In one call of enqueue_many: the best of 1000 to 50,000 where this was written.
BULK = 10_000
# The storage alone: the best of 500, 1000, 2000 and 5000 where this was written.
BATCH = 2_000


def make_app(url: str) -> rota.Rota:
    app, seen = rota.Rota(url, slots=SLOTS), Seen()
    if HOW == "async":

        async def noop() -> None:
            seen()

        async def stamped(sent: float) -> None:
            stamp(sent)
    else:

        def noop() -> None:
            seen()

        def stamped(sent: float) -> None:
            stamp(sent)

    app.job("noop")(noop)
    app.job("stamp")(stamped)
    return app


def setup(url: str) -> None:
    make_app(url).load()


def bulk(url: str, count: int) -> None:
    app = rota.Rota(url)

    @app.job("noop")
    def noop() -> None: ...

    app.load()
    with Timed():
        for begin in range(0, count, BULK):
            noop.enqueue_many([{}] * min(BULK, count - begin))


def single(url: str, count: int, producers: int = 1) -> None:
    def prepare() -> Callable[[int], None]:
        app = rota.Rota(url)
        task = app.job("noop")(lambda: None)
        task.enqueue()

        def enqueue(share: int) -> None:
            for _ in range(share):
                task.enqueue()

        return enqueue

    say("seconds", together(prepare, count, producers))


def paced(url: str, count: int, gap: float) -> None:
    app = make_app(url)
    app.load()
    pace(lambda sent: app.enqueue("stamp", {"sent": sent}), count, gap)


def work(url: str) -> None:
    app = make_app(url)
    app.load()
    gate()
    app.run()


def own(url: str, count: int, gap: float) -> None:
    app = make_app(url)
    app.start()
    pace(lambda sent: app.enqueue("stamp", {"sent": sent}), count, gap)
    app.stop()


def due(url: str) -> None:
    app = rota.Rota(url)

    @app.job(every="1s", overlap="allow")
    def tick(ctx: rota.Context) -> None:
        assert ctx.scheduled_at is not None
        stamp(ctx.scheduled_at.timestamp())

    app.run()


def herd(url: str, count: int) -> None:
    """One instant at which all schedules are due; time is virtual, the seconds are real."""
    clock = Clock()
    store = open_store(url, clock=clock)
    store.migrate()
    store.write(operations.put_jobs, [Job(name="noop")])
    store.write(
        operations.put_schedule,
        Schedule(name="s", job="noop", kind="cron", expr="* * * * *"),
        Actor(by="bench", via="bench"),
    )
    multiply_schedules(url, count)
    clock.now += timedelta(minutes=1)
    say("seconds", fire_all(store, clock))
    made = len(store.read(operations.list_runs, limit=1))
    assert made == 1, "nothing was fired"


def loop(url: str) -> None:
    store, seen, done = open_store(url), Seen(), Outcome(kind="succeeded")
    lease = timedelta(seconds=30)
    store.write(operations.claim, "bench", queues=(), jobs=("none",), limit=1, lease=lease)
    gate()
    seen.begin()
    while claimed := store.write(
        operations.claim, "bench", queues=(), jobs=("noop",), limit=BATCH, lease=lease
    ):
        for _ in claimed:
            seen()
        store.write(
            operations.settle, [settle(run, done, retry=ONCE, max_lost=3) for run in claimed]
        )


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    verbs = (setup, bulk, single, work, own, due, herd, loop)
    main(
        {
            "version": lambda: say("version", VERSION),
            "pace": paced,
            **{verb.__name__: verb for verb in verbs},
        },
        sys.argv[2:],
    )
