"""Rescue runs whose worker is gone. Any process may; the settle checks the lease once more.

A lost lease counts in `lost`, not in `failures`: the run is dead after `max_lost` of them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from rota.flow.settle import Settler
from rota.model.clock import ClockGuard
from rota.model.outcome import Outcome
from rota.model.run import ClaimedRun
from rota.storage import operations
from rota.storage.store import Store

BATCH = 200
SWEEP_EVERY = 30
SWEEP_LIMIT = 1_000


class Rescue:
    """`rescued` is told when runs or schedules may go on by it. `monotonic` lets it doubt a clock
    that jumped: then living workers renew first."""

    def __init__(
        self,
        store: Store,
        settler: Settler,
        *,
        rescued: Callable[[], None],
        lease: timedelta = timedelta(0),
        monotonic: Callable[[], float] | None = None,
        interval: float = 1.0,
    ) -> None:
        self.store, self.settler = store, settler
        self.rescued, self.interval = rescued, interval
        self.lease_seconds, self.monotonic = lease.total_seconds(), monotonic
        self.guard = ClockGuard()
        self.quiet_until = float("-inf")
        self.left: list[int] = []  # runs that only a process with their executor can end
        self.held: list[int] = []  # runs that a stranger's transaction holds, in this round
        self.steps = 0
        self.swept = 0  # the last owner of a slot that was looked at

    def step(self) -> float:
        self.steps += 1
        if self.steps % SWEEP_EVERY == 0:
            freed, self.swept = self.store.write(operations.sweep, self.swept, limit=SWEEP_LIMIT)
            if freed:
                self.rescued()
            self.left.clear()
        if self._must_wait():
            return self.interval
        expired = self.store.read(operations.expired_runs, BATCH, [*self.left, *self.held])
        if expired:
            left, held = self.settler.settle_now([self._lost(run) for run in expired])
            self.left += left
            self.held += held
            if len(left) + len(held) < len(expired):
                self.rescued()
        if len(expired) == BATCH:
            return 0.0
        self.held.clear()  # all others had their turn: it is looked at again
        return self.interval

    def _must_wait(self) -> bool:
        """After a jump of the clock, or a write that was blocked for long, every lease looks
        expired: one lease of patience lets those who live renew theirs."""
        if self.monotonic is None:
            return False
        now = self.monotonic()
        blocked = self.store.blocked_within(self.lease_seconds)
        if blocked or not self.guard.accepts(self.store.now(), now):
            self.quiet_until = now + self.lease_seconds
        return now < self.quiet_until

    def _lost(self, run: ClaimedRun) -> tuple[ClaimedRun, Outcome]:
        return run, Outcome(kind="lost", error=f"attempt {run.attempt}: its worker was lost")
