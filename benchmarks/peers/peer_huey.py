"""huey on SQLite in WAL mode: `synced` waits for the disk at each commit, `unsynced` never."""

from __future__ import annotations

import logging
import sys
from importlib.metadata import version

from common import Seen, Timed, gate, main, say, stamp
from common import pace as paced
from huey import SqliteHuey
from huey.consumer import Consumer

# The best of 1, 2 and 3 where this was written: more of them wait for each other's write lock.
WORKERS = 1
# The shortest pause between two looks at an empty queue; it grows to the longest by the backoff.
SHORTEST, LONGEST = 0.001, 0.01

SYNCED = sys.argv[1] == "synced"
seen = Seen()


def open_huey(url: str) -> SqliteHuey:
    huey = SqliteHuey("bench", filename=url.removeprefix("sqlite:///"), fsync=SYNCED)
    huey.noop, huey.stamp = huey.task(name="noop")(seen), huey.task(name="stamp")(stamp)
    return huey


def setup(url: str) -> None:
    open_huey(url)


def bulk(url: str, count: int) -> None:
    huey = open_huey(url)
    with Timed():
        for _ in range(count):
            huey.noop()


def pace(url: str, count: int, gap: float) -> None:
    paced(open_huey(url).stamp, count, gap)


def consumer(huey: SqliteHuey) -> Consumer:
    return Consumer(
        huey,
        workers=WORKERS,
        periodic=False,
        initial_delay=SHORTEST,
        max_delay=LONGEST,
        check_worker_health=False,
    )


def work(url: str) -> None:
    huey = open_huey(url)
    gate()
    consumer(huey).run()


def own(url: str, count: int, gap: float) -> None:
    huey = open_huey(url)
    consumer(huey).start()
    paced(huey.stamp, count, gap)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main(
        {
            "version": lambda: say("version", version("huey")),
            **{verb.__name__: verb for verb in (setup, bulk, pace, work, own)},
        },
        sys.argv[2:],
    )
