"""SQL jobs that a statement made: they are in no program and in no folder, so every worker that can
run SQL learns of them from here.

Such a job belongs to the schedule of its name: both come and go in one transaction. A dropped one
stays, retired, as long as a run of it has not ended: drop never touches runs that are made.
"""

from __future__ import annotations

import uuid

from rota.errors import Conflict, Outdated
from rota.model.job import RETIRED, Job
from rota.model.limits import SHARED_JOBS
from rota.model.schedule import Schedule
from rota.storage import rows
from rota.storage.engine import Row, Transaction
from rota.storage.operation import only_if
from rota.storage.operations.audit import Actor, audit
from rota.storage.operations.installation import meta
from rota.storage.operations.schedules import drop_one, put_one_schedule, schedule_named

# A key of `meta` that changes with these jobs: to look for news is to read one row.
MARK = "shared_jobs"


def put_schedule(
    tx: Transaction,
    wanted: Schedule,
    actor: Actor,
    job: Job | None = None,
    *,
    new: bool = False,
    version: str | None = None,
    job_version: str | None = None,
) -> Schedule:
    """Create or edit by name, with the SQL job of that name if one is given. `new` refuses a
    schedule that is there, `version` one that is not as it was when it had this version, and
    `job_version` its job likewise."""
    if version is not None:
        now = schedule_named(tx, wanted.name, "lock_schedule")
        _refuse_outdated(f"schedule {wanted.name!r}", now.version, version)
    if new and tx.one("lock_schedule", name=wanted.name) is not None:
        raise Conflict(
            f"schedule {wanted.name!r} exists already; alter it, drop it, or create it "
            "IF NOT EXISTS"
        )
    if job is not None:
        _put_shared_job(tx, job, actor, job_version)
    return put_one_schedule(tx, wanted, actor)


def _put_shared_job(tx: Transaction, job: Job, actor: Actor, version: str | None) -> None:
    row = tx.one("lock_job", name=job.name)
    if row is not None and not _is_shared(row):
        raise Conflict(
            f"job {job.name!r} exists already, and is not of this kind ({row['source']}, "
            f"{row['executor']}); give the schedule another name, or make it FOR JOB {job.name}"
        )
    if version is not None:
        now = None if row is None else rows.job(row).version
        _refuse_outdated(f"the SQL job of schedule {job.name!r}", now, version)
    others = tx.all("list_schedules", after="", job=job.name, limit=2)
    if foreign := [one["name"] for one in others if one["name"] != job.name]:
        raise Conflict(
            f"job {job.name!r} is used by schedule {foreign[0]!r} too; give this schedule "
            "another name"
        )
    tx.many("insert_queues", [{"name": job.queue}])
    tx.many("put_jobs", [rows.job_row(job)])
    before = None if row is None else row["spec"]
    audit(tx, actor, "put_job", job.name, None, before, rows.to_json(job.spec))
    _tell(tx)


def drop_schedule(tx: Transaction, name: str, reason: str | None, actor: Actor) -> None:
    """Remove the schedule, and a SQL job of its own; ledger, changes and runs stay."""
    old = drop_one(tx, name, reason, actor)
    row = tx.one("lock_job", name=old.job)
    if row is None or not _is_shared(row) or old.job != old.name:
        return
    if tx.all("list_schedules", after="", job=old.job, limit=1):
        return  # somebody else's schedule makes runs of it
    if tx.one("unfinished_run", job=old.job) is None:
        tx.all("delete_shared_job", name=old.job)
    else:
        error = f"{RETIRED}its schedule was dropped"
        tx.all("retire_shared_job", name=old.job, error=error)
    audit(tx, actor, "drop_job", old.job, reason, row["spec"])
    _tell(tx)


def _tell(tx: Transaction) -> None:
    tx.all("set_meta", key=MARK, value=uuid.uuid4().hex)


def shared_jobs(tx: Transaction, known: str | None) -> tuple[str, list[Job]] | None:
    """(mark, jobs), also those that are retired; None while the mark is the known one."""

    mark = meta(tx).get(MARK, "")
    if mark == known:
        return None
    return mark, list(rows.jobs(tx.all("shared_jobs", limit=SHARED_JOBS)).values())


def ended_shared_jobs(tx: Transaction, *, limit: int) -> list[str]:
    """The names of dropped jobs whose last run has ended."""
    dropped = [row["name"] for row in tx.all("retired_shared_jobs", limit=limit)]
    return [name for name in dropped if tx.one("unfinished_run", job=name) is None]


@only_if(ended_shared_jobs, nothing=0)
def prune_shared_jobs(tx: Transaction, *, limit: int) -> int:
    """Delete dropped jobs whose last run has ended; how many."""
    ended = ended_shared_jobs(tx, limit=limit)
    for name in ended:
        tx.all("delete_shared_job", name=name)
    if ended:
        _tell(tx)
    return len(ended)


def _refuse_outdated(what: str, now: str | None, read: str) -> None:
    if now != read:
        raise Outdated(
            f"{what} was changed since you read it: it has version {now}, and yours is {read}; "
            "read it again"
        )


def _is_shared(row: Row) -> bool:
    return (row["source"], row["executor"]) == ("api", "sql")
