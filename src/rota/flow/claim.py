"""Claim runs for free slots, in batches, and hand them to the worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from rota.model.run import Claimed
from rota.storage.protocol import Storage

BATCH = 1_000


class Claim:
    """`free` tells how many runs the worker can take now; `take` is given what was claimed."""

    def __init__(
        self,
        storage: Storage,
        worker_id: str,
        *,
        queues: Sequence[str],
        jobs: Callable[[], Sequence[str]],
        free: Callable[[], int],
        held: Callable[[], Collection[int]],
        take: Callable[[list[Claimed]], None],
        lease: timedelta,
        interval: float = 1.0,
    ) -> None:
        self.storage, self.worker_id, self.queues, self.jobs = storage, worker_id, queues, jobs
        self.free, self.held, self.take = free, held, take
        self.lease, self.interval = lease, interval
        self.uncertain = False
        self.asked_at = 0.0

    def step(self) -> float:
        if self.uncertain:
            # A claim whose answer was lost may have made runs ours: give them back, uncounted.
            self.storage.let_go_unknown(self.worker_id, self.held())
            self.uncertain = False
        limit = min(self.free(), BATCH)
        if limit <= 0:
            return self.interval  # woken when a slot becomes free
        self.asked_at = time.monotonic()  # before: the leases are at least this young
        try:
            claimed = self.storage.claim(
                self.worker_id, queues=self.queues, jobs=self.jobs(), limit=limit, lease=self.lease
            )
        except Exception:
            self.uncertain = True  # whatever happened, runs may be ours that nobody holds
            raise
        if claimed:
            self.take(claimed)
        return 0.0 if len(claimed) == limit else self.interval
