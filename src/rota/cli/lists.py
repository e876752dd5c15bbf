"""The lists: jobs, schedules, runs, queues, workers, locks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from shlex import quote
from typing import Annotated
from zoneinfo import ZoneInfo

from rota.cli.options import HERE, JOBS, QUEUES, SCHEDULES, AfterName, Limit, Option, Where
from rota.cli.output import note, one_line, say_json, say_table
from rota.cli.records import run_record, schedule_record
from rota.cli.store import reading
from rota.cli.times import spent, took, when, zone_name, zone_of
from rota.flow.workers import is_alive, is_stopping, state_of
from rota.model.limits import METRIC_DEPTH, PAGE
from rota.model.outcome import error_line
from rota.model.records import dropped_in_words
from rota.model.run import Run
from rota.model.schedule import Schedule
from rota.model.transitions import RUNNING, STATES


def jobs(
    *,
    status: Annotated[
        str | None,
        Option(
            "Only jobs that are enabled, disabled, broken or retired (their files are gone).",
            "STATUS",
            values=("enabled", "disabled", "broken", "retired"),
        ),
    ] = None,
    after: AfterName = None,
    limit: Limit = PAGE,
    where: Where = HERE,
) -> None:
    """List jobs. Those whose files are gone are left out, unless asked for."""
    with reading(where) as control:
        found = control.jobs(status=status, after=after or "", limit=limit)
    if where.json:
        return say_json(found)
    nothing = (
        "no jobs yet; an app or a folder brings them when it starts: `rota up [MODULE:APP]`"
        if status is None
        else f"no job is {status}"
    )
    say_table(
        ("name", "executor", "queue", "attempts", "timeout", "description", "error"),
        (
            (
                job["name"],
                job["executor"],
                job["queue"],
                job["max_attempts"],
                None if job["timeout"] is None else spent(job["timeout"]),
                job["description"],
                error_line(job["error"]) or None,
            )
            for job in found
        ),
        empty=nothing,
    )
    _say_more(found, limit, f"--after {found[-1]['name']}" if found else "")


def schedules(
    *,
    job: Annotated[str | None, Option("Only schedules of this job.", "NAME", values=JOBS)] = None,
    after: AfterName = None,
    limit: Limit = PAGE,
    where: Where = HERE,
) -> None:
    """List schedules and when they fire next."""
    with reading(where) as control:
        if job is not None:
            control.job(job)
        found = control.schedules(after=after or "", job=job, limit=limit)
        now = control.now()
    if where.json:
        return say_json([schedule_record(one) for one in found])
    say_schedules(
        found, now, empty="no schedules yet; `rota schedule --help` shows how to make one"
    )
    _say_more(found, limit, f"--after {found[-1].name}" if found else "")


def runs(
    *,
    job: Annotated[str | None, Option("Only runs of this job.", "NAME", values=JOBS)] = None,
    schedule: Annotated[
        str | None, Option("Only runs that this schedule made.", "NAME", values=SCHEDULES)
    ] = None,
    state: Annotated[
        str | None,
        Option(
            f"Only runs in this state: {', '.join(STATES)}.",
            "STATE",
            values=STATES,
        ),
    ] = None,
    queue: Annotated[str | None, Option("Only runs in this queue.", "NAME", values=QUEUES)] = None,
    before: Annotated[
        int | None, Option("Begin before this seq: the way to the next page.", "SEQ")
    ] = None,
    limit: Annotated[int, Option("At most this many, up to 500.")] = 20,
    where: Where = HERE,
) -> None:
    """List runs, newest first."""
    with reading(where) as control:
        found = control.runs(
            job=job, schedule=schedule, state=state, queue=queue, before=before, limit=limit
        )
        if not found and job is not None:
            control.job(job)
        dropped = None if schedule is None else control.dropped(schedule)
        now = control.now()
    if dropped is not None:
        note(dropped_in_words(dropped))
    if where.json:
        return say_json([run_record(run) for run in found])
    asked = (state, job, schedule, queue, before)
    none_yet = "no runs yet; a schedule makes them, or `rota run JOB`"
    say_runs(found, now, empty="no runs match" if any(asked) else none_yet)
    _say_more(found, limit, f"--before {found[-1].seq}" if found else "")


def queues(*, after: AfterName = None, limit: Limit = PAGE, where: Where = HERE) -> None:
    """List queues and how much waits in them."""
    with reading(where) as control:
        found, overview = control.queues(after=after or "", limit=limit), control.overview()
    if where.json:
        return say_json(found)
    now = overview["now_at"]
    say_table(
        ("name", "state", "queued", f"oldest ({zone_name(now)})", "reason"),
        (
            (
                queue["name"],
                "paused" if queue["paused"] else "open",
                f"{queue['queued']}+" if queue["queued"] >= METRIC_DEPTH else queue["queued"],
                None if queue["oldest_at"] is None else when(queue["oldest_at"], now),
                _pause_note(queue, now),
            )
            for queue in found
        ),
        empty="no queues yet; the first job makes one",
    )
    _say_more(found, limit, f"--after {found[-1]['name']}" if found else "")
    if overview["dispatch"] != "on":
        note(f"dispatch is {one_line(overview['dispatch'])}; `rota resume --dispatch` goes on")


def workers(
    *,
    after: Annotated[
        str | None, Option("Begin after this id: the way to the next page.", "ID")
    ] = None,
    limit: Limit = PAGE,
    where: Where = HERE,
) -> None:
    """List workers, and whether they were seen lately."""
    with reading(where) as control:
        found, now = control.workers(after=after or "", limit=limit), control.now()
    for worker in found:
        worker |= {"alive": is_alive(worker, now), "stopping": is_stopping(worker)}
    if where.json:
        return say_json(found)
    say_table(
        (
            "id",
            "state",
            "host",
            "pid",
            "slots",
            "running",
            "stuck",
            "queues",
            "jobs",
            f"started ({zone_name(now)})",
            f"seen ({zone_name(now)})",
        ),
        (
            (
                worker["id"],
                state_of(worker, now),
                worker["host"],
                worker["pid"],
                worker["slots"],
                worker["running"],
                worker["stuck"],
                ", ".join(worker["queues"]) or "all",
                len(worker["jobs"]),
                when(worker["started_at"], now),
                when(worker["seen_at"], now),
            )
            for worker in found
        ),
        empty="no workers; start one with `rota up [MODULE:APP]`",
    )
    _say_more(found, limit, f"--after {found[-1]['id']}" if found else "")


def locks(*, after: AfterName = None, limit: Limit = PAGE, where: Where = HERE) -> None:
    """List locks that are held."""
    with reading(where) as control:
        found, now = control.locks(after=after or "", limit=limit), control.now()
    if where.json:
        return say_json(found)
    say_table(
        ("name", "owner", "token", f"until ({zone_name(now)})"),
        ((lock["name"], lock["owner"], lock["token"], when(lock["until"], now)) for lock in found),
        empty="no lock is held",
    )
    _say_more(found, limit, f"--after {quote(found[-1]['name'])}" if found else "")


def say_runs(
    found: list[Run], now: datetime, *, zone: ZoneInfo | None = None, empty: str = ""
) -> None:
    """`zone`: of the one schedule that made them all."""
    say_table(
        ("id", "job", "state", f"due ({zone_name(now, zone)})", "took", "attempt", "note"),
        (
            (
                run.id,
                run.job,
                run.state,
                when(run.due_at, now, zone),
                took(run.started_at, now if run.state == RUNNING else run.finished_at),
                run.attempt,
                error_line(run.error or run.reason),
            )
            for run in found
        ),
        empty=empty,
    )


EDITED = "edited since it was registered"


def say_schedules(found: list[Schedule], now: datetime, *, empty: str = "") -> None:
    say_table(
        ("name", "job", "when", "status", f"next ({zone_name(now)})", "last", "note"),
        (
            (
                one.name,
                one.job,
                one.described(),
                one.status,
                when(one.next_fire_at, now, zone_of(one)) if one.status == "ACTIVE" else None,
                None if one.last_fired_at is None else when(one.last_fired_at, now, zone_of(one)),
                error_line(
                    one.error or one.paused_reason or (EDITED if one.operator_changes() else None)
                ),
            )
            for one in found
        ),
        empty=empty,
    )


def _pause_note(queue: dict[str, object], now: datetime) -> str | None:
    if not queue["paused"]:
        return None
    told = f"by {queue['paused_by']}"
    if isinstance(queue["paused_at"], datetime):
        told += f" {when(queue['paused_at'], now)}"
    return told + (f": {queue['reason']}" if queue["reason"] else "")


def _say_more(found: Sequence[object], limit: int, how: str) -> None:
    if len(found) == limit:
        note(f"there may be more; the next page: {how}")
