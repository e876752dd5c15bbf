"""The rows that statements return about schedules, jobs and runs, without secrets."""

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
from rota.sql.recreate import quoted, redacted_args

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


def list_schedules(control: Control, status: str | None) -> tuple[list[Schedule], bool]:
    """(schedules, whether there are more than the limit); all, or those paused or not."""
    schedules: list[Schedule] = []
    after = ""
    while page := control.schedules(after=after, limit=PAGE):
        after = page[-1].name
        schedules += [
            schedule
            for schedule in page
            if status is None or schedule.paused == (status == "PAUSED")
        ]
        if len(schedules) > SELECT_ROWS:
            return schedules[:SELECT_ROWS], True
        if len(page) < PAGE:
            break
    return schedules, False


def schedules(control: Control, schedules: Sequence[Schedule], *, more: bool = False) -> Result:
    running = control.running_by_schedule() if schedules else {}
    jobs = _jobs_of(control, schedules)
    rows = tuple(
        (
            schedule.id,
            schedule.name,
            schedule.status,
            next_run(schedule),
            schedule.state if schedule.error is None else redact_text(schedule.error),
            recurrence(schedule),
            running.get(schedule.id, 0),
            schedule.owner,
            schedule.created_at,
            ON_PREVIOUS_RUNNING.get(schedule.overlap, schedule.overlap),
            ON_EXECUTION_FAILURE.get(schedule.on_error, schedule.on_error),
            _command(schedule, jobs.get(schedule.job)),
        )
        for schedule in schedules
    )
    return Result(columns=SCHEDULES, rows=rows, more=more)


def _jobs_of(control: Control, schedules: Sequence[Schedule]) -> dict[str, Job]:
    """Jobs with the name of their schedule: only these may be SQL of CREATE SCHEDULE."""
    names = sorted({schedule.job for schedule in schedules if schedule.job == schedule.name})
    return control.jobs_named(names) if names else {}


def _command(schedule: Schedule, job: Job | None) -> str:
    if job is not None and job.shared:
        return shorten(str(job.spec.get("text", "")), SELECT_CELL_LENGTH)
    args = f" WITH {quoted(redacted_args(schedule))}" if schedule.args else ""
    return f"RUN JOB {schedule.job}{args}"


def changed(schedules: Iterable[Schedule], *, status: str | None = None) -> Result:
    """The state of schedules after a change."""
    rows = tuple(
        (
            schedule.id,
            schedule.name,
            status or schedule.status,
            None if status else next_run(schedule),
        )
        for schedule in schedules
    )
    return Result(columns=CHANGED, rows=rows)


def next_run(schedule: Schedule) -> datetime | None:
    """The next fire; None if it is not ACTIVE, or waits for the end of its run."""
    moment = schedule.next_fire_at
    if schedule.status != "ACTIVE" or moment is None or moment >= WAITING_FOR_RUN:
        return None
    return moment


def recurrence(schedule: Schedule) -> str:
    """The timing as the view `jobs` has it."""
    return schedule.expr if schedule.kind == "cron" else f"{schedule.kind} {schedule.expr}"


def recreation(schedule: Schedule, statement: str) -> Result:
    columns = (Column("id", INTEGER), Column("label"), Column(CREATE_STATEMENT))
    return Result(columns=columns, rows=((schedule.id, schedule.name, statement),))


def jobs(control: Control) -> Result:
    """The view `jobs` without retired jobs, with booleans as such on every engine."""
    view = control.select(
        f"SELECT * FROM jobs WHERE coalesce(error, '') NOT LIKE '{RETIRED}%' ORDER BY name"
    )
    flags = {index for index, name in enumerate(view.names) if name in ("enabled", "running")}
    rows = tuple(
        tuple(bool(cell) if index in flags else cell for index, cell in enumerate(row))
        for row in view.rows
    )
    columns = tuple(
        Column(column.name, BOOLEAN if index in flags else column.type)
        for index, column in enumerate(view.columns)
    )
    return Result(columns=columns, rows=rows, more=view.more)


def runs(control: Control, *, job: str | None, schedule: str | None) -> Result:
    """The newest runs."""
    newest = control.runs(job=job, schedule=schedule, limit=PAGE)
    rows = tuple(
        (
            run.id, run.job, run.schedule_id, run.state, run.attempt, run.created_at, run.due_at,
            run.started_at, run.finished_at, run.created_by, run.args, run.error, run.reason,
        )
        for run in newest
    )  # fmt: skip
    return Result(columns=RUNS, rows=rows, more=len(newest) == PAGE)


def explanation(explained: Explanation) -> Result:
    """The next times, then the reasons why it does not run now, if there are any."""
    rows: list[tuple[Any, ...]] = [
        (occurrence.at, occurrence.at.isoformat(), explained.words, occurrence.note)
        for occurrence in explained.coming
    ]
    rows += [(None, None, explained.words, reason) for reason in explained.reasons]
    return Result(columns=EXPLAINED, rows=tuple(rows) or ((None, None, explained.words, None),))


def made(run: Enqueued, job: str) -> Result:
    """The run that a statement created."""
    columns = (Column("run_id"), Column("job_name"))
    return Result(columns=columns, rows=((run.id, redact(job)),))
