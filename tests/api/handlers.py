"""Handlers that run in child processes, which find them by their address."""

from __future__ import annotations

import os
import time

import rota


def pid(ctx: rota.Context) -> int:
    return os.getpid()


def hang(ctx: rota.Context) -> None:
    ctx.progress(1)
    time.sleep(600)


def tell(ctx: rota.Context, lock: str) -> dict[str, object]:
    """Everything a handler may ask for, from another process."""
    print("printed")
    ctx.logger.warning("logged %d", 5)
    ctx.progress(3, 4)
    with ctx.lock(lock) as held:
        held.extend("1m")
    row = ctx.db.execute("SELECT 1 + 1").fetchone()
    return {"job": ctx.job, "attempt": ctx.attempt, "args": ctx.args, "two": row[0]}
