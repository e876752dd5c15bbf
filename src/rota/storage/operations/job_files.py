"""Jobs that come from files: of two versions the later one is the job, and one that is gone from
every folder is retired, with its history kept.

Each definition is put under a savepoint: one that is refused concerns no other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from rota.errors import Conflict, Invalid
from rota.model.job import RETIRED, Job
from rota.model.schedule import Schedule
from rota.storage import rows
from rota.storage.engine import Row, Transaction
from rota.storage.operation import only_if

if TYPE_CHECKING:
    from rota.model.definition import Definition, Registered
from rota.storage.operations.audit import Actor, record_change
from rota.storage.operations.installation import meta, read_clock
from rota.storage.operations.schedules import insert_schedules, planned, register_one

# How many versions of a job are remembered, and how many workers are asked what they know.
VERSIONS = 100


WORKERS = 1_000


# A key of `meta` for each target whose scripts wait, and what it says.
SCRIPTS, OWED, TAKEN = "scripts of ", "owed", "taken"


def put_definitions(
    tx: Transaction,
    definitions: Sequence[Definition],
    actor: Actor,
    *,
    changed: Collection[str],
    live_seconds: float,
) -> dict[str, str]:
    """Make definitions known; why, for each that was refused.

    `changed` names those whose files were seen to change: they are the newest there is. The
    others are as new as their version was when it was first seen, and may have to stand back
    behind a later one, which is no refusal."""
    live = _live_workers(tx, live_seconds)
    queues = sorted({one.job.queue for one in definitions})
    tx.many("insert_queues", [{"name": queue} for queue in queues])
    changes, new = _what_differs(tx, definitions)
    refused = _create(tx, new, actor, changed)
    for one in changes:
        try:
            with tx.savepoint():
                _put_definition(tx, one, actor, one.name in changed, live)
        except (Invalid, Conflict) as fault:
            refused[one.name] = str(fault)
    return refused


def _what_differs(
    tx: Transaction, definitions: Sequence[Definition]
) -> tuple[list[Definition], list[Definition]]:
    """Those to be compared with what the store has, and those of which it has nothing. What
    is there as it should be is in neither: most of a large folder, at most times."""
    names = [one.name for one in definitions]
    jobs = {row["name"]: row for row in tx.all("jobs_named", names=names)}
    schedules = {row["name"]: row for row in tx.all("schedules_named", names=names)}
    ordered = sorted(definitions, key=lambda one: one.name)
    new = [one for one in ordered if not ({one.name} & (jobs.keys() | schedules.keys()))]
    changes = [
        one
        for one in ordered
        if one.name in jobs or one.name in schedules
        if not _is_there(one, jobs.get(one.name), schedules.get(one.name))
    ]
    return changes, new


def _create(
    tx: Transaction, new: Sequence[Definition], actor: Actor, changed: Collection[str]
) -> dict[str, str]:
    """Jobs and schedules of names that nobody has, all in a few statements."""
    now, refused = read_clock(tx), {}
    schedules: dict[str, Schedule] = {}
    for one in new:
        try:
            if one.schedule is not None and one.error is None:
                schedules[one.name] = planned(one.schedule.as_registered(), now)
        except Invalid as fault:
            refused[one.name] = str(fault)
    good = [one for one in new if one.name not in refused]
    seen = _see_versions(tx, [one.job for one in good], changed)
    tx.many(
        "put_file_jobs",
        [{**rows.job_row(one.job), "version_at": seen[one.name]} for one in good],
    )
    made = {one.name for one in insert_schedules(tx, list(schedules.values()), actor)}
    for name in sorted(schedules.keys() - made):  # another process was faster
        register_one(tx, schedules[name], actor)
    return refused


def _see_versions(
    tx: Transaction, jobs: Sequence[Job], anew: Collection[str]
) -> dict[str, datetime]:
    """When the version of each was first seen: now, where it is new or its files changed."""
    told = [
        {"job": job.name, "version": job.version, "anew": job.name if job.name in anew else ""}
        for job in jobs
    ]
    return {row["job"]: row["seen_at"] for row in tx.many("see_versions", told)}


def _put_definition(
    tx: Transaction, wanted: Definition, actor: Actor, anew: bool, live: Sequence[Row]
) -> None:
    job, row = wanted.job, tx.one("lock_job", name=wanted.name)
    known = None if row is None else rows.job(row)
    if known is not None:
        _refuse_foreign(job, known, live)
    if row is None or known is None or _differs(row, known, job):
        at = _see_versions(tx, [job], [job.name] if anew else [])[job.name]
        if row is not None:
            tx.all("forget_versions", job=job.name, keep=VERSIONS)
        stays = known is not None and not known.retired and known.source == "file"
        if stays and row is not None and row["version_at"] > at:
            return
        if stays and job.error is not None:
            tx.all("set_job_error", name=job.name, error=job.error, version_at=at)
            return
        tx.many("put_file_jobs", [{**rows.job_row(job), "version_at": at}])
    if job.error is None:
        _put_own_schedule(tx, wanted, actor)


def _put_own_schedule(tx: Transaction, wanted: Definition, actor: Actor) -> None:
    row = tx.one("lock_schedule", name=wanted.name)
    old = None if row is None else rows.schedule(row)
    if old is not None and not _is_of(wanted, old) and wanted.schedule is not None:
        raise Conflict(
            f"schedule {wanted.name!r} exists already, for job {old.job!r}; "
            "rename this job, or drop that schedule"
        )
    if wanted.schedule is not None:
        register_one(tx, wanted.schedule, actor)
    elif old is not None and _is_of(wanted, old):
        _switch_off(tx, old, actor, "its file has schedule = false")


def _switch_off(tx: Transaction, old: Schedule, actor: Actor, reason: str) -> None:
    """`enabled` off; pause, id, cursor and history stay. Nothing is registered any more, so
    whatever comes back with its file is a new word."""
    tx.all("set_registered", id=old.id, registered=None)
    if not old.enabled:
        return
    off = replace(old, enabled=False, registered=None)
    changed = tx.one("update_schedule", **rows.schedule_row(off))
    assert changed is not None
    record_change(tx, old, actor, "disable", reason, old, rows.schedule(changed))


def registered(tx: Transaction, origin: str, *, after: str = "", limit: int) -> list[Registered]:
    """The file jobs of an origin, also those that are retired, by name."""
    found = tx.all("file_jobs", origin=origin, after=after, limit=limit)
    from rota.model.definition import Registered

    return [Registered(**row) for row in found]


def listed_elsewhere(
    tx: Transaction, origin: str, worker_id: str | None, *, live_seconds: float
) -> set[str]:
    """Jobs that live workers of an origin know, other than this one."""
    live = _live_workers(tx, live_seconds)
    return _listed(live, origin, worker_id)


def retire_job(
    tx: Transaction,
    name: str,
    origin: str,
    worker_id: str | None,
    actor: Actor,
    *,
    live_seconds: float,
    why: str | None = None,
) -> bool:
    """Switch off a job whose files are gone; False if a live worker of its origin has it. `why`
    tells what is left of them."""
    row = tx.one("lock_job", name=name)
    if row is None or (row["source"], row["origin"]) != ("file", origin):
        return False
    if name in _listed(_live_workers(tx, live_seconds), origin, worker_id):
        return False
    reason = why or f"no folder of origin {origin!r} has it any more"
    tx.all("retire_job", name=name, origin=origin, error=RETIRED + reason)
    schedule = tx.one("lock_schedule", name=name)
    if schedule is not None and schedule["job"] == name:
        _switch_off(tx, rows.schedule(schedule), actor, reason)
    return True


def owe_scripts(tx: Transaction, target: str) -> None:
    """The scripts that belong to the creation of a target could not be read then."""
    tx.all("set_meta", key=SCRIPTS + target, value=OWED)


def owes_scripts(tx: Transaction, target: str) -> bool:
    return meta(tx).get(SCRIPTS + target) == OWED


@only_if(owes_scripts, nothing=False)
def take_scripts(tx: Transaction, target: str) -> bool:
    """True for the one process that is to run what is owed to a target."""
    swapped = tx.one("swap_meta", key=SCRIPTS + target, expected=OWED, value=TAKEN)
    return swapped is not None


def unstarted_retired_runs(tx: Transaction, origin: str, *, limit: int) -> list[str]:
    """Ids of runs that wait for a job that is retired."""
    found = tx.all("unstarted_retired_runs", origin=origin, limit=limit)
    return [row["id"] for row in found]


def _live_workers(tx: Transaction, live_seconds: float) -> list[Row]:
    found = tx.all("live_workers", live_seconds=live_seconds, limit=WORKERS)
    return [{**row, "jobs": frozenset(rows.from_json(row["jobs"]))} for row in found]


def _is_there(wanted: Definition, job: Row | None, schedule: Row | None) -> bool:
    """True if nothing would change. What cannot be read is broken, and so differs."""
    if job is None or _differs(job, rows.job(job), wanted.job):
        return False
    if wanted.error is not None:
        return True
    old = None if schedule is None else rows.schedule({**schedule})
    if wanted.schedule is None:
        off = old is not None and not old.enabled and old.registered is None
        return old is None or off or not _is_of(wanted, old)
    return (
        old is not None
        and old.error is None
        and _is_of(wanted, old)
        and old.registered == wanted.schedule.registration()
    )


def _is_of(wanted: Definition, schedule: Schedule) -> bool:
    """Of the file's own job, or of another one only because somebody edited it."""
    return wanted.name in (schedule.job, schedule.operator_changes().get("job"))


def _differs(row: Row, known: Job, job: Job) -> bool:
    # Of a row that cannot be read `known` has another error: a good job differs, a broken one not.
    error = row["error"] if job.error is not None else known.error
    return (row["version"], error, known.enabled, known.source, known.origin) != (
        job.version, job.error, job.enabled, job.source, job.origin,
    )  # fmt: skip


def _refuse_foreign(job: Job, known: Job, live: Sequence[Row]) -> None:
    """A name belongs to one origin as long as somebody there is alive and has it, and to a
    statement as long as its job is there: nobody has to be alive for that. A file that is broken
    has nothing to put into the place of anybody."""
    if (known.source, known.origin) == (job.source, job.origin) or known.retired:
        return
    listed = any(known.name in one["jobs"] for one in live if one["origin"] != job.origin)
    if listed or known.source == "api" or job.error is not None:
        whose = {"file": f"origin {known.origin!r}", "api": "a statement"}.get(
            known.source, "an app"
        )
        raise Conflict(f"job {job.name!r} belongs to {whose} already; rename one of them")


def _listed(live: Sequence[Row], origin: str, worker_id: str | None) -> set[str]:
    others = [one for one in live if one["origin"] == origin and one["id"] != worker_id]
    return {name for one in others for name in one["jobs"]}


def good_versions(tx: Transaction, names: Collection[str]) -> dict[str, datetime]:
    """When the last good version of each file job was first seen."""
    if not names:
        return {}
    found = tx.all("good_versions", names=sorted(names))
    return {row["job"]: row["seen_at"] for row in found}
