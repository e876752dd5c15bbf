"""Celery on Redis: one process for worker and tasks, much prefetched, no results, no gossip."""

from __future__ import annotations

import sys
from importlib.metadata import version

from celery import Celery
from common import Seen, Timed, gate, main, say, stamp
from common import pace as paced

PREFETCH = 500


def make_app(url: str) -> Celery:
    app, seen = Celery("bench", broker=url), Seen()
    app.conf.update(
        task_ignore_result=True,
        worker_prefetch_multiplier=PREFETCH,
        worker_enable_remote_control=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
    )

    @app.task(name="noop")
    def noop() -> None:
        seen()

    @app.task(name="stamp")
    def stamped(sent: float) -> None:
        stamp(sent)

    return app


def setup(url: str) -> None:
    make_app(url)


def bulk(url: str, count: int) -> None:
    """One by one over one connection: it has no way to publish in bulk."""
    app = make_app(url)
    task = app.tasks["noop"]
    with app.producer_pool.acquire(block=True) as producer, Timed():
        for _ in range(count):
            task.apply_async(producer=producer)


def single(url: str, count: int) -> None:
    bulk(url, count)


def pace(url: str, count: int, gap: float) -> None:
    task = make_app(url).tasks["stamp"]
    paced(lambda sent: task.apply_async((sent,)), count, gap)


def work(url: str) -> None:
    app = make_app(url)
    gate()
    quiet = ["--loglevel=ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    app.worker_main(["--quiet", "worker", "--pool=solo", *quiet, f"--hostname=bench{id(app)}@%h"])


if __name__ == "__main__":
    # Its worker reads the command line too.
    arguments, sys.argv[1:] = sys.argv[1:], []
    main(
        {
            "version": lambda: say("version", version("celery")),
            **{verb.__name__: verb for verb in (setup, bulk, single, pace, work)},
        },
        arguments,
    )
