"""Prune old runs and ledger rows: real deletes, in bounded batches, never past a cursor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType

from rota.storage.protocol import Storage

BATCH = 500
LEDGER_AGE = timedelta(days=90)
WORKER_AGE = timedelta(hours=1)

RETENTION: Mapping[str, timedelta] = MappingProxyType(
    {
        "succeeded": timedelta(days=7),
        "dead": timedelta(days=30),
        "cancelled": timedelta(days=7),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long ended runs stay; a run also stays while it is among its job's last ones."""

    ages: Mapping[str, timedelta] = field(default_factory=lambda: RETENTION)
    keep_last: int = 50


class Prune:
    def __init__(
        self, storage: Storage, *, retention: Retention | None = None, interval: float = 60.0
    ) -> None:
        self.storage, self.interval = storage, interval
        self.retention = retention or Retention()

    def step(self) -> float:
        """0.0 while there may be more: the next batch comes at once, in its own transaction."""
        deleted = self.prune_once()
        self.storage.forget_old_workers(WORKER_AGE.total_seconds())
        return 0.0 if deleted >= BATCH else self.interval

    def prune_once(self) -> int:
        """One bounded batch; the number of rows of the largest part."""
        counts = [
            self.storage.prune_runs(
                state,
                age_seconds=age.total_seconds(),
                keep_last=self.retention.keep_last,
                limit=BATCH,
            )
            for state, age in self.retention.ages.items()
        ]
        counts.append(
            self.storage.prune_occurrences(age_seconds=LEDGER_AGE.total_seconds(), limit=BATCH)
        )
        return max(counts)
