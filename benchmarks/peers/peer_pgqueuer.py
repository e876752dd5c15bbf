"""pgqueuer: asyncpg and uvloop, as its documentation recommends, and large batches."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version

import asyncpg
import uvloop
from common import Seen, Timed, gate, main, say, stamp
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

# The best of 100, 250, 500, 1000 and 2000, and of 1000 to 50,000, where this was written.
BATCH = 500
BULK = 5_000


async def setup(url: str) -> None:
    await Queries(AsyncpgDriver(await asyncpg.connect(url))).install()


async def bulk(url: str, count: int) -> None:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    with Timed():
        for begin in range(0, count, BULK):
            size = min(BULK, count - begin)
            await queries.enqueue(["noop"] * size, [None] * size, [0] * size)


async def single(url: str, count: int) -> None:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    await queries.enqueue("noop", None)
    with Timed():
        for _ in range(count):
            await queries.enqueue("noop", None)


async def pace(url: str, count: int, gap: float) -> None:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    for _ in range(count):
        await queries.enqueue("stamp", repr(time.time()).encode())
        await asyncio.sleep(gap)


async def work(url: str) -> None:
    queuer, seen = PgQueuer(AsyncpgDriver(await asyncpg.connect(url))), Seen()

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        seen()

    @queuer.entrypoint("stamp")
    async def stamped(job: Job) -> None:
        assert job.payload is not None
        stamp(float(job.payload))

    gate()
    await queuer.run(batch_size=BATCH)


def on_loop(verb):  # type: ignore[no-untyped-def]
    return lambda *told: uvloop.run(verb(*told))


if __name__ == "__main__":
    verbs = {verb.__name__: on_loop(verb) for verb in (setup, bulk, single, pace, work)}
    main({"version": lambda: say("version", version("pgqueuer")), **verbs})
