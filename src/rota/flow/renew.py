"""Renew leases, and hear what was asked of running runs meanwhile.

Renew at a third of the lease: two renewals may fail before another worker may rescue. A worker
that cannot renew stops what it can stop before the lease ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from rota.flow.run import Execution
from rota.storage import operations
from rota.storage.store import Store

LOOK_SECONDS = 1.0
BLOCKED_SECONDS = 3.0


class Renew:
    def __init__(
        self,
        store: Store,
        *,
        executions: Callable[[], Collection[Execution]],
        unwritten: Callable[[], Sequence[tuple[int, int]]] = lambda: (),
        lease: timedelta,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store, self.executions, self.lease = store, executions, lease
        self._young_seconds = lease.total_seconds() * 0.8
        self.unwritten = unwritten
        self.monotonic = monotonic
        self.renewed_at = monotonic()  # the last time that all was renewed, or nothing was ours
        self.awake_at = float("inf")  # when this process was last seen to go on
        self.woke_at = float("-inf")  # the end of its last sleep

    def step(self) -> float:
        running = {one.run.seq: one for one in self.executions() if not one.finished}
        now = self.monotonic()
        unwritten = self.unwritten()
        third = self.lease.total_seconds() / 3
        if not running and not unwritten:
            self.renewed_at = now
            return min(LOOK_SECONDS, third)
        # An answer to a claim may have come late, and its leases are as old as the question.
        oldest = min([self.renewed_at, *(one.leased_at for one in running.values())])
        if now - oldest >= third - LOOK_SECONDS:
            self._renew(running, unwritten, now)
        else:
            for seq in self.store.read(operations.cancel_requests, list(running)):
                running[seq].stop("cancelled")
        return min(LOOK_SECONDS, third)

    def _renew(
        self, running: dict[int, Execution], unwritten: Sequence[tuple[int, int]], now: float
    ) -> None:
        # An outcome that is not written yet is still ours: its run must not be done again.
        pairs = [*((seq, one.run.attempt) for seq, one in running.items()), *unwritten]
        kept = {
            answer.seq: answer for answer in self.store.write(operations.renew, pairs, self.lease)
        }
        self.renewed_at = now  # from before the call: the leases are at least this young
        for seq, one in running.items():
            if seq not in kept:
                one.stop("lost")
                continue
            if kept[seq].renewed:  # else it is tried again at the next look
                one.leased_at = max(one.leased_at, now)
            if kept[seq].cancel_requested:
                one.stop("cancelled")

    def runs_out(self, leased_at: float) -> bool:
        """True when a lease may soon run out that was claimed or renewed then. The margin, a fifth
        of the lease, is the time to end handlers before other workers may begin."""
        return self.monotonic() - leased_at > self._young_seconds

    def overdue(self, leased_at: float) -> bool:
        """Whether a handler must be stopped for that. Asks no database: it may be what is away."""
        if not self.runs_out(leased_at):
            return False
        now = self.monotonic()
        # While one writer holds the whole store nobody can rescue: nothing has to be stopped. But
        # a process that stood still cannot tell a store that was busy from its own sleep.
        slept = self._sleeps(now) or leased_at < self.woke_at
        return slept or not self.store.blocked_within(BLOCKED_SECONDS)

    def awake(self) -> None:
        """Called each second, by a loop that waits for no database."""
        now = self.monotonic()
        if self._sleeps(now):
            self.woke_at = now
        self.awake_at = now

    def _sleeps(self, now: float) -> bool:
        """Whether this process has not gone on for too long."""
        return now - self.awake_at > LOOK_SECONDS + self.lease.total_seconds() / 10
