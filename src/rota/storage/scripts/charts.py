"""What charts are drawn from: exact counts in buckets of time, durations, and schedules as sorted.

Counts go down the index of what has ended, from the first instant to the last, and nowhere else.
"""

from __future__ import annotations

from datetime import datetime

from rota.model.schedule import Schedule
from rota.storage import rows
from rota.storage.engine import Row, Transaction
from rota.storage.scripts.base import Script


class ChartsScript(Script):
    def ended_in_buckets(
        self, since_at: datetime, until_at: datetime, *, seconds: float
    ) -> list[Row]:
        """How many runs ended in each bucket, by state."""
        return self.engine.read(
            lambda tx: tx.all(
                "ended_in_buckets", since_at=since_at, until_at=until_at, seconds=seconds
            )
        )

    def ended_by_job_in_buckets(
        self, since_at: datetime, until_at: datetime, *, seconds: float, limit: int
    ) -> list[Row]:
        """The same for each job, with how long its runs took together; so many cells at most."""
        return self.engine.read(
            lambda tx: tx.all(
                "ended_by_job_in_buckets",
                since_at=since_at,
                until_at=until_at,
                seconds=seconds,
                limit=limit,
            )
        )

    def recent_fires(self, *, limit: int) -> list[Row]:
        """When the newest runs were due and when they were made, of those that a schedule made."""
        return self.engine.read(lambda tx: tx.all("recent_fires", limit=limit))

    def durations_of_schedule(self, schedule_id: int, *, limit: int) -> list[Row]:
        """What its latest runs took, the newest first."""
        return self.engine.read(
            lambda tx: tx.all("durations_of_schedule", schedule_id=schedule_id, limit=limit)
        )

    def find_schedules(
        self,
        *,
        words: str | None,
        job: str | None,
        status: str | None,
        sort: str,
        after_key: int,
        after: str,
        limit: int,
    ) -> list[tuple[int, Schedule]]:
        """Schedules whose name or job holds `words`, with the key that they are sorted by."""

        def read(tx: Transaction) -> list[tuple[int, Schedule]]:
            found = tx.all(
                "find_schedules", words=words, job=job, status=status, sort=sort,
                after_key=after_key, after=after, limit=limit,
            )  # fmt: skip
            ids = [row["id"] for row in found]
            there = {row["id"]: row for row in tx.all("schedules_by_id", ids=ids)} if ids else {}
            return [
                (row["sort_key"], rows.schedule(there[row["id"]]))
                for row in found
                if row["id"] in there
            ]

        return self.engine.read(read)
