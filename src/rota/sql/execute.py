"""Do what statements say, by the same control functions as every other surface.

Each gives rows with names and types. A schedule is named by its name or its number; one that does
not exist is an error where it is named, and no row where a query finds it.
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
from rota.model.options import default_of, kind_of, make_schedule, named, told_retry
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

VIA = "sql"  # what the audit says
Changes = ChangeSchedules | ChangeRuns


class Statements:
    """`control` says in whose name. `timezone` is that of schedules that name none; `targets` are
    the databases that SQL may be for, None if they are not known here."""

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
        """Each statement of a text, one after the other; none if one of them cannot be read."""
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

    # Looking

    def _select(self, statement: Select) -> Result:
        return self.control.select(statement.sql)

    def _show_schedules(self, statement: ShowSchedules) -> Result:
        found, more = show.some_schedules(self.control, statement.status)
        return show.schedules(self.control, found, more=more)

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
        told = statement.options
        with named(f"schedule {statement.name!r}"):
            job = None if statement.body is None else self._job(statement.name, None, statement)
            options = {
                "timezone": self.timezone,
                "owner": self.control.actor.by,
                **_given(self._schedule_options(told)),
                **(retry := _given(retry_options(told))),
            }
            of_job = self._retry_of(job, statement.job or statement.name) if retry else None
        timing = _timing(statement.timing)
        wanted = make_schedule(
            statement.name, statement.job or statement.name, timing, options, of_job
        )
        try:
            return show.changed([self.control.put_schedule(wanted, job, new=True)])
        except Conflict:
            if not statement.if_not_exists:
                raise
            with suppress(Unknown):  # somebody was faster
                return show.changed([self.control.schedule(statement.name)])
            raise

    def _alter(self, statement: AlterSchedule) -> Result:
        """What is not told stays; the cursor too, unless the timing changes."""
        before = self._schedule(statement.schedule)
        if before.error is not None and statement.timing is None:
            raise Invalid(
                f"schedule {before.name!r} is broken ({before.error}); set its timing too"
            )
        with named(f"schedule {before.name!r}"):
            own = self._own_job(before, statement)
            job = None if own is None else self._job(before.name, own, statement)
            told = {
                name: default_of(name, self.timezone) if value is None else value
                for name, value in self._schedule_options(statement.options).items()
            }
            if statement.timing is not None:
                told["kind"], told["expr"] = kind_of(**_timing(statement.timing))
            if statement.job is not None:
                told["job"] = self.control.job(statement.job).name
            if retry := retry_options(statement.options):
                of_job = self._retry_of(job, statement.job or before.job)
                told["retry"] = told_retry(retry, of_job, before.retry)
        wanted = replace(before, **told)
        # Both rows are written whole: what is not told must still be as it was read.
        saved = self.control.put_schedule(
            wanted,
            job,
            version=before.version,
            job_version=None if own is None else own.version,
        )
        return show.changed([saved])

    def _retry_of(self, job: Job | None, name: str) -> Retry:
        """The retry policy of a schedule's job: its own SQL, or one that exists."""
        return (job or self.control.job(name)).retry

    def _own_job(self, before: Schedule, statement: AlterSchedule) -> Job | None:
        """The SQL job of the schedule as it is, if the statement is about it."""
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
        body, told = statement.body or Body(), job_options(statement.options)
        if body.target is not None and self.targets is not None and body.target not in self.targets:
            known = ", ".join(sorted(self.targets))
            raise Unknown(
                f"target {body.target!r} is unknown; known are {known}: add it to [targets] in "
                "rota.toml"
            )
        old = before or Job(name=name, executor="sql", source="api", retry=ONCE)
        spec = sql_spec(old.spec, body.text, body.target, told)
        own: dict[str, Any] = {
            field: plain if told[field] is None else told[field]
            for field, plain in _JOB_DEFAULTS.items()
            if field in told
        }
        return replace(old, spec=spec, enabled=True, error=None, **own)

    def _schedule_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        told = schedule_options(options)
        for name in ("first_run", "starts_at"):
            if isinstance(told.get(name), str) and told[name].lower() == "now":
                told[name] = self.control.now()
        return told

    # Changing

    def _change_schedules(self, statement: ChangeSchedules) -> Result:
        act = {PAUSE: self.control.pause, DROP: self.control.drop}.get(
            statement.verb, self.control.resume
        )
        done = []
        for schedule in self._meant(statement):
            # Of many, one that is gone by now or belongs to a file does not keep the others.
            with suppress(Unknown, Conflict) if statement.schedule is None else nullcontext():
                after = act(schedule.name, statement.reason)
                done.append(schedule if after is None else after)
        return show.changed(done, status="DROPPED" if statement.verb == DROP else None)

    def _change_runs(self, statement: ChangeRuns) -> Result:
        act = {PAUSE: self.control.pause_runs, CANCEL: self.control.cancel_runs}.get(
            statement.verb, self.control.resume_runs
        )
        rows = []
        for schedule in self._meant(statement):
            with suppress(Unknown) if statement.schedule is None else nullcontext():
                rows.append((schedule.id, schedule.name, act(schedule.name, statement.reason)))
        columns = (Column("id", INTEGER), Column("label"), Column("runs", INTEGER))
        return Result(columns=columns, rows=tuple(rows))

    def _meant(self, statement: Changes) -> list[Schedule]:
        """The schedules that a statement is about."""
        if statement.schedule is None:
            found = self.look_up(statement).found or ()
            return list(self._existing(found))
        if_exists = isinstance(statement, ChangeSchedules) and statement.if_exists
        with suppress(Unknown) if if_exists else nullcontext():
            return [self._schedule(statement.schedule)]
        return []

    def look_up(self, statement: Changes) -> Changes:
        """The statement with the schedules that its query finds, and without the query."""
        if statement.query is None:
            return statement
        found = self.control.select(statement.query)
        if len(found.columns) != 1:
            raise Invalid(
                f"the query gives {len(found.columns)} columns; it must give one, the id or the "
                "name of schedules"
            )
        if found.more:
            raise Invalid(f"the query gives more than {SELECT_ROWS:,} rows; narrow it")
        meant: dict[int, None] = {}
        for (which,) in found.rows:
            with suppress(Unknown):
                meant[self._by_value(which).id] = None
        return replace(statement, query=None, found=tuple(meant))

    def _existing(self, numbers: Iterable[int]) -> Iterator[Schedule]:
        for number in numbers:
            with suppress(Unknown):
                yield self._by_id(number)

    def _by_value(self, which: object) -> Schedule:
        if isinstance(which, bool) or not isinstance(which, int | str):
            raise Unknown(f"{which!r} is no schedule")
        return self._by_id(which) if isinstance(which, int) else self.control.schedule(which)

    def _schedule(self, which: str) -> Schedule:
        """By name, or by number."""
        try:
            return self.control.schedule(which)
        except Unknown:
            if not which.isascii() or not which.isdecimal() or len(which) > 18:
                raise
        return self._by_id(int(which))

    def _by_id(self, number: int) -> Schedule:
        name = self.control.schedule_name(number) if abs(number) < 2**62 else None
        if name is None:
            raise Unknown(f"schedule {number} does not exist; SHOW SCHEDULES lists them")
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


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


_JOB_DEFAULTS = {"timeout": None, "queue": DEFAULT_QUEUE, "description": ""}
