"""Show one thing: a run, or a schedule with its future and past, or a job."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from rota.cli.find import run_or_none, schedule_or_none
from rota.cli.lists import say_runs, say_schedules
from rota.cli.options import BOTH, HERE, Option, Where
from rota.cli.output import one_line, plain, say, say_fields, say_heading, say_json, say_table
from rota.cli.records import (
    change_record,
    edits_note,
    job_record,
    run_record,
    schedule_record,
)
from rota.cli.show_run import show_run, shown
from rota.cli.store import reading
from rota.cli.times import when, zone_name, zone_of
from rota.errors import Invalid, Unknown
from rota.flow.control import Control
from rota.flow.control_runs import SHORTEST_ID
from rota.model.job import Job
from rota.model.limits import PAGE
from rota.model.run import Run, begins_run_id
from rota.model.schedule import Schedule

NEXT_TIMES = 5
LAST_ROWS = 10


def show(
    thing: Annotated[
        str,
        Option(
            "A run's id or at least 6 characters of its beginning, a schedule or a job.",
            "X",
            values=BOTH,
        ),
    ],
    /,
    *,
    where: Where = HERE,
) -> None:
    """Show a run, a schedule or a job."""
    with reading(where) as control:
        now = control.now()
        schedule, job = schedule_or_none(control, thing), _job_or_none(control, thing)
        dropped = control.dropped(thing) if schedule is None else None
        if schedule is None and job is None and dropped is None:
            run = run_or_none(control, thing)
            if run is None:
                raise Unknown(
                    f"{thing!r} is no run, schedule or job; look at `rota runs`, "
                    f"`rota schedules` and `rota jobs`{_too_short(thing)}"
                )
            return show_run(control, run, now, where)
        _show_named(control, thing, schedule, dropped, job, now, where)


def _too_short(thing: str) -> str:
    if len(thing) < SHORTEST_ID and begins_run_id(thing.lower()):
        return f"; of a run's id give {SHORTEST_ID} characters or more"
    return ""


def _show_named(
    control: Control,
    thing: str,
    schedule: Schedule | None,
    dropped: dict[str, Any] | None,
    job: Job | None,
    now: datetime,
    where: Where,
) -> None:
    answer: dict[str, Any] = {}
    if schedule is not None:
        answer["schedule"] = schedule_record(schedule)
        explanation = control.explain(schedule.name, count=NEXT_TIMES)
        answer["next"] = [{"at": one.at, "note": one.note} for one in explanation.coming]
        answer["reasons"] = explanation.reasons
        answer |= _past(control, thing)
    if dropped is not None:
        answer["dropped"] = change_record(dropped)
        answer |= _past(control, thing)
    schedules: list[Schedule] = []
    if job is not None:
        schedules = control.schedules(job=job.name, limit=PAGE)
        answer["job"] = job_record(job)
        answer["schedules"] = [one.name for one in schedules]
    by_schedule = schedule is not None or job is None
    runs = _last_runs(control, thing if by_schedule else None, job)
    answer["runs"] = [run_record(run) for run in runs]
    if where.json:
        return say_json(answer)
    if schedule is not None:
        _say_schedule(schedule, answer, now)
    if dropped is not None:
        _say_dropped(answer, now)
    if job is not None:
        _say_job(job, answer["job"], schedules if schedule is None else [], now)
    if runs:
        say_heading("Last runs")
        say_runs(runs, now, zone=None if schedule is None else zone_of(schedule))


def _say_schedule(schedule: Schedule, answer: dict[str, Any], now: datetime) -> None:
    record, zone = answer["schedule"], zone_of(schedule)
    defaults = Schedule(
        name=schedule.name, job=schedule.job, kind=schedule.kind, expr=schedule.expr
    ).definition()
    said = ("name", "job", "kind", "expr", "timezone", "args", "enabled", "overlap_key")
    options = {
        name: shown(record[name])
        for name, default in defaults.items()
        if name not in said and record[name] != default
    }
    say_fields(
        {
            "schedule": schedule.name,
            "job": schedule.job,
            "when": schedule.described(),
            "status": record["status"],
            "paused": _paused(schedule, now),
            "state": None if schedule.paused else schedule.state,
            "error": schedule.error,
            "arguments": shown(record["args"]),
            **options,
            "edited": edits_note(schedule),
            "last fired": None
            if schedule.last_fired_at is None
            else when(schedule.last_fired_at, now, zone, named=True),
            "created": None
            if schedule.created_at is None
            else when(schedule.created_at, now, named=True),
        }
    )
    say_heading(f"Next times ({zone_name(now, zone)})")
    for time in answer["next"]:
        say(f"  {when(time['at'], now, zone)}" + (f"  {time['note']}" if time["note"] else ""))
    if not answer["next"]:
        waits = record["status"] == "ACTIVE"
        told = "known when its run ends" if waits else f"the schedule is {record['status'].lower()}"
        say(f"  none: {told}")
    if answer["reasons"]:
        say_heading("Why it is not running now")
        for reason in answer["reasons"]:
            say(f"  {one_line(reason)}")
    _say_past(answer, now, zone)


def _past(control: Control, name: str) -> dict[str, Any]:
    return {
        "occurrences": control.occurrences(name, limit=LAST_ROWS),
        "changes": [change_record(row) for row in control.changes(name, limit=LAST_ROWS)],
    }


def _say_dropped(answer: dict[str, Any], now: datetime) -> None:
    row = answer["dropped"]
    was = row["before"] or {}
    why = f": {row['reason']}" if row["reason"] else ""
    say_fields(
        {
            "schedule": row["name"],
            "dropped": f"{when(row['at'], now, named=True)} by {row['by']}{why}",
            "job": was.get("job"),
            "when": f"{was['kind']} {was['expr']}" if "expr" in was else None,
        }
    )
    _say_past(answer, now, None)


def _say_past(answer: dict[str, Any], now: datetime, zone: ZoneInfo | None) -> None:
    if answer["occurrences"]:
        say_heading("Last occurrences")
        say_table(
            (f"occurrence ({zone_name(now, zone)})", "outcome", "count", "reason", "run"),
            (
                (
                    when(row["occurrence"], now, zone),
                    row["outcome"],
                    row["count"],
                    row["reason"],
                    row["run_id"],
                )
                for row in answer["occurrences"]
            ),
        )
    say_heading("Last changes")
    say_table(
        (f"at ({zone_name(now)})", "by", "action", "changed", "reason"),
        (
            (when(row["at"], now), row["by"], row["action"], _difference(row), row["reason"])
            for row in answer["changes"]
        ),
    )


def _say_job(defined: Job, job: dict[str, Any], schedules: list[Schedule], now: datetime) -> None:
    parameters = [
        f"{one['name']}{'' if one['required'] else '?'}"
        + (f": {' or '.join(one['types'])}" if one["types"] else "")
        for one in job["args"]["parameters"]
    ]
    say_heading("Job")
    say_fields(
        {
            "job": job["name"],
            "description": job["description"],
            "tags": ", ".join(job["tags"]) or None,
            "executor": job["executor"],
            "source": job["source"],
            "files": _files(defined),
            "target": defined.spec.get("target"),
            "arguments": ", ".join(parameters) or ("any" if job["args"]["open"] else "none"),
            "queue": job["queue"],
            "priority": job["priority"] or None,
            "timeout": plain(job["timeout"]),
            "attempts": f"{job['max_attempts']}, backoff {job['backoff']} {job['delay']}",
            "isolation": None if job["executor"] == "sql" else job["isolation"],
            "concurrency": job["concurrency_key"],
            "enabled": None if job["enabled"] else "no",
            "error": job["error"],
            "version": job["version"],
            "since": None
            if job["version_at"] is None
            else when(job["version_at"], now, named=True),
        }
    )
    if schedules:
        say_heading("Schedules")
        say_schedules(schedules, now)


def _files(job: Job) -> str:
    """The SQL files of a folder, in the order in which they run."""
    names = [str(name) for name in job.spec.get("files", ())] if job.source == "file" else []
    more = len(names) - LAST_ROWS
    return ", ".join(names[:LAST_ROWS]) + (f" and {more} more" if more > 0 else "")


def _job_or_none(control: Control, name: str) -> Job | None:
    try:
        return control.job(name)
    except (Invalid, Unknown):  # a name that no job can have is the name of no job
        return None


def _last_runs(control: Control, schedule: str | None, job: Job | None) -> list[Run]:
    if schedule is not None:
        return control.runs(schedule=schedule, limit=LAST_ROWS)
    assert job is not None, "one of them was found"
    return control.runs(job=job.name, limit=LAST_ROWS)


def _difference(row: dict[str, Any]) -> str:
    before, after = row["before"] or {}, row["after"] or {}
    if not before or not after:
        return ""
    told = [
        f"{name}: {shown(before.get(name))} → {shown(after.get(name))}"
        for name in after
        if before.get(name) != after.get(name) and name != "next_fire_at"
    ]
    return "; ".join(told)


def _paused(schedule: Schedule, now: datetime) -> str | None:
    if not schedule.paused or schedule.paused_at is None:
        return None
    told = f"{when(schedule.paused_at, now, named=True)} by {schedule.paused_by}"
    return told + (f": {schedule.paused_reason}" if schedule.paused_reason else "")
