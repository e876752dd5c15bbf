"""Rescue runs whose worker is gone. Any process may; the settle checks the lease once more.

A lost lease counts in `lost`, not in `failures`: the run is dead after `max_lost` of them.
"""

from __future__ import annotations

from collections.abc import Callable

from rota.flow.settle import Settler
from rota.model.outcome import Outcome
from rota.model.run import Claimed
from rota.storage.protocol import Storage

BATCH = 200
SWEEP_EVERY = 30
SWEEP_LIMIT = 1_000


class Rescue:
    def __init__(
        self,
        storage: Storage,
        settler: Settler,
        *,
        rescued: Callable[[], None],
        interval: float = 1.0,
    ) -> None:
        self.storage, self.settler = storage, settler
        self.rescued, self.interval = rescued, interval
        self.steps = 0

    def step(self) -> float:
        expired = self.storage.expired_runs(BATCH)
        if expired:
            self.settler.settle_now([self._lost(run) for run in expired])
            self.rescued()
        self.steps += 1
        if self.steps % SWEEP_EVERY == 0:
            self.storage.sweep(SWEEP_LIMIT)
        return 0.0 if len(expired) == BATCH else self.interval

    def _lost(self, run: Claimed) -> tuple[Claimed, Outcome]:
        return run, Outcome(kind="lost", error=f"attempt {run.attempt}: its worker was lost")
