"""Several producers at once, each a process of its own with its own connection; ids for limits."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
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


def ordered_ids(count: int) -> Iterator[str]:
    """Ids that begin with the time, so that new rows lie together in the index, as Rota's do.

    The rest comes from one read of random bytes: making ids is not what is measured.
    """
    millis, rest = int(time.time() * 1000), os.urandom(8 * count).hex()
    for number in range(count):
        yield f"{millis:012x}{number & 0xFFFF:04x}{rest[16 * number : 16 * number + 16]}"
