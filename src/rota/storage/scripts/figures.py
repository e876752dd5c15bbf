"""Figures of the store for metrics: counted within limits, in one read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from rota.storage.engine import Transaction
from rota.storage.scripts.base import Script


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """`depths` by queue and state, `oldest_at` of what is queued, the last one of `successes` for
    each job there is."""

    now: datetime
    queues: tuple[str, ...]
    depths: Mapping[tuple[str, str], int]
    oldest_at: Mapping[str, datetime]
    schedules: Mapping[str, int]
    successes: Mapping[str, datetime | None]
    workers: int


class FiguresScript(Script):
    def figures(
        self, *, depth: int, queues: int, jobs: int, recent: int, live_seconds: float
    ) -> Figures:
        """At most `depth` runs of each state are counted, and of each job's latest success the
        `recent` last runs are looked at."""

        def read(tx: Transaction) -> Figures:
            named = tx.tuples("queue_names", limit=queues)
            depths = tx.all("queue_depths", depth=depth)
            oldest = tx.all("oldest_queued")
            statuses = tx.all("schedule_statuses")
            successes = tx.all("last_successes", jobs=jobs, recent=recent)
            (alive,) = tx.all("count_live_workers", live_seconds=live_seconds)
            return Figures(
                now=self._now(tx),
                queues=tuple(name for (name,) in named),
                depths={(row["queue"], row["state"]): row["runs"] for row in depths},
                oldest_at={row["queue"]: row["due_at"] for row in oldest},
                schedules={row["status"]: row["schedules"] for row in statuses},
                successes={row["job"]: row["finished_at"] for row in successes},
                workers=alive["workers"],
            )

        return self.engine.read(read)
