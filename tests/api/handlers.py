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


def keep(ctx: rota.Context) -> dict[str, object]:
    """A file's whole life, from any kind of process."""
    data = bytes(range(256)) * 4_000
    made = ctx.storage.put("report.csv", data, ttl="1d")
    other = ctx.storage.put("notes", "für alle")
    page = ctx.storage.list("rep", limit=1)
    return {
        "same": ctx.storage.read(made.id) == data and ctx.storage.get(made.id) == made,
        "types": [made.content_type, other.content_type],
        "by": [made.job, made.run_id == ctx.run_id],
        "kept_for": (made.until - made.created_at).total_seconds() if made.until else None,
        "page": page == [made] and ctx.storage.list("rep", after=made) == [],
        "deleted": [ctx.storage.delete(made.id), ctx.storage.delete(made.id)],
        "gone": ctx.storage.get(made.id),
        "other": other.id,
    }


async def keep_async(ctx: rota.Context) -> dict[str, object]:
    return keep(ctx)


def keep_too_much(ctx: rota.Context) -> None:
    ctx.storage.put("huge", b"x" * (8 * 1024 * 1024 + 1))


def read_nothing(ctx: rota.Context) -> None:
    ctx.storage.read("nothing")


def current_span() -> dict[str, str]:
    """Which span this is inside of, and one of its own."""
    from opentelemetry import trace

    told = trace.get_current_span().get_span_context()
    return {"trace": f"{told.trace_id:032x}", "span": f"{told.span_id:016x}"}
