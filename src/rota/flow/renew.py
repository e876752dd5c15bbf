"""Renew leases, and hear what was asked of running runs meanwhile.

Renew at a third of the lease: two renewals may fail before another worker may rescue. A worker
that cannot renew stops what it can stop before the lease ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from datetime import timedelta

from rota.flow.run import Execution
from rota.storage.protocol import Storage

LOOK_SECONDS = 1.0


class Renew:
    def __init__(
        self,
        storage: Storage,
        *,
        executions: Callable[[], Collection[Execution]],
        lease: timedelta,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.storage, self.executions, self.lease = storage, executions, lease
        self.monotonic = monotonic
        self.renewed_at = monotonic()

    def step(self) -> float:
        running = {one.run.seq: one for one in self.executions() if not one.finished}
        now = self.monotonic()
        if not running:
            self.renewed_at = now
            return LOOK_SECONDS
        third = self.lease.total_seconds() / 3
        if now - self.renewed_at >= third - LOOK_SECONDS:
            self._renew(running, now)
        else:
            for seq in self.storage.cancel_requests(list(running)):
                running[seq].stop("cancelled")
        return min(LOOK_SECONDS, third)

    def _renew(self, running: dict[int, Execution], now: float) -> None:
        try:
            answers = self.storage.renew(
                [(seq, one.run.attempt) for seq, one in running.items()], self.lease
            )
        except Exception:
            # The margin is a fifth of the lease: time to end handlers before others may begin.
            if now - self.renewed_at > self.lease.total_seconds() * 0.8:
                for one in running.values():
                    one.stop("lost")
            raise
        self.renewed_at = now
        kept = {answer.seq: answer for answer in answers}
        for seq, one in running.items():
            if seq not in kept and not one.finished:
                one.stop("lost")
            elif seq in kept and kept[seq].cancel_requested:
                one.stop("cancelled")
