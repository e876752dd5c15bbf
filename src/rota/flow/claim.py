"""Claim runs for free slots, in batches, and hand them to the worker.

One claim at a time: what is given back after an answer that was lost is told from what is ours by
what the worker holds, and a claim beside it would not be among that yet.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from rota.model.run import ClaimedRun
from rota.storage import operations
from rota.storage.operations.claiming import ClaimRequest
from rota.storage.operations.firing import Fired
from rota.storage.store import Store

BATCH = 3_000
# Of arguments in one claim, as far as those of the last one tell.
CLAIM_BYTES = 32_000_000


class Claim:
    """`free` tells how many runs the worker can take now; `take` is given what was claimed."""

    def __init__(
        self,
        store: Store,
        worker_id: str,
        *,
        queues: Sequence[str],
        jobs: Callable[[], Sequence[str]],
        free: Callable[[], int],
        held: Callable[[], Collection[int]],
        take: Callable[[list[ClaimedRun]], None],
        take_fired: Callable[[list[ClaimedRun]], None],
        lease: timedelta,
        interval: float = 1.0,
    ) -> None:
        self.store, self.worker_id, self.queues, self.jobs = store, worker_id, queues, jobs
        self.free, self.held, self.take, self.take_fired = free, held, take, take_fired
        self.lease, self.interval = lease, interval
        self._fitting = BATCH  # into CLAIM_BYTES
        self.uncertain = False
        self.asked_at = 0.0
        self._turn = threading.Lock()
        self._waits = False  # the loop, for the claim of a fire to end

    def step(self) -> float:
        self._waits = True  # before it is tried: who has it now looks when it is given back
        if not self._turn.acquire(blocking=False):
            return self.interval  # woken when it ends
        try:
            self._waits = False
            return self._step()
        finally:
            self._turn.release()

    def with_fire(
        self, most: int, fire: Callable[[ClaimRequest | None], Fired], wake: Callable[[], None]
    ) -> Fired:
        """Let a fire of up to `most` runs claim in its own transaction. It goes alone while the
        loop claims, and where there is no room for all of them; `wake` is for the loop."""
        alone = self.uncertain or not 0 < most <= self.free()
        if alone or not self._turn.acquire(blocking=False):
            return fire(None)
        try:
            return self._with_fire(most, fire)
        finally:
            self._turn.release()
            if self._waits or self.uncertain:
                wake()

    def _with_fire(self, most: int, fire: Callable[[ClaimRequest | None], Fired]) -> Fired:
        claimant = ClaimRequest(
            worker_id=self.worker_id,
            queues=self.queues,
            jobs=self.jobs(),
            limit=most,
            lease=self.lease,
        )
        self.asked_at = time.monotonic()
        try:
            fired = fire(claimant)
        except Exception:
            self.uncertain = True  # as after any claim
            raise
        if fired.claimed:
            self.take_fired(list(fired.claimed))
        return fired

    def _step(self) -> float:
        if self.uncertain:
            # A claim whose answer was lost may have made runs ours: give them back, uncounted.
            self.store.write(operations.release_forgotten_runs, self.worker_id, self.held())
            self.uncertain = False
        limit = min(self.free(), BATCH, self._fitting)
        claimed = self._claim(limit) if limit > 0 else []
        if claimed:
            mean_bytes = 1 + sum([len(run.args) for run in claimed]) // len(claimed)
            self._fitting = max(1, CLAIM_BYTES // mean_bytes)
            self.take(claimed)
        # Where there was no room this is woken when a slot becomes free.
        return 0.0 if 0 < len(claimed) == limit else self.interval

    def _claim(self, limit: int) -> list[ClaimedRun]:
        self.asked_at = time.monotonic()  # before: the leases are at least this young
        try:
            return self.store.write(
                operations.claim,
                self.worker_id,
                queues=self.queues,
                jobs=self.jobs(),
                limit=limit,
                lease=self.lease,
            )
        except Exception:
            self.uncertain = True  # whatever happened, runs may be ours that nobody holds
            raise
