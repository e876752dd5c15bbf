"""Examine a store: is everything as it should be, and if not, what is the fix?

`look` reads what there is, once. Each check is a rule over it and yields one finding or more, also
where all is well, so that the reader knows what was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rota.errors import RotaError
from rota.flow.doctor_store import STORE_CHECKS
from rota.flow.findings import Finding, ok, problem, warning
from rota.flow.home import moved
from rota.flow.words import counted
from rota.flow.workers import is_alive, taking, why_none
from rota.model.duration import format_duration
from rota.model.host import is_loopback_host
from rota.model.job import Job
from rota.model.limits import COUNTED, FOLDER_JOBS, PAGE
from rota.model.outcome import error_line
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.store import Store

# Fires, promotions and rescues happen within seconds wherever a process does them.
LATE = timedelta(minutes=1)
WAITED = timedelta(minutes=10)  # a queue whose oldest run waits longer does not keep up
CLOCK_APART = timedelta(seconds=2)
SOME = 5  # names in one finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Everything the checks ask about."""

    now: datetime
    facts: dict[str, Any]
    dispatch: str
    queues: list[dict[str, Any]]
    queued: list[dict[str, Any]]  # by job and queue, of the first COUNTED of the line
    workers: list[dict[str, Any]]
    jobs: list[Job]
    schedules: list[Schedule]
    next_fire_at: datetime | None
    next_due_at: datetime | None
    host: str
    has_token: bool  # one that would let somebody in
    tzdata: str
    version: str

    @property
    def live(self) -> list[dict[str, Any]]:
        return taking(self.workers, self.now)


def look(store: Store, *, host: str, cluster: str | None, tzdata: str, version: str) -> Look:
    overview = store.read(operations.overview)
    _, next_fire_at = store.peek(operations.next_fire_at)
    _, next_due_at = store.read(operations.next_due_at)
    return Look(
        now=overview["now_at"],
        facts={**store.facts(), "moved": moved(store, cluster)},
        dispatch=overview["dispatch"],
        queues=store.read(operations.list_queues, limit=PAGE),
        queued=store.read(operations.queued_jobs, limit=COUNTED),
        workers=store.read(operations.list_workers, limit=PAGE),
        jobs=_all(lambda after: store.read(operations.list_jobs, after=after, limit=PAGE)),
        schedules=_all(
            lambda after: store.read(operations.list_schedules, after=after, limit=PAGE)
        ),
        next_fire_at=next_fire_at,
        next_due_at=next_due_at,
        host=host,
        has_token=store.read(operations.tokens_there)[1],
        tzdata=tzdata,
        version=version,
    )


def examine(seen: Look) -> list[Finding]:
    """Every check; one that fails itself is a finding, and keeps no other from its turn."""
    return [finding for check in CHECKS for finding in _checked(check, seen)]


def _checked(check: Callable[[Look], Iterator[Finding]], seen: Look) -> list[Finding]:
    try:
        return list(check(seen))
    except RotaError as fault:
        name = check.__name__.removeprefix("check_")
        return [problem(name, f"could not be looked at: {fault}", "ask again")]


# Processes


def check_dispatch(seen: Look) -> Iterator[Finding]:
    if seen.dispatch == "on":
        yield ok("dispatch", "on")
    else:
        yield problem(
            "dispatch",
            f"{seen.dispatch}: no process begins a run",
            "rota resume --dispatch",
        )


def check_workers(seen: Look) -> Iterator[Finding]:
    lost = sum(not is_alive(worker, seen.now) for worker in seen.workers)
    waits = sum(queue["queued"] for queue in seen.queues)
    active = any(schedule.status == "ACTIVE" for schedule in seen.schedules)
    none = why_none(seen.workers, seen.now).removeprefix("no worker ")
    if seen.live:
        yield ok("workers", f"{len(seen.live)} alive, {sum(w['slots'] for w in seen.live)} slots")
    elif waits:
        told = f"{counted(waits, 'run')} wait{'s' if waits == 1 else ''}"
        yield problem("workers", f"none {none}, and {told}", "rota up [MODULE:APP]")
    elif active:
        yield problem(
            "workers",
            f"none {none}; nothing waits now, and schedules will make runs",
            "rota up [MODULE:APP]",
        )
    else:
        yield warning("workers", f"none {none}", "rota up [MODULE:APP]")
    if lost:
        yield warning(
            "workers",
            f"{counted(lost, 'worker')} went away within the last hour without a word",
            "look into the log of its process for a crash or the kill of a machine out of memory",
        )
    stuck = [one for one in seen.workers if one["stuck"] and is_alive(one, seen.now)]
    if stuck:
        yield problem(
            "workers",
            f"threads that ignore their timeout hold slots of {_names(w['id'] for w in stuck)}",
            "give these jobs isolation = 'process', where a timeout can really end them",
        )


def check_versions(seen: Look) -> Iterator[Finding]:
    found = {worker["version"] for worker in seen.live} | {seen.version}
    if len(found) > 1:
        yield warning(
            "versions",
            f"processes of several versions of Rota work together: {_names(found)}",
            "install one version on every machine, and start each process again",
        )
    else:
        yield ok("versions", f"Rota {seen.version} everywhere")


def check_zones(seen: Look) -> Iterator[Finding]:
    """Two tables of time zones can put one schedule at two instants."""
    found = {worker["tzdata"] for worker in seen.live} | {seen.tzdata}
    if len(found) > 1:
        yield problem(
            "zones",
            f"processes have different tables of time zones: {_names(found)}",
            "pip install --upgrade tzdata on every machine, and start each process again",
        )
    else:
        yield ok("zones", f"tzdata {seen.tzdata} everywhere")


def check_clock(seen: Look) -> Iterator[Finding]:
    apart = timedelta(seconds=seen.facts["clock_offset_seconds"])
    ahead = [worker for worker in seen.workers if worker["seen_at"] - seen.now > CLOCK_APART]
    if abs(apart) > CLOCK_APART:
        way = "ahead of" if apart > timedelta(0) else "behind"
        yield problem(
            "clock",
            f"the clock of the database is {_span(abs(apart))} {way} that of this machine",
            "set both by NTP (chrony, systemd-timesyncd); the database's decides when runs are due",
        )
    elif ahead:
        yield problem(
            "clock",
            f"{_names(worker['id'] for worker in ahead)} wrote with a clock that is ahead of ours",
            "set the clocks of both machines by NTP; a file store belongs to one machine",
        )
    else:
        yield ok("clock", f"within {_span(max(abs(apart), timedelta(milliseconds=1)))} of ours")


# The path of a run


def check_scheduler(seen: Look) -> Iterator[Finding]:
    late = None if seen.next_fire_at is None else seen.now - seen.next_fire_at
    active = sum(schedule.status == "ACTIVE" for schedule in seen.schedules)
    if late is not None and late > LATE:
        yield problem(
            "scheduler",
            f"a schedule is due since {_span(late)} and nobody fires it",
            "start a process with the scheduler: rota up (or --only scheduler), "
            "and look at the setting scheduler.enabled",
        )
    elif seen.next_due_at is not None and seen.now - seen.next_due_at > LATE:
        late = seen.now - seen.next_due_at
        yield problem(
            "scheduler",
            f"a run is due since {_span(late)} and nobody puts it into its queue",
            "start a process that looks after the store: rota up",
        )
    else:
        yield ok("scheduler", f"nothing is late; {counted(active, 'schedule')} active")


def check_leases(seen: Look) -> Iterator[Finding]:
    stuck = seen.facts["expired_leases"]
    oldest = stuck["oldest_at"]
    if oldest is not None and seen.now - oldest > LATE:
        yield problem(
            "leases",
            f"{counted(stuck['runs'], 'run')} of workers that are gone, the first since "
            f"{_span(seen.now - oldest)}: nobody rescues them",
            "start a process that looks after the store: rota up; if one runs, its log says why "
            "it cannot write",
        )
    else:
        yield ok("leases", "none ran out")


def check_queues(seen: Look) -> Iterator[Finding]:
    bad = False
    served = {queue for worker in seen.live for queue in worker["queues"]}
    all_served = any(not worker["queues"] for worker in seen.live)
    for queue in seen.queues:
        name, waiting = queue["name"], queue["queued"]
        if not waiting:
            continue
        told = f"queue {name}: {counted(waiting, 'run')} waiting"
        if queue["paused"]:
            bad = True
            yield warning(
                "queues", f"{told}, paused by {queue['paused_by']}", f"rota resume --queue {name}"
            )
        elif seen.live and not all_served and name not in served:
            bad = True
            yield problem(
                "queues", f"{told}, and no live worker serves it", f"rota up --queue {name}"
            )
        elif (oldest := _oldest(seen, queue)) is not None and seen.now - oldest > WAITED:
            bad = True
            yield problem(
                "queues",
                f"{told}, the oldest since {_span(seen.now - oldest)}",
                "more slots (rota up --slots), more processes (--processes), or look whether a "
                "live worker knows these jobs",
            )
    if not bad:
        waiting = sum(queue["queued"] for queue in seen.queues)
        yield ok(
            "queues", f"{counted(len(seen.queues), 'queue')}, {counted(waiting, 'run')} waiting"
        )


def _oldest(seen: Look, queue: dict[str, Any]) -> datetime | None:
    """Since when a queue is behind: more slots are no help to runs whose job nobody knows, and
    what keeps those is said with their job."""
    if not seen.live or sum(row["runs"] for row in seen.queued) >= COUNTED:
        oldest: datetime | None = queue["oldest_at"]
        return oldest
    known = {name for worker in seen.live for name in worker["jobs"]}
    rows = [row for row in seen.queued if row["queue"] == queue["name"] and row["job"] in known]
    return min((row["oldest_at"] for row in rows), default=None)


# Jobs and schedules


def check_jobs(seen: Look) -> Iterator[Finding]:
    broken = [job for job in seen.jobs if job.error and not job.retired]
    retired = [job for job in seen.jobs if job.retired]
    for job in broken[:SOME]:
        yield problem(
            "jobs", f"job {job.name}: {error_line(job.error, limit=300)}", "mend it; rota check"
        )
    if len(broken) > SOME:
        yield problem("jobs", f"{len(broken) - SOME} more jobs are broken", "rota jobs")
    yield from _left_behind(seen, {job.name for job in retired if job.source == "file"})
    known = {name for worker in seen.live for name in worker["jobs"]}
    unknown = {job.name for job in seen.jobs if job.enabled and job.name not in known}
    active = [one for one in seen.schedules if one.status == "ACTIVE" and one.job in unknown]
    if seen.live and (missing := {one.job for one in active}):
        yield problem(
            "jobs",
            f"no live worker knows {_names(missing)}, and schedules make runs of them",
            "start the app or the folder that has them: rota up MODULE:APP; or drop what is not "
            f"wanted any more: rota drop {min(one.name for one in active)}",
        )
    elif seen.live and unknown:
        yield warning(
            "jobs",
            f"no live worker knows {_names(unknown)}",
            "start the app or the folder that has them, if they are still wanted",
        )
    elif not broken:
        there = len(seen.jobs) - len(retired)
        gone = f"; {len(retired)} retired" if retired else ""
        yield ok("jobs", f"{counted(there, 'job')}, none broken{gone}")


def _left_behind(seen: Look, retired: set[str]) -> Iterator[Finding]:
    """A job whose files were taken away is well; what still waits for it is not."""
    waiting = {row["job"] for row in seen.queued if row["job"] in retired}
    for name in sorted(waiting)[:SOME]:
        yield warning(
            "jobs",
            f"runs of job {name} wait, and its files are gone",
            f"rota cancel --all --job {name}, or put its files back",
        )
    firing = [one for one in seen.schedules if one.status == "ACTIVE" and one.job in retired]
    for schedule in firing[:SOME]:
        yield warning(
            "jobs",
            f"schedule {schedule.name} makes runs of job {schedule.job}, whose files are gone",
            f"rota drop {schedule.name}, or put its files back",
        )


def check_schedules(seen: Look) -> Iterator[Finding]:
    broken = [schedule for schedule in seen.schedules if schedule.status == "BROKEN"]
    for schedule in broken[:SOME]:
        yield problem(
            "schedules",
            f"schedule {schedule.name}: {error_line(schedule.error, limit=300)}",
            f"mend its timing: rota schedule {schedule.name} --cron …, or rota drop it",
        )
    if len(broken) > SOME:
        yield problem("schedules", f"{len(broken) - SOME} more are broken", "rota schedules")
    there = {job.name for job in seen.jobs}
    missing = [one.name for one in seen.schedules if one.job not in there]
    if missing:
        yield problem(
            "schedules",
            f"the job of {_names(missing)} does not exist",
            "register the job, or rota drop the schedule",
        )
    if not broken and not missing:
        paused = sum(schedule.paused for schedule in seen.schedules)
        yield ok("schedules", f"{counted(len(seen.schedules), 'schedule')}, {paused} paused")


def check_home(seen: Look) -> Iterator[Finding]:
    if seen.facts["moved"]:
        yield problem("home", seen.facts["moved"], "rota adopt, if it was moved on purpose")
    else:
        yield ok("home", "the store is where it was made")


def check_web(seen: Look) -> Iterator[Finding]:
    if is_loopback_host(seen.host):
        yield ok("address", f"{seen.host}: this machine only")
    elif not seen.has_token:
        yield problem(
            "address",
            f"host {seen.host} can be reached by others, and there is no token: it will not start",
            "rota token create NAME --role operator, or host = '127.0.0.1'",
        )
    else:
        yield ok("address", f"{seen.host}: others can reach it, with a token")


CHECKS: tuple[Callable[[Look], Iterator[Finding]], ...] = (
    *STORE_CHECKS,
    check_home,
    check_clock,
    check_zones,
    check_versions,
    check_dispatch,
    check_workers,
    check_scheduler,
    check_leases,
    check_queues,
    check_jobs,
    check_schedules,
    check_web,
)


def _all(page: Callable[[str], list[Any]]) -> list[Any]:
    """All of them by pages; no more than a folder may hold."""
    found: list[Any] = []
    while len(found) < FOLDER_JOBS:
        more = page(found[-1].name if found else "")
        found += more
        if len(more) < PAGE:
            break
    return found


def _names(names: Any) -> str:
    told = sorted(set(names))
    more = f" and {len(told) - SOME} more" if len(told) > SOME else ""
    return ", ".join(told[:SOME]) + more


def _span(span: timedelta) -> str:
    if span < timedelta(seconds=1):
        return f"{span / timedelta(milliseconds=1):.0f} ms"
    return format_duration(timedelta(seconds=round(span.total_seconds())))
