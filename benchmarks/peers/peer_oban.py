"""oban for Python: bulk inserts, LISTEN, and as many jobs at once as it gains from."""

from __future__ import annotations

import asyncio
import platform
import sys
import time
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from typing import Any

if sys.version_info < (3, 12):
    sys.exit("Error: oban needs Python 3.12: make bench OBAN_PYTHON=path/to/python3.12")

import uvloop
from common import Seen, Timed, gate, main, say, stamp
from oban import Oban, job
from oban.schema import install

# The best of 10, 50, 100 and 500 where this was written.
LIMIT = 100
BULK = 1_000
seen = Seen()


@job(queue="default")
async def noop() -> None:
    seen()


@job(queue="default")
async def stamped(sent: float) -> None:
    stamp(sent)


async def setup(url: str) -> None:
    pool = await Oban.create_pool(url)
    await install(pool)
    await pool.close()


async def bulk(url: str, count: int) -> None:
    async with Oban(pool=await Oban.create_pool(url)) as oban:
        with Timed():
            for begin in range(0, count, BULK):
                size = min(BULK, count - begin)
                await oban.enqueue_many([noop.new() for _ in range(size)])


async def single(url: str, count: int) -> None:
    async with Oban(pool=await Oban.create_pool(url)) as oban:
        await oban.enqueue(noop.new())
        with Timed():
            for _ in range(count):
                await oban.enqueue(noop.new())


async def pace(url: str, count: int, gap: float) -> None:
    async with Oban(pool=await Oban.create_pool(url)) as oban:
        for _ in range(count):
            await oban.enqueue(stamped.new(time.time()))
            await asyncio.sleep(gap)


async def work(url: str) -> None:
    pool = await Oban.create_pool(url)
    gate()
    async with Oban(pool=pool, queues={"default": LIMIT}):
        await asyncio.Event().wait()


def on_loop(verb: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    return lambda *told: uvloop.run(verb(*told))


if __name__ == "__main__":
    verbs = {verb.__name__: on_loop(verb) for verb in (setup, bulk, single, pace, work)}
    told = f"{version('oban')}, on Python {platform.python_version()}"
    main({"version": lambda: say("version", told), **verbs})
