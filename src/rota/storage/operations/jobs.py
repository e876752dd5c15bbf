"""Jobs as rows: put, found by name, searched and listed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rota.model.job import Job
from rota.model.limits import PAGE
from rota.storage import rows
from rota.storage.engine import Row, Transaction


def put_jobs(tx: Transaction, jobs: Sequence[Job]) -> None:
    """Make definitions known to every process. The same version changes nothing."""
    ordered = sorted(jobs, key=lambda job: job.name)
    tx.many("put_jobs", [rows.job_row(job) for job in ordered])
    queues = sorted({job.queue for job in jobs})
    tx.many("insert_queues", [{"name": queue} for queue in queues])


def jobs_named(tx: Transaction, names: Collection[str]) -> dict[str, Job]:
    return rows.jobs(tx.all("jobs_named", names=sorted(names)))


def list_jobs(tx: Transaction, *, after: str = "", limit: int) -> list[Job]:
    found = tx.all("list_jobs", after=after, limit=limit)
    return [rows.job(row) for row in found]


def find_jobs(
    tx: Transaction,
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
        return tx.all(
            "find_jobs",
            words=words,
            queue=queue,
            executor=executor,
            status=asked,
            after=after,
            limit=most,
        )

    found: list[Job] = []
    while True:
        page = read(after)
        found += [job for job in map(rows.job, page) if _has_status(job, status)]
        if len(found) >= limit or len(page) < most:
            return found[:limit]
        after = page[-1]["name"]


def _has_status(job: Job, status: str | None) -> bool:
    match status:
        case "broken":
            return job.error is not None
        case "enabled":
            return job.error is None
        case _:
            return True
