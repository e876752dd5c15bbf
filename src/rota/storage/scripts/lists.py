"""Lists as people search and filter them: jobs, the audit, and queues with what they do.

Every one is a page, or is counted no further than a limit.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from rota.model.job import Job
from rota.model.limits import PAGE
from rota.model.schedule import Schedule
from rota.storage import rows
from rota.storage.engine import Row, Transaction
from rota.storage.scripts.base import Script


class ListsScript(Script):
    def find_jobs(
        self,
        *,
        words: str | None,
        queue: str | None,
        executor: str | None,
        status: str | None,
        after: str,
        limit: int,
    ) -> list[Job]:
        """Jobs whose name or description holds `words`, by name. `status`: enabled, disabled,
        broken or retired; None is all but the retired."""
        # A row that cannot be read is a broken job too, and only reading it tells.
        asked, most = (None, PAGE) if status == "broken" else (status, limit)

        def read(after: str) -> list[Row]:
            return self.engine.read(
                lambda tx: tx.all(
                    "find_jobs",
                    words=words,
                    queue=queue,
                    executor=executor,
                    status=asked,
                    after=after,
                    limit=most,
                )
            )

        found: list[Job] = []
        while True:
            page = read(after)
            found += [job for job in map(rows.job, page) if _has_status(job, status)]
            if len(found) >= limit or len(page) < most:
                return found[:limit]
            after = page[-1]["name"]

    def schedules_of_jobs(
        self, names: Collection[str], *, each: int
    ) -> dict[str, tuple[int, list[Schedule]]]:
        """How many schedules each of the jobs has, and the first `each` of them."""

        def read(tx: Transaction) -> tuple[list[Row], dict[int, Row]]:
            found = tx.all("schedule_ids_of_jobs", names=sorted(names), each=each)
            ids = [row["id"] for row in found]
            there = {row["id"]: row for row in tx.all("schedules_by_id", ids=ids)} if ids else {}
            return found, there

        found, there = self.engine.read(read) if names else ([], {})
        told: dict[str, tuple[int, list[Schedule]]] = {}
        for row in found:
            _, some = told.setdefault(row["job"], (row["schedules"], []))
            if row["id"] in there:
                some.append(rows.schedule(there[row["id"]]))
        return told

    def good_versions(self, names: Collection[str]) -> dict[str, datetime]:
        """When the last good version of each file job was first seen."""
        if not names:
            return {}
        found = self.engine.read(lambda tx: tx.all("good_versions", names=sorted(names)))
        return {row["job"]: row["seen_at"] for row in found}

    def queue_work(self, since_at: datetime, *, depth: int, ended: int) -> Row:
        """By queue: how many runs of each state that has not ended there are, no further than
        `depth`, and how many ended since. That goes back no more than `ended` runs in all; the
        `since_at` of the answer says when the first of them ended."""

        def read(tx: Transaction) -> Row:
            depths = tx.all("queue_depths", depth=depth)
            latest = tx.all("ended_by_queue", since_at=since_at, limit=ended)
            all_of_them = sum(row["runs"] for row in latest) < ended
            return {
                "depths": {(row["queue"], row["state"]): row["runs"] for row in depths},
                "ended": {row["queue"]: row["runs"] for row in latest},
                "since_at": since_at if all_of_them else min(row["first_at"] for row in latest),
            }

        return self.engine.read(read)

    def find_audit(
        self, *, by: str | None, action: str | None, words: str | None, before: int, limit: int
    ) -> list[Row]:
        """What somebody did, or what was done to things whose name or reason holds `words`."""
        return self.engine.read(
            lambda tx: tx.all(
                "find_audit", by=by, action=action, words=words, before=before, limit=limit
            )
        )


def _has_status(job: Job, status: str | None) -> bool:
    match status:
        case "broken":
            return job.error is not None
        case "enabled":
            return job.error is None
        case _:
            return True
