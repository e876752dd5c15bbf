"""Which workers are there: one seen lately is alive, one without slots takes nothing more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

LIVE = timedelta(seconds=30)  # six heartbeats

Worker = Mapping[str, Any]


def is_alive(worker: Worker, now: datetime) -> bool:
    """Whether it said so lately. Its row stays for an hour after it was killed."""
    return bool(now - worker["seen_at"] <= LIVE)


def is_stopping(worker: Worker) -> bool:
    """It ends the runs that it has, and takes no other."""
    return bool(worker["slots"] == 0)


def taking(workers: Iterable[dict[str, Any]], now: datetime) -> list[dict[str, Any]]:
    """Those that run what comes."""
    return [one for one in workers if is_alive(one, now) and not is_stopping(one)]


def serves(worker: Worker, queue: str) -> bool:
    """True if a worker takes runs of this queue."""
    return not worker["queues"] or queue in worker["queues"]


def why_none(workers: Iterable[Worker], now: datetime) -> str:
    """Of workers of which none is taking."""
    stopping = sum(is_alive(one, now) for one in workers)
    if not stopping:
        return "no worker is alive"
    return f"no worker takes runs: {stopping} {'is' if stopping == 1 else 'are'} stopping"


def state_of(worker: Worker, now: datetime) -> str:
    if not is_alive(worker, now):
        return "lost"
    return "stopping" if is_stopping(worker) else "alive"
