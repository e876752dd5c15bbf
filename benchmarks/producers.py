"""Several producers at once, each a process of its own with its own connection."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier

# Gets ready in the producer's process; what it returns enqueues so many, a transaction each.
Prepare = Callable[[], Callable[[int], None]]


def together(prepare: Prepare, count: int, producers: int) -> float:
    """Seconds from the moment all are ready until the last one is done."""
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(producers + 1)
    share = count // producers
    children = [
        fork.Process(target=_produce, args=(prepare, barrier, share)) for _ in range(producers)
    ]
    for child in children:
        child.start()
    barrier.wait(60)
    began = time.perf_counter()
    barrier.wait(600)
    took = time.perf_counter() - began
    for child in children:
        child.join()
    return took


def _produce(prepare: Prepare, barrier: Barrier, share: int) -> None:
    try:
        enqueue = prepare()
        barrier.wait(60)
        enqueue(share)
        barrier.wait(600)
    except BaseException:
        barrier.abort()
        raise
