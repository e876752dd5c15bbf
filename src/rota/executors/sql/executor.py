"""The sql executor: runs the files of a folder in order, each in a transaction.

Every check that can refuse a job runs before the first statement. On the store's own database, a
file and the record that it is done commit together: after a crash the next attempt continues at the
first file that is not done, and no file runs twice. On any other target the record follows the
commit. An attempt that skips finished files first restores the session state that they had set.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from rota import tracing
from rota.errors import Invalid, LeaseLost, RotaError
from rota.executors.attempt import conclude
from rota.executors.context import Context
from rota.executors.scripts import Scripts
from rota.executors.sql.files import read_scripts, step_file
from rota.executors.sql.interrupt import STEP_TIMEOUT, Interrupts
from rota.executors.sql.places import RunTarget, open_target, session_on
from rota.executors.sql.scripts import close_instances, prepare
from rota.executors.sql.session import (
    Interrupted,
    RestoreFailed,
    Session,
    SqlFailed,
    transaction_of,
)
from rota.executors.variables import values_of
from rota.model.duration import parse_duration
from rota.model.interpolate import Script
from rota.model.job import Job
from rota.model.limits import ERROR_LENGTH, check_key, check_name
from rota.model.outcome import Outcome
from rota.model.redact import secrets_of, shorten
from rota.model.sql_script import is_autonomous, makes_secret, session_statements
from rota.model.steps import AT_LEAST_ONCE, TEXT_STEP, StepDone, StepFile

log = logging.getLogger("rota.sql")


class SqlExecutor:
    name = "sql"

    def __init__(self, scripts: Scripts | None = None) -> None:
        """`scripts` are the texts of the jobs' folders, as they were accepted."""
        self._scripts = Scripts() if scripts is None else scripts

    def check(self, job: Job) -> None:
        """Refuse a job that no worker could run. Its files are read when it runs."""
        spec = job.spec
        files, text = spec.get("files"), spec.get("text")
        if isinstance(text, str) == (files is not None):
            raise Invalid(f"job {job.name!r}: SQL is given as a folder with files, or as text")
        if text is None and not (isinstance(spec.get("folder"), str) and files):
            raise Invalid(f"job {job.name!r}: a folder of SQL needs at least one .sql file")
        if spec.get("step_timeout") is not None:
            parse_duration(spec["step_timeout"], "step_timeout")
        if spec.get("target") is not None:
            check_name(spec["target"], "target")
        if spec.get("run_as") is not None:
            check_key(spec["run_as"], "run_as")

    def run(self, context: Context) -> Outcome:
        if context.stop_reason is not None:
            return conclude(None, context)
        values = values_of(context)
        try:
            return SqlRun(context, values, self._scripts).run()
        except LeaseLost:
            return Outcome(kind="lost", error="the lease was lost")
        except Interrupted:
            return conclude(None, context)
        except RotaError as fault:
            if context.stop_reason is not None:
                return conclude(None, context)
            return Outcome(kind="failed", error=_redacted(str(fault), values))

    def close(self) -> None:
        close_instances()


class SqlRun:
    """An attempt of a SQL job."""

    def __init__(self, context: Context, values: dict[str, str], stored: Scripts) -> None:
        spec = context.definition.spec
        self.stored = stored
        self.context, self.values, self.spec = context, values, spec
        self.steps, self.target = context.steps, context.target
        self.role: str | None = spec.get("run_as")
        self.step_timeout: str | None = spec.get("step_timeout")
        seconds = self.step_timeout and parse_duration(self.step_timeout, "").total_seconds()
        self.interrupts = Interrupts(context, seconds or None)

    def run(self) -> Outcome:
        files = self.steps.kept_files()
        if not files:
            files = self._read()
            self.steps.keep_files(files)
        try:
            scripts = prepare(files, self.values, self.target.kind)
        except Invalid as fault:  # a retry would find the same texts
            return self._failed(str(fault), final=True)
        secrets = any(makes_secret(script, self.target.kind) for script in scripts)
        with open_target(self.context, self.target, makes_secrets=secrets) as run_target:
            return self._run_files(files, scripts, run_target)

    def _read(self) -> list[StepFile]:
        kind = self.target.kind
        if (text := self.spec.get("text")) is not None:
            return [step_file(1, TEXT_STEP, text, kind)]
        job = self.context.definition
        scripts = self.stored.of(job) or read_scripts(job, self.steps.texts_of)
        return [
            step_file(number, name, script, kind)
            for number, (name, script) in enumerate(scripts, start=1)
        ]

    def _run_files(
        self, files: Sequence[StepFile], scripts: Sequence[Script], run_target: RunTarget
    ) -> Outcome:
        finished, result = self.steps.done(), None
        skipped: list[tuple[StepFile, Script]] = []
        for file, script in zip(files, scripts, strict=True):
            if file.number in finished:
                skipped.append((file, script))
                continue
            self.interrupts.check()
            if self.steps.pause_requested():
                return Outcome(kind="paused")
            self.steps.begin(file)
            outcome, done = self._run_file(file, script, run_target, skipped)
            skipped = []
            if outcome is not None:
                return outcome
            result = done.result
            with suppress(RotaError):  # progress is for display only
                self.context.progress(file.number, len(files))
        return Outcome(kind="succeeded", result=result)

    def _run_file(
        self,
        file: StepFile,
        script: Script,
        run_target: RunTarget,
        skipped: Sequence[tuple[StepFile, Script]],
    ) -> tuple[Outcome | None, StepDone]:
        """Run a file; returns an outcome if it ends the run, and the result of the file.

        `skipped` are the finished files just before it."""
        with tracing.step(self.context.span, file.name) as step:
            try:
                for finished in skipped:
                    self._restore(*finished, run_target)
                return None, self._execute(file, script, run_target)
            except LeaseLost:
                raise
            except (Interrupted, SqlFailed, RotaError) as fault:
                outcome = self._ended(file, script, fault)
                step.failed(outcome.error)
                return outcome, StepDone()

    def _execute(self, file: StepFile, script: Script, run_target: RunTarget) -> StepDone:
        if self.target.is_store and not is_autonomous(file.text):
            return self._in_store(file, script)
        return self._on_target(file, script, run_target)

    def _in_store(self, file: StepFile, script: str) -> StepDone:
        """Run a file and record it in the same transaction of the store."""
        with self.steps.transaction(file) as transaction:
            session = session_on(self.target.kind, transaction.connection)
            if self.role:
                session.act_as(self.role, in_transaction=True)
            with self.interrupts.during(session):
                done = session.run(script, self.interrupts.check, self.context.secrets)
            try:
                transaction.commit(done)
            except RotaError:
                raise
            except Exception as fault:  # of the driver, such as a deferred constraint
                raise SqlFailed(f"{_first_line(fault)} (at its commit)") from fault
        return done

    def _on_target(self, file: StepFile, script: Script, run_target: RunTarget) -> StepDone:
        """Run a file on its target, then record it."""
        run_target.provide_views(script, self.steps)
        done = self._perform(run_target.session(), script, wrapped=not is_autonomous(file.text))
        self.steps.finish(file, done, AT_LEAST_ONCE)
        return done

    def _perform(self, session: Session, script: Script, *, wrapped: bool) -> StepDone:
        with transaction_of(session, wrapped=wrapped, stopped=self.interrupts.stopped):
            if self.role:
                session.act_as(self.role, in_transaction=wrapped)
            with self.interrupts.during(session):
                return session.run(script, self.interrupts.check, self.context.secrets)

    def _restore(self, file: StepFile, script: Script, run_target: RunTarget) -> None:
        """Restore the session state that a finished file had set.

        On the store each file has its own session, so that only the state of a DuckDB instance is
        restored there."""
        statements = list(session_statements(script, self.target.kind))
        if not statements:
            return
        wrapped = not is_autonomous(file.text)
        is_extra = self.target.is_store and wrapped
        session = run_target.extra_session() if is_extra else run_target.session()
        if session is None:
            return
        try:
            for statement in statements:
                part = script.part(statement.start, statement.end)
                try:
                    self._perform(session, part, wrapped=wrapped)
                except SqlFailed as fault:
                    if statement.removes and not self.interrupts.stopped():
                        continue  # the object is already removed
                    raise RestoreFailed(fault, file.name, part, statement.keywords[0]) from fault
        finally:
            if is_extra:
                session.close()

    def _ended(self, file: StepFile, script: Script, fault: Exception) -> Outcome:
        """Record a failed file and return the outcome of the run."""
        reason = self.interrupts.reason
        if reason is None:
            failed = fault if isinstance(fault, SqlFailed) else SqlFailed(str(fault))
            outcome = self._failed(failed.at(file.name, script))
        elif reason == STEP_TIMEOUT:
            message = f"{file.name}: timed out after {self.step_timeout} (step_timeout)"
            outcome = Outcome(kind="timed_out", error=message)
        else:
            outcome = conclude(None, self.context)
        status = outcome.kind if outcome.kind in ("failed", "timed_out") else "cancelled"
        try:
            self.steps.fail(file, status, outcome.error or outcome.reason or status)
        except RotaError as away:  # the outcome matters, and its settle is retried for longer
            log.warning("the end of step %s was not recorded: %s", file.name, away)
        return outcome

    def _failed(self, message: str, *, final: bool = False) -> Outcome:
        return Outcome(kind="failed", error=_redacted(message, self.values), final=final)


def _redacted(message: str, values: dict[str, str]) -> str:
    """The message without values of secret variables, which it may quote from the SQL."""
    return shorten(message, ERROR_LENGTH, secrets_of(values))


def _first_line(fault: Any) -> str:
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0]
