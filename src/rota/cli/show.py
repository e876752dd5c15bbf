"""Show one thing: a run with its attempts and log, a schedule with its future and its past."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

from cyclopts import Parameter

from rota.cli.find import run_or_none, schedule_or_none
from rota.cli.lists import say_runs, say_schedules
from rota.cli.options import HERE, Where
from rota.cli.output import error_line, plain, say, say_fields, say_heading, say_json, say_table
from rota.cli.records import (
    attempt_record,
    change_record,
    job_record,
    run_record,
    schedule_record,
    status,
)
from rota.cli.store import reading
from rota.cli.times import took, when, zone_name
from rota.errors import Invalid, Unknown
from rota.flow.control import Control
from rota.flow.enqueue import find_job
from rota.model.limits import PAGE
from rota.model.run import Run
from rota.model.schedule import Schedule

NEXT_TIMES = 5
LAST_ROWS = 10
LOG_TAIL = 20


def show(thing: Annotated[str, Parameter(name="X")], /, *, where: Where = HERE) -> None:
    """Show a run, a schedule or a job.

    Parameters
    ----------
    thing
        A run's id or at least 6 characters of its beginning, a schedule or a job. A schedule and
        a job of one name are shown together.
    """
    with reading(where) as control:
        now = control.storage.now()
        schedule, job = schedule_or_none(control, thing), _job_or_none(control, thing)
        if schedule is None and job is None:
            run = run_or_none(control, thing)
            if run is None:
                raise Unknown(
                    f"{thing!r} is no run, schedule or job; look at `rota runs`, "
                    "`rota schedules` and `rota jobs`"
                )
            return _show_run(control, run, now, where)
        _show_named(control, schedule, job, now, where)


def coming(schedule: Schedule, now: datetime, count: int) -> list[dict[str, Any]]:
    """The next times at which it fires, as far as they are known, and what clock changes do.

    The first may be past: then it is due, and waits for a scheduler.
    """
    if status(schedule) != "ACTIVE" or schedule.delays:
        return []
    calendar, cursor = schedule.calendar, schedule.next_fire_at
    times: list[dict[str, Any]] = []
    while cursor is not None and len(times) < count:
        cron = calendar.cron
        told = None if cron is None else cron.note(cursor, calendar.zone, calendar.dst)
        times.append({"at": cursor, "note": told})
        cursor = replace(schedule, next_fire_at=cursor).next_after(max(cursor, now))
    return times


def _show_run(control: Control, run: Run, now: datetime, where: Where) -> None:
    attempts = [attempt_record(row) for row in control.attempts(run.id)]
    lines = _log_tail(control, run)
    if where.json:
        return say_json({"run": run_record(run), "attempts": attempts, "logs": lines})
    record = run_record(run)
    say_fields(
        {
            "run": run.id,
            "job": run.job,
            "state": run.state,
            "reason": run.reason,
            "queue": run.queue,
            "priority": run.priority or None,
            "due": when(run.due_at, now),
            "started": None if run.started_at is None else when(run.started_at, now),
            "finished": None if run.finished_at is None else when(run.finished_at, now),
            "took": None if run.finished_at is None else took(run.started_at, run.finished_at),
            "attempt": f"{run.attempt} ({run.failures} of {run.max_attempts} failures)",
            "lost": run.lost or None,
            "redone": run.redo or None,
            "occurrence": None if run.occurrence is None else plain(run.occurrence),
            "stands for": f"{run.missed_count} occurrences" if run.missed_count > 1 else None,
            "retry of": run.retry_of,
            "overlap": run.overlap_key,
            "concurrency": run.concurrency_key,
            "asked by": run.created_by,
            "worker": run.worker_id,
            "arguments": _shown(record["args"]),
            "progress": _shown(record["progress"]),
            "result": _shown(record["result"]),
            "cancel": _asked(run.cancel_requested_at, now),
            "pause": _asked(run.pause_requested_at, now),
            "error": run.error,
        }
    )
    _say_attempts(attempts, now)
    if lines:
        say_heading("Log" if len(lines) < LOG_TAIL else f"Log (last {LOG_TAIL} lines)")
        for line in lines:
            say(log_text(line))


def log_text(line: dict[str, Any]) -> str:
    """One log line as people read it."""
    at = line["at"].astimezone().strftime("%H:%M:%S.%f")[:-3]
    return f"{at} {line['level'].lower():<7} {line['text']}"


def _say_attempts(attempts: list[dict[str, Any]], now: datetime) -> None:
    if not attempts:
        return
    say_heading("Attempts")
    say_table(
        ("number", "outcome", f"started ({zone_name(now)})", "took", "worker", "error"),
        (
            (
                one["number"],
                one["outcome"],
                when(one["started_at"], now),
                took(one["started_at"], one["finished_at"]),
                one["worker_id"],
                error_line(one["error"]),
            )
            for one in attempts
        ),
    )


def _show_named(
    control: Control,
    schedule: Schedule | None,
    job: dict[str, Any] | None,
    now: datetime,
    where: Where,
) -> None:
    answer: dict[str, Any] = {}
    if schedule is not None:
        answer["schedule"] = schedule_record(schedule)
        answer["next"] = coming(schedule, now, NEXT_TIMES)
        answer["occurrences"] = control.occurrences(schedule.name, limit=LAST_ROWS)
        answer["changes"] = [
            change_record(row) for row in control.changes(schedule.name, limit=LAST_ROWS)
        ]
    schedules: list[Schedule] = []
    if job is not None:
        schedules = control.schedules(job=job["name"], limit=PAGE)
        answer["job"] = job
        answer["schedules"] = [one.name for one in schedules]
    runs = _last_runs(control, schedule, job)
    answer["runs"] = [run_record(run) for run in runs]
    if where.json:
        return say_json(answer)
    if schedule is not None:
        _say_schedule(schedule, answer, now)
    if job is not None:
        _say_job(job, schedules if schedule is None else [], now)
    if runs:
        say_heading("Last runs")
        say_runs(runs, now)


def _say_schedule(schedule: Schedule, answer: dict[str, Any], now: datetime) -> None:
    record = answer["schedule"]
    defaults = Schedule(
        name=schedule.name, job=schedule.job, kind=schedule.kind, expr=schedule.expr
    ).definition()
    shown = ("name", "job", "kind", "expr", "timezone", "args", "enabled", "overlap_key")
    options = {
        name: _shown(record[name])
        for name, default in defaults.items()
        if name not in shown and record[name] != default
    }
    say_fields(
        {
            "schedule": schedule.name,
            "job": schedule.job,
            "when": schedule.described(),
            "status": record["status"],
            "paused": _paused(schedule, now),
            "state": schedule.state,
            "error": schedule.error,
            "arguments": _shown(record["args"]),
            **options,
            "last fired": None
            if schedule.last_fired_at is None
            else when(schedule.last_fired_at, now),
            "created": None if schedule.created_at is None else when(schedule.created_at, now),
        }
    )
    say_heading(f"Next times ({zone_name(now)})")
    if schedule.delays and record["status"] == "ACTIVE":
        say(f"  {when(schedule.next_fire_at, now)}, then {schedule.expr} after each run's end")
    for time in answer["next"]:
        told = time["note"] or ("due: no scheduler has seen it yet" if time["at"] < now else None)
        say(f"  {when(time['at'], now)}" + (f"  {told}" if told else ""))
    if not answer["next"] and not schedule.delays:
        say(f"  none: the schedule is {record['status'].lower()}")
    _say_past(answer, now)


def _say_past(answer: dict[str, Any], now: datetime) -> None:
    if answer["occurrences"]:
        say_heading("Last occurrences")
        say_table(
            (f"occurrence ({zone_name(now)})", "outcome", "count", "reason", "run"),
            (
                (
                    when(row["occurrence"], now),
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


def _say_job(job: dict[str, Any], schedules: list[Schedule], now: datetime) -> None:
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
            "executor": job["executor"],
            "source": job["source"],
            "arguments": ", ".join(parameters) or ("any" if job["args"]["open"] else "none"),
            "queue": job["queue"],
            "priority": job["priority"] or None,
            "timeout": plain(job["timeout"]),
            "attempts": f"{job['max_attempts']}, backoff {job['backoff']} {job['delay']}",
            "isolation": job["isolation"],
            "concurrency": job["concurrency_key"],
            "enabled": None if job["enabled"] else "no",
            "error": job["error"],
            "version": job["version"],
            "since": None if job["version_at"] is None else when(job["version_at"], now),
        }
    )
    if schedules:
        say_heading("Schedules")
        say_schedules(schedules, now)


def _job_or_none(control: Control, name: str) -> dict[str, Any] | None:
    try:
        return job_record(find_job(control.storage, name))
    except (Invalid, Unknown):  # a name that no job can have is the name of no job
        return None


def _last_runs(
    control: Control, schedule: Schedule | None, job: dict[str, Any] | None
) -> list[Run]:
    if schedule is not None:
        return control.runs(schedule=schedule.name, limit=LAST_ROWS)
    assert job is not None, "one of them was found"
    return control.runs(job=job["name"], limit=LAST_ROWS)


def _log_tail(control: Control, run: Run) -> list[dict[str, Any]]:
    """The last lines. Storage pages forward only, so the pages before are read and let go."""
    tail: list[dict[str, Any]] = []
    page = control.logs(run.id, limit=PAGE)
    while page:
        tail = (tail + page)[-LOG_TAIL:]
        page = control.logs(run.id, after=page[-1]["id"], limit=PAGE) if len(page) == PAGE else []
    return tail


def _difference(row: dict[str, Any]) -> str:
    before, after = row["before"] or {}, row["after"] or {}
    if not before or not after:
        return ""
    told = [
        f"{name}: {_shown(before.get(name))} → {_shown(after.get(name))}"
        for name in after
        if before.get(name) != after.get(name) and name != "next_fire_at"
    ]
    return "; ".join(told)


def _paused(schedule: Schedule, now: datetime) -> str | None:
    if not schedule.paused or schedule.paused_at is None:
        return None
    told = f"{when(schedule.paused_at, now)} by {schedule.paused_by}"
    return told + (f": {schedule.paused_reason}" if schedule.paused_reason else "")


def _asked(moment: datetime | None, now: datetime) -> str | None:
    return None if moment is None else f"asked for {when(moment, now)}"


def _shown(value: Any) -> str | None:
    if value is None or value == {}:
        return None
    return value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
