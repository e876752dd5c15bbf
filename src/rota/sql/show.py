"""What statements answer: rows about schedules, jobs and runs, without secrets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rota.flow.control import Control
from rota.flow.explain import Explanation
from rota.model.job import RETIRED, Job
from rota.model.limits import PAGE, SELECT_CELL_LENGTH, SELECT_ROWS
from rota.model.redact import redact, redact_text, shorten
from rota.model.result import BOOLEAN, INSTANT, INTEGER, JSON, Column, Result
from rota.model.run import Enqueued
from rota.model.schedule import WAITING_FOR_RUN, Schedule
from rota.sql.options import ON_EXECUTION_FAILURE, ON_PREVIOUS_RUNNING
from rota.sql.recreate import quoted, told_args

CREATE_STATEMENT = "create_statement"  # the column of SHOW CREATE SCHEDULE
SCHEDULES = (
    Column("id", INTEGER), Column("label"), Column("schedule_status"), Column("next_run", INSTANT),
    Column("state"), Column("recurrence"), Column("jobsrunning", INTEGER), Column("owner"),
    Column("created", INSTANT), Column("on_previous_running"), Column("on_execution_failure"),
    Column("command"),
)  # fmt: skip
CHANGED = (
    Column("id", INTEGER), Column("label"), Column("schedule_status"), Column("next_run", INSTANT),
)  # fmt: skip
RUNS = (
    Column("run_id"), Column("job_name"), Column("schedule_id", INTEGER), Column("state"),
    Column("attempt", INTEGER), Column("created_at", INSTANT), Column("due_at", INSTANT),
    Column("started_at", INSTANT), Column("finished_at", INSTANT), Column("created_by"),
    Column("args", JSON), Column("error"), Column("reason"),
)  # fmt: skip
EXPLAINED = (
    Column("next_run", INSTANT), Column("local_time"), Column("in_words"), Column("note"),
)  # fmt: skip


def some_schedules(control: Control, status: str | None) -> tuple[list[Schedule], bool]:
    """All of them, or those that are paused or not; and whether there are more than shown."""
    found: list[Schedule] = []
    after = ""
    while page := control.schedules(after=after, limit=PAGE):
        after = page[-1].name
        found += [one for one in page if status is None or one.paused == (status == "PAUSED")]
        if len(found) > SELECT_ROWS:
            return found[:SELECT_ROWS], True
        if len(page) < PAGE:
            break
    return found, False


def schedules(control: Control, found: Sequence[Schedule], *, more: bool = False) -> Result:
    running = control.running_by_schedule() if found else {}
    jobs = _jobs_of(control, found)
    rows = tuple(
        (
            one.id,
            one.name,
            one.status,
            next_run(one),
            one.state if one.error is None else redact_text(one.error),
            recurrence(one),
            running.get(one.id, 0),
            one.owner,
            one.created_at,
            ON_PREVIOUS_RUNNING.get(one.overlap, one.overlap),
            ON_EXECUTION_FAILURE.get(one.on_error, one.on_error),
            _command(one, jobs.get(one.job)),
        )
        for one in found
    )
    return Result(columns=SCHEDULES, rows=rows, more=more)


def _jobs_of(control: Control, found: Sequence[Schedule]) -> dict[str, Job]:
    """The jobs that may have SQL of their own: those that are called like their schedule."""
    names = sorted({one.job for one in found if one.job == one.name})
    return control.jobs_named(names) if names else {}


def _command(schedule: Schedule, job: Job | None) -> str:
    if job is not None and job.shared:
        return shorten(str(job.spec.get("text", "")), SELECT_CELL_LENGTH)
    args = f" WITH {quoted(told_args(schedule))}" if schedule.args else ""
    return f"RUN JOB {schedule.job}{args}"


def changed(found: Iterable[Schedule], *, status: str | None = None) -> Result:
    """What became of schedules."""
    rows = tuple(
        (one.id, one.name, status or one.status, None if status else next_run(one)) for one in found
    )
    return Result(columns=CHANGED, rows=rows)


def next_run(schedule: Schedule) -> datetime | None:
    """NULL unless it fires by itself; also while it waits for the end of its run."""
    moment = schedule.next_fire_at
    if schedule.status != "ACTIVE" or moment is None or moment >= WAITING_FOR_RUN:
        return None
    return moment


def recurrence(schedule: Schedule) -> str:
    """As the view `jobs` says it."""
    return schedule.expr if schedule.kind == "cron" else f"{schedule.kind} {schedule.expr}"


def recreation(schedule: Schedule, statement: str) -> Result:
    columns = (Column("id", INTEGER), Column("label"), Column(CREATE_STATEMENT))
    return Result(columns=columns, rows=((schedule.id, schedule.name, statement),))


def jobs(control: Control) -> Result:
    """The view of that name without what is retired, true and false as such on every engine."""
    found = control.select(
        f"SELECT * FROM jobs WHERE coalesce(error, '') NOT LIKE '{RETIRED}%' ORDER BY name"
    )
    flags = {place for place, name in enumerate(found.names) if name in ("enabled", "running")}
    rows = tuple(
        tuple(bool(cell) if place in flags else cell for place, cell in enumerate(row))
        for row in found.rows
    )
    columns = tuple(
        Column(column.name, BOOLEAN if place in flags else column.type)
        for place, column in enumerate(found.columns)
    )
    return Result(columns=columns, rows=rows, more=found.more)


def runs(control: Control, *, job: str | None, schedule: str | None) -> Result:
    """The newest."""
    found = control.runs(job=job, schedule=schedule, limit=PAGE)
    rows = tuple(
        (
            run.id, run.job, run.schedule_id, run.state, run.attempt, run.created_at, run.due_at,
            run.started_at, run.finished_at, run.created_by, run.args, run.error, run.reason,
        )
        for run in found
    )  # fmt: skip
    return Result(columns=RUNS, rows=rows, more=len(found) == PAGE)


def explanation(told: Explanation) -> Result:
    """The next times; then what keeps it from running, if anything does."""
    rows: list[tuple[Any, ...]] = [
        (one.at, one.at.isoformat(), told.words, one.note) for one in told.coming
    ]
    rows += [(None, None, told.words, reason) for reason in told.reasons]
    return Result(columns=EXPLAINED, rows=tuple(rows) or ((None, None, told.words, None),))


def made(run: Enqueued, job: str) -> Result:
    """A run that was asked for."""
    columns = (Column("run_id"), Column("job_name"))
    return Result(columns=columns, rows=((run.id, redact(job)),))
