"""Make runs: `enqueue` with arguments, `run` as the schedule or the job itself would."""

from __future__ import annotations

import json
import time
from typing import Annotated

from rota.cli.arguments import read_arguments
from rota.cli.find import schedule_or_none
from rota.cli.main import FAILED, OK
from rota.cli.options import BOTH, HERE, JOBS, QUEUES, Arg, Option, Wait, Where
from rota.cli.output import note, say, say_json
from rota.cli.progress import SPINNER_SECONDS, Progress
from rota.cli.records import run_record
from rota.cli.results import say_result
from rota.cli.store import nobody_else_can_run, operating
from rota.cli.times import took
from rota.errors import Conflict
from rota.flow.control import Control
from rota.flow.enqueue import Options
from rota.flow.waits import cannot_run
from rota.model.job import LAST_GOOD
from rota.model.outcome import error_line, error_text
from rota.model.run import Enqueued, Run
from rota.model.transitions import SUCCEEDED, TERMINAL

LOOK_SECONDS = 0.1
# How long a run may wait before we say why nobody takes it.
PATIENCE_SECONDS = 2.0


def enqueue(
    job: Annotated[
        str,
        Option("A job that some process has registered; rota jobs lists them.", "JOB", values=JOBS),
    ],
    /,
    *,
    arg: Arg = None,
    args: Annotated[str | None, Option("All arguments, as a JSON object.", "JSON")] = None,
    delay: Annotated[str | None, Option("Due after this time, such as 10m.", "DURATION")] = None,
    at: Annotated[
        str | None, Option("Due at this instant, such as 2026-03-29T02:30:00+01:00.", "INSTANT")
    ] = None,
    key: Annotated[
        str | None, Option("Enqueue only if no run of the job has this key.", "TEXT")
    ] = None,
    key_ttl: Annotated[
        str | None,
        Option("How long the key counts; as long as the run is kept if not given.", "DURATION"),
    ] = None,
    priority: Annotated[int | None, Option("Higher first; the job's own if not given.")] = None,
    queue: Annotated[
        str | None, Option("Another queue than the job's own.", "TEXT", values=QUEUES)
    ] = None,
    concurrency_key: Annotated[str | None, Option("Runs with one key take turns.", "TEXT")] = None,
    concurrency_limit: Annotated[
        int | None, Option("How many with one key may run at a time.")
    ] = None,
    max_attempts: Annotated[int | None, Option("Failures until the run is dead.")] = None,
    timeout: Annotated[str | None, Option("The longest an attempt may take.", "DURATION")] = None,
    wait: Wait = False,
    where: Where = HERE,
) -> int:
    """Enqueue a run of a job."""
    with operating(where) as control:
        options = Options(
            delay=delay,
            at=at,
            key=key,
            key_ttl=key_ttl,
            priority=priority,
            queue=queue,
            concurrency_key=concurrency_key,
            concurrency_limit=concurrency_limit,
            max_attempts=max_attempts,
            timeout=timeout,
        )
        check_wait(control, wait, where, job)
        told = read_arguments(control.job(job), arg, args)
        return _answer(control, control.enqueue(job, told, options), wait, where)


def run(
    name: Annotated[
        str, Option("A schedule, with its own arguments, or a job.", "JOB|SCHEDULE", values=BOTH)
    ],
    /,
    *,
    arg: Arg = None,
    args: Annotated[
        str | None,
        Option(
            "All arguments, as a JSON object. A schedule's own are kept where none is given.",
            "JSON",
        ),
    ] = None,
    force: Annotated[bool, Option("Run even while another run of it is under way.")] = False,
    wait: Wait = False,
    where: Where = HERE,
) -> int:
    """Run a job or a schedule now. The schedule's next time stays as it is."""
    with operating(where) as control:
        job = _job_of(control, name)
        check_wait(control, wait, where, job)
        told = None
        if arg or args is not None:
            told = read_arguments(control.job(job), arg, args)
        return _answer(control, control.trigger(name, told, force=force), wait, where)


def _job_of(control: Control, name: str) -> str:
    """A schedule's job, or the job that is meant."""
    schedule = schedule_or_none(control, name)
    return name if schedule is None else schedule.job


def check_wait(control: Control, wait: bool, where: Where, job: str) -> None:
    """Refuse to wait for what cannot happen."""
    if not wait:
        return
    known = control.jobs_named([job]).get(job)
    reason = None if known is None else cannot_run(known)
    if reason is not None:
        raise Conflict(f"{reason}; leave out --wait to queue it all the same")
    if nobody_else_can_run(where, control):
        raise Conflict(
            "no process runs on this DuckDB store, and none can start while --wait has it open; "
            "start `rota up` first, or leave out --wait"
        )


def _answer(control: Control, made: Enqueued, wait: bool, where: Where) -> int:
    run = control.run(made.id)
    job = control.job(run.job)
    # A run that nobody can run says so itself.
    if job.error is not None and job.was_valid and run.reason is None:
        note(f"{error_line(job.error, limit=500)}; {LAST_GOOD}")
    if wait:
        return say_end(wait_for_end(control, made.id, where), where)
    # A program may enqueue before its workers start; a person wants to know now.
    if run.reason and (not where.json or job.error):
        note(run.reason)
    if where.json:
        say_json({"id": made.id, "created": made.created})
    elif made.created:
        say(f"run {made.id} is enqueued; look at it with `rota show {made.id}`")
    else:
        say(f"run {made.id} has this key already; nothing was enqueued")
    return OK


def wait_for_end(control: Control, run_id: str, where: Where) -> Run:
    """The run when it is over; meanwhile people see how far it is, and its last log line."""
    began, hinted = time.monotonic(), False
    try:
        with Progress(silent=where.json, after=SPINNER_SECONDS) as progress:
            while (run := control.run(run_id)).state not in TERMINAL:
                if not hinted and run.attempt == 0 and time.monotonic() - began > PATIENCE_SECONDS:
                    hinted = True
                    progress.clear()
                    _say_why_it_waits(run)
                if progress.drawn:
                    progress.show(_under_way(run) + _last_line(control, run))
                time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        note(f"the run goes on without us; look at it with `rota show {run_id}`")
        raise
    return run


def _last_line(control: Control, run: Run) -> str:
    lines = control.log_tail(run.id, limit=1)
    return f": {lines[0]['text']}" if lines else ""


def _under_way(run: Run) -> str:
    """`running, attempt 2, 30 of 120 (25 %)`, as far as its handler tells."""
    told = [run.state] if run.attempt == 0 else [run.state, f"attempt {run.attempt}"]
    progress = {} if run.progress is None else json.loads(run.progress)
    done, total = progress.get("done"), progress.get("total")
    if done is not None:
        share = f" of {total:g} ({done / total:.0%})" if total else ""
        told.append(f"{done:g}{share}")
    return ", ".join(told)


def _say_why_it_waits(run: Run) -> None:
    if run.state == "held":
        note(
            "another run of it is under way; this one is next in line (--force does not wait). "
            "Ctrl-C leaves it there"
        )
    elif run.reason:
        note(f"{run.reason}. It is waited for; Ctrl-C leaves it queued")


def say_end(run: Run, where: Where) -> int:
    """Tell how a run ended; the exit code."""
    if where.json:
        say_json(run_record(run))
    elif run.state == SUCCEEDED:
        say(f"run {run.id} succeeded in {took(run.started_at, run.finished_at)}")
        if run.result not in (None, "null"):
            say_result(json.loads(run.result))
    else:
        told = error_text(run.error or run.reason)
        say(f"run {run.id} is {run.state}{f': {told}' if told else ''}")
    return OK if run.state == SUCCEEDED else FAILED
