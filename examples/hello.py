"""Small jobs to watch, beside those of jobs.d: rota up hello:app

In another terminal: rota runs, rota show flaky, rota pause heartbeat, rota enqueue greet.
"""

from __future__ import annotations

import asyncio
import random

import rota

app = rota.Rota()  # sqlite:///rota.db, unless rota.toml or ROTA_DATABASE says otherwise


@app.job(every="2s")
def heartbeat(ctx: rota.Context) -> None:
    """Says that it is alive, every two seconds."""
    ctx.logger.info("still here; this one was due at %s", f"{ctx.scheduled_at:%H:%M:%S} UTC")


@app.job(every="5s")
async def ticker(ctx: rota.Context) -> dict[str, float]:
    """Waits a little without taking a thread, and returns a result."""
    price = round(random.uniform(99, 101), 2)
    await asyncio.sleep(0.3)
    ctx.logger.info("the price is %s", price)
    return {"price": price}


@app.job(every="7s", max_attempts=3, delay="1s")
def flaky(ctx: rota.Context) -> None:
    """Fails every other time, and is tried again."""
    if random.random() < 0.5:
        raise ConnectionError("the other side hung up")
    ctx.logger.info("it worked at attempt %d", ctx.attempt)


@app.job(schedule="* * * * *")
def minutely(ctx: rota.Context) -> None:
    """Runs at the beginning of every minute."""
    for step in range(1, 4):
        ctx.progress(step, 3)
        ctx.logger.info("step %d of 3", step)
        if ctx.wait(0.5):
            return


@app.job
def greet(name: str = "world") -> str:
    """Runs when asked: rota enqueue greet --arg name=Ada --wait"""
    return f"Hello, {name}!"


if __name__ == "__main__":
    app.run()
