"""procrastinate: psycopg, batched defers, LISTEN and as many jobs at once as it gains from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from typing import Any

import uvloop
from common import Seen, Timed, gate, main, say, stamp
from procrastinate import App, PsycopgConnector

# The best of 1, 10, 30 and 100 where this was written. Each job waits for statements of its own.
CONCURRENCY = 30
BULK = 5_000


def make_app(url: str) -> App:
    app, seen = App(connector=PsycopgConnector(conninfo=url, max_size=20)), Seen()

    @app.task(name="noop")
    async def noop() -> None:
        seen()

    @app.task(name="stamp")
    async def stamped(sent: float) -> None:
        stamp(sent)

    return app


async def setup(url: str) -> None:
    async with make_app(url).open_async() as app:
        await app.schema_manager.apply_schema_async()


async def bulk(url: str, count: int) -> None:
    async with make_app(url).open_async() as app:
        with Timed():
            for begin in range(0, count, BULK):
                size = min(BULK, count - begin)
                await app.tasks["noop"].batch_defer_async(*[{}] * size)


async def single(url: str, count: int) -> None:
    async with make_app(url).open_async() as app:
        await app.tasks["noop"].defer_async()
        with Timed():
            for _ in range(count):
                await app.tasks["noop"].defer_async()


async def pace(url: str, count: int, gap: float) -> None:
    async with make_app(url).open_async() as app:
        for _ in range(count):
            await app.tasks["stamp"].defer_async(sent=time.time())
            await asyncio.sleep(gap)


async def work(url: str) -> None:
    async with make_app(url).open_async() as app:
        gate()
        await app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)


def on_loop(verb: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    return lambda *told: uvloop.run(verb(*told))


if __name__ == "__main__":
    verbs = {verb.__name__: on_loop(verb) for verb in (setup, bulk, single, pace, work)}
    main({"version": lambda: say("version", version("procrastinate")), **verbs})
