"""Execute statements through the same control functions as every other surface.

Each returns rows with column names and types. A schedule is named by its name or its id. A schedule
that does not exist is an error if the statement names it, and is skipped if a query returned it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

from rota.errors import Conflict, Invalid, Unknown
from rota.flow.control import Control
from rota.model.job import DEFAULT_QUEUE, Job
from rota.model.limits import SELECT_ROWS, clip
from rota.model.options import default_of, kind_of, make_schedule, named, retry_policy_of
from rota.model.result import INTEGER, Column, Result
from rota.model.retry import ONCE, Retry
from rota.model.schedule import Schedule
from rota.sql import show
from rota.sql.options import job_options, retry_options, schedule_options, sql_spec
from rota.sql.parser import parse
from rota.sql.recreate import create_statement
from rota.sql.statements import (
    CANCEL,
    DROP,
    PAUSE,
    AlterSchedule,
    Body,
    ChangeRuns,
    ChangeSchedules,
    CreateSchedule,
    Dispatch,
    ExecuteSchedule,
    Explain,
    RunJob,
    Select,
    ShowCreate,
    ShowJobs,
    ShowRuns,
    ShowSchedule,
    ShowSchedules,
    Statement,
    Timing,
)

VIA = "sql"  # in the audit log
Changes = ChangeSchedules | ChangeRuns


class Statements:
    """Executes statements as the actor of `control`.

    `timezone` is the default of new schedules; `targets` are the known names of databases, None if
    they are not known here."""

    def __init__(
        self,
        control: Control,
        *,
        timezone: str = "UTC",
        targets: Collection[str] | None = None,
    ) -> None:
        self.control, self.timezone, self.targets = control, timezone, targets

    def parse(self, text: str) -> list[Statement]:
        return parse(text, self.control.dialect)

    def run(self, text: str) -> Iterator[Result]:
        """Execute the statements of a text in order; none if one of them cannot be parsed."""
        for statement in self.parse(text):
            yield self.execute(statement)

    def execute(self, statement: Statement) -> Result:
        table: dict[type[Statement], Callable[[Any], Result]] = {
            Select: self._select,
            ShowSchedules: self._show_schedules,
            ShowSchedule: self._show_schedule,
            ShowCreate: self._show_create,
            ShowJobs: self._show_jobs,
            ShowRuns: self._show_runs,
            Explain: self._explain,
            CreateSchedule: self._create,
            AlterSchedule: self._alter,
            ChangeSchedules: self._change_schedules,
            ChangeRuns: self._change_runs,
            ExecuteSchedule: self._execute_schedule,
            RunJob: self._run_job,
            Dispatch: self._dispatch,
        }
        return table[type(statement)](statement)

    # Queries

    def _select(self, statement: Select) -> Result:
        return self.control.select(statement.sql)

    def _show_schedules(self, statement: ShowSchedules) -> Result:
        schedules, more = show.list_schedules(self.control, statement.status)
        return show.schedules(self.control, schedules, more=more)

    def _show_schedule(self, statement: ShowSchedule) -> Result:
        return show.schedules(self.control, [self._schedule(statement.schedule)])

    def _show_create(self, statement: ShowCreate) -> Result:
        schedule = self._schedule(statement.schedule)
        job = self.control.jobs_named([schedule.job]).get(schedule.job)
        return show.recreation(schedule, create_statement(schedule, job))

    def _show_jobs(self, statement: ShowJobs) -> Result:
        return show.jobs(self.control)

    def _show_runs(self, statement: ShowRuns) -> Result:
        if statement.job is not None:
            self.control.job(statement.job)  # Unknown, by its name
        schedule = statement.schedule
        if schedule is not None and self.control.dropped(schedule) is None:
            schedule = self._schedule(schedule).name
        return show.runs(self.control, job=statement.job, schedule=schedule)

    def _explain(self, statement: Explain) -> Result:
        name = self._schedule(statement.schedule).name
        return show.explanation(self.control.explain(name, count=statement.count))

    # Creating and altering

    def _create(self, statement: CreateSchedule) -> Result:
        if statement.if_not_exists:
            with suppress(Unknown):
                return show.changed([self.control.schedule(statement.name)])
        options = statement.options
        with named(f"schedule {statement.name!r}"):
            job = None if statement.body is None else self._job(statement.name, None, statement)
            values = {
                "timezone": self.timezone,
                "owner": self.control.actor.by,
                **_without_none(self._schedule_options(options)),
                **(retry := _without_none(retry_options(options))),
            }
            of_job = self._retry_of(job, statement.job or statement.name) if retry else None
        timing = _timing(statement.timing)
        schedule = make_schedule(
            statement.name, statement.job or statement.name, timing, values, of_job
        )
        try:
            return show.changed([self.control.put_schedule(schedule, job, new=True)])
        except Conflict:
            if not statement.if_not_exists:
                raise
            with suppress(Unknown):  # another process created it first
                return show.changed([self.control.schedule(statement.name)])
            raise

    def _alter(self, statement: AlterSchedule) -> Result:
        """Change the options that are set; the cursor stays unless the timing changes."""
        before = self._schedule(statement.schedule)
        if before.error is not None and statement.timing is None:
            raise Invalid(
                f"schedule {before.name!r} is broken ({before.error}); set its timing too"
            )
        with named(f"schedule {before.name!r}"):
            own_job = self._own_job(before, statement)
            job = None if own_job is None else self._job(before.name, own_job, statement)
            changes = {
                name: default_of(name, self.timezone) if value is None else value
                for name, value in self._schedule_options(statement.options).items()
            }
            if statement.timing is not None:
                changes["kind"], changes["expr"] = kind_of(**_timing(statement.timing))
            if statement.job is not None:
                changes["job"] = self.control.job(statement.job).name
            if retry_changes := retry_options(statement.options):
                of_job = self._retry_of(job, statement.job or before.job)
                changes["retry"] = retry_policy_of(retry_changes, of_job, before.retry)
        schedule = replace(before, **changes)
        # Both rows are written whole, so the versions that were read must still be current.
        saved = self.control.put_schedule(
            schedule,
            job,
            version=before.version,
            job_version=None if own_job is None else own_job.version,
        )
        return show.changed([saved])

    def _retry_of(self, job: Job | None, name: str) -> Retry:
        """The retry policy of a schedule's job: its own SQL job, or an existing one."""
        return (job or self.control.job(name)).retry

    def _own_job(self, before: Schedule, statement: AlterSchedule) -> Job | None:
        """The stored SQL job of the schedule if the statement changes it."""
        if statement.body is None and not job_options(statement.options):
            return None
        job = self.control.job(before.job)
        if job.name != before.name or not job.shared:
            raise Invalid(
                f"its job {job.name!r} was not made by CREATE SCHEDULE … AS; change it where it is "
                "defined"
            )
        return job

    def _job(self, name: str, before: Job | None, statement: CreateSchedule | AlterSchedule) -> Job:
        body, options = statement.body or Body(), job_options(statement.options)
        if body.target is not None and self.targets is not None and body.target not in self.targets:
            known = ", ".join(sorted(self.targets))
            raise Unknown(
                f"target {body.target!r} is unknown; known are {known}: add it to [targets] in "
                "rota.toml"
            )
        stored = before or Job(name=name, executor="sql", source="api", retry=ONCE)
        spec = sql_spec(stored.spec, body.text, body.target, options)
        changes: dict[str, Any] = {
            field: default if options[field] is None else options[field]
            for field, default in _JOB_DEFAULTS.items()
            if field in options
        }
        return replace(stored, spec=spec, enabled=True, error=None, **changes)

    def _schedule_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        values = schedule_options(options)
        for name in ("first_run", "starts_at"):
            if isinstance(values.get(name), str) and values[name].lower() == "now":
                values[name] = self.control.now()
        return values

    # Changes

    def _change_schedules(self, statement: ChangeSchedules) -> Result:
        act = {PAUSE: self.control.pause, DROP: self.control.drop}.get(
            statement.verb, self.control.resume
        )
        changed = []
        for schedule in self._target_schedules(statement):
            # Of many, skip a schedule that is gone by now or belongs to a file.
            with suppress(Unknown, Conflict) if statement.schedule is None else nullcontext():
                after = act(schedule.name, statement.reason)
                changed.append(schedule if after is None else after)
        return show.changed(changed, status="DROPPED" if statement.verb == DROP else None)

    def _change_runs(self, statement: ChangeRuns) -> Result:
        act = {PAUSE: self.control.pause_runs, CANCEL: self.control.cancel_runs}.get(
            statement.verb, self.control.resume_runs
        )
        rows = []
        for schedule in self._target_schedules(statement):
            with suppress(Unknown) if statement.schedule is None else nullcontext():
                rows.append((schedule.id, schedule.name, act(schedule.name, statement.reason)))
        columns = (Column("id", INTEGER), Column("label"), Column("runs", INTEGER))
        return Result(columns=columns, rows=tuple(rows))

    def _target_schedules(self, statement: Changes) -> list[Schedule]:
        """The schedules that a statement names, or that its query finds."""
        if statement.schedule is None:
            ids = self.resolve_query(statement).ids or ()
            return list(self._existing(ids))
        if_exists = isinstance(statement, ChangeSchedules) and statement.if_exists
        with suppress(Unknown) if if_exists else nullcontext():
            return [self._schedule(statement.schedule)]
        return []

    def resolve_query(self, statement: Changes) -> Changes:
        """The statement with the ids of the schedules that its query finds, without the query."""
        if statement.query is None:
            return statement
        result = self.control.select(statement.query)
        if len(result.columns) != 1:
            raise Invalid(
                f"the query gives {len(result.columns)} columns; it must give one, the id or the "
                "name of schedules"
            )
        if result.more:
            raise Invalid(f"the query gives more than {SELECT_ROWS:,} rows; narrow it")
        ids: dict[int, None] = {}
        for (which,) in result.rows:
            with suppress(Unknown):
                ids[self._by_value(which).id] = None
        return replace(statement, query=None, ids=tuple(ids))

    def _existing(self, schedule_ids: Iterable[int]) -> Iterator[Schedule]:
        for schedule_id in schedule_ids:
            with suppress(Unknown):
                yield self._by_id(schedule_id)

    def _by_value(self, which: object) -> Schedule:
        if isinstance(which, bool) or not isinstance(which, int | str):
            raise Unknown(f"{which!r} is no schedule")
        return self._by_id(which) if isinstance(which, int) else self.control.schedule(which)

    def _schedule(self, which: str) -> Schedule:
        """The schedule by name, or by id."""
        try:
            return self.control.schedule(which)
        except Unknown:
            if not which.isascii() or not which.isdecimal() or len(which) > 18:
                raise
        return self._by_id(int(which))

    def _by_id(self, schedule_id: int) -> Schedule:
        name = self.control.schedule_name(schedule_id) if abs(schedule_id) < 2**62 else None
        if name is None:
            raise Unknown(f"schedule {schedule_id} does not exist; SHOW SCHEDULES lists them")
        return self.control.schedule(name)

    # Runs and dispatch

    def _execute_schedule(self, statement: ExecuteSchedule) -> Result:
        schedule = self._schedule(statement.schedule)
        return show.made(self.control.trigger(schedule.name), schedule.job)

    def _run_job(self, statement: RunJob) -> Result:
        return show.made(self.control.trigger_job(statement.job, statement.args), statement.job)

    def _dispatch(self, statement: Dispatch) -> Result:
        if statement.on:
            self.control.resume_dispatch()
        else:
            self.control.pause_dispatch(statement.reason)
        state = clip(str(self.control.overview()["dispatch"]), 500)
        return Result(columns=(Column("dispatch"),), rows=((state,),))


def _timing(timing: Timing) -> dict[str, Any]:
    return {timing.kind: timing.expr}


def _without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


_JOB_DEFAULTS = {"timeout": None, "queue": DEFAULT_QUEUE, "description": ""}
