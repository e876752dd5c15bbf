"""DBOS: workflows of one queue, polled as often as it gains from."""

from __future__ import annotations

import logging
import threading
from datetime import datetime
from importlib.metadata import version

from common import Seen, Timed, gate, main, say, stamp
from common import pace as paced
from dbos import DBOS, DBOSClient, DBOSConfig

# The best of 0.01, 0.05 and 0.2 seconds, and of 10, 50, 100 and 200 at once, where this was
# written.
POLL_SECONDS = 0.01
AT_ONCE = 200
QUEUE = "bench"
seen = Seen()


@DBOS.workflow(name="noop")
def noop() -> None:
    seen()


@DBOS.workflow(name="stamp")
def stamped(sent: float) -> None:
    stamp(sent)


@DBOS.workflow(name="tick")
def tick(due: datetime, context: object) -> None:
    stamp(due.timestamp())


def launch(url: str) -> None:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url,
        "log_level": "ERROR",
        "application_version": "1",
        "sys_db_pool_size": 20,
        # How soon it sees a new schedule.
        "scheduler_polling_interval_sec": 1.0,
    }
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=AT_ONCE, polling_interval_sec=POLL_SECONDS)


def setup(url: str) -> None:
    launch(url)
    DBOS.destroy()


def bulk(url: str, count: int) -> None:
    """It has no way to enqueue in bulk: one by one."""
    single(url, count)


def single(url: str, count: int) -> None:
    enqueue = producer(url, "noop")
    with Timed():
        for _ in range(count):
            enqueue()


def pace(url: str, count: int, gap: float) -> None:
    paced(producer(url, "stamp"), count, gap)


def producer(url: str, workflow: str):  # type: ignore[no-untyped-def]
    client = DBOSClient(system_database_url=url)
    options = {"queue_name": QUEUE, "workflow_name": workflow, "app_version": "1"}
    return lambda *args: client.enqueue(options, *args)


def work(url: str) -> None:
    gate()
    launch(url)
    threading.Event().wait()


def due(url: str) -> None:
    launch(url)
    DBOS.create_schedule(
        schedule_name="tick", workflow_fn=tick, schedule="* * * * * *", queue_name=QUEUE
    )
    threading.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    main(
        {
            "version": lambda: say("version", version("dbos")),
            **{verb.__name__: verb for verb in (setup, bulk, single, pace, work, due)},
        }
    )
