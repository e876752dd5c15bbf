"""Lists as people search them: jobs with their schedules, queues with what they do, the audit, and
the dead runs of one error.

A part of Control. Every one is a page, or says how far it was counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from rota.errors import Invalid
from rota.flow.look import DEAD_LOOKED, group_of
from rota.model.job import Job
from rota.model.limits import METRIC_DEPTH, PAGE, check_whole
from rota.model.redact import redact_columns, redact_schedule
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.store import AnyStore

JOB_STATUSES = ("enabled", "disabled", "broken", "retired")
OPEN = ("queued", "running", "held", "waiting", "paused")
MINUTE = timedelta(minutes=1)
RATE_SPAN = 5 * MINUTE
RATE_RUNS = 3_000  # looked at for a rate, of all queues together; more would keep a screen waiting
SHORTEST_SPAN = timedelta(seconds=1)
SCHEDULES_OF_ONE = 3


class ListsControl:
    store: AnyStore

    def find_jobs(
        self,
        *,
        words: str | None = None,
        queue: str | None = None,
        executor: str | None = None,
        status: str | None = None,
        after: str = "",
        limit: int = PAGE,
    ) -> list[Job]:
        """Jobs whose name or description holds the words, by name. Those that are retired have a
        history and no future, and are found by that status alone."""
        if status is not None and status not in JOB_STATUSES:
            raise Invalid(f"status {status!r} is unknown; use {', '.join(JOB_STATUSES)}")
        return self.store.read(
            operations.find_jobs,
            words=words.lower() if words else None,
            queue=queue,
            executor=executor,
            status=status,
            after=after,
            limit=check_whole(limit, "limit", 1, PAGE),
        )

    def schedules_of(self, jobs: Iterable[Job]) -> dict[str, tuple[int, list[Schedule]]]:
        """How many schedules each job has, and the first few of them, by the job's name."""
        names = [job.name for job in jobs][:PAGE]
        found = self.store.read(operations.schedules_of_jobs, names, each=SCHEDULES_OF_ONE)
        return {
            job: (count, [redact_schedule(one) for one in some])
            for job, (count, some) in found.items()
        }

    def good_since(self, jobs: Iterable[Job]) -> dict[str, datetime | None]:
        """Since when there is the version that runs, by the job's name: of a broken job the last
        good one. None if none was ever good."""
        jobs = list(jobs)[:PAGE]
        seen = self.store.read(
            operations.good_versions, [job.name for job in jobs if job.error and job.was_valid]
        )
        return {job.name: seen.get(job.name) if job.error else job.version_at for job in jobs}

    def queue_work(self, *, after: str = "", limit: int = PAGE) -> list[dict[str, Any]]:
        """Queues by name, each with how many runs it has in each state, and how many ended a
        minute. Of the states in `capped` it may have more."""
        check_whole(limit, "limit", 1, PAGE)
        now = self.store.now()
        work = self.store.read(
            operations.queue_work, now - RATE_SPAN, depth=METRIC_DEPTH, ended=RATE_RUNS
        )
        span = max(now - work["since_at"], SHORTEST_SPAN)
        # Those queued are counted queue by queue, the others for all queues together.
        counted = Counter[str]()
        for (_, state), runs in work["depths"].items():
            counted[state] += runs
        full = {state for state in OPEN if state != "queued" and counted[state] >= METRIC_DEPTH}
        return [
            {
                **queue,
                "depths": {state: work["depths"].get((queue["name"], state), 0) for state in OPEN}
                | {"queued": queue["queued"]},
                "capped": sorted(full | ({"queued"} if queue["queued"] >= METRIC_DEPTH else set())),
                "ended_per_minute": work["ended"].get(queue["name"], 0) / (span / MINUTE),
            }
            for queue in self.store.read(operations.list_queues, after=after, limit=limit)
        ]

    def find_audit(
        self,
        *,
        by: str | None = None,
        action: str | None = None,
        words: str | None = None,
        before: int | None = None,
        limit: int = PAGE,
    ) -> list[dict[str, Any]]:
        """What was done, newest first; `words` are looked for in the thing and the reason."""
        found = self.store.read(
            operations.find_audit,
            by=by,
            action=action,
            words=words.lower() if words else None,
            before=2**62 if before is None else before,
            limit=check_whole(limit, "limit", 1, PAGE),
        )
        return [redact_columns(row, "before", "after") for row in found]

    def dead_runs(
        self, group: str, *, before: int | None = None, limit: int = 50
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Dead runs of one of `dead_groups`, newest first: (page, what asks for the next one). A
        page may be short while there is a next one: so many are looked at and no more."""
        check_whole(limit, "limit", 1, PAGE)
        found: list[dict[str, Any]] = []
        last, looked = 2**62 if before is None else before, 0
        while looked < DEAD_LOOKED:
            page = self.store.read(operations.list_dead_runs, before=last, limit=PAGE)
            looked += len(page)
            for row in page:
                last = row.pop("seq")
                if group_of(row["job"], row["error"]) == group:
                    found.append(redact_columns(row, "error"))
                    if len(found) == limit:
                        return found, last
            if len(page) < PAGE:
                return found, None
        return found, last
