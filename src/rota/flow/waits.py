"""Why a run waits though it is due: nobody who is alive can run its job, or serves its queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rota.flow.words import SOME
from rota.flow.workers import serves, taking
from rota.model.job import Job
from rota.model.limits import PAGE
from rota.model.outcome import error_line
from rota.model.run import Run
from rota.model.transitions import QUEUED
from rota.storage import operations
from rota.storage.store import AnyStore

ERROR_SHOWN = 500


def with_reasons(store: AnyStore, runs: Sequence[Run]) -> list[Run]:
    """The same runs; those that wait in a queue for nobody have that as their reason. It is true
    of this moment, and therefore said and not stored."""
    names = {run.job for run in runs if _is_asked(run)}
    if not names:
        return list(runs)
    now = store.now()
    live = taking(store.read(operations.list_workers, limit=PAGE), now)
    known = {name for worker in live for name in worker["jobs"]}
    jobs = store.read(operations.jobs_named, sorted(names - known))
    reasons: dict[tuple[str, str], str | None] = {}
    for run in runs:
        if _is_asked(run) and (run.job, run.queue) not in reasons:
            reasons[run.job, run.queue] = (
                why_none_serves(live, run.job, run.queue)
                if run.job in known
                else why_nobody_can(run.job, jobs.get(run.job))
            )
    return [
        replace(run, reason=reasons[run.job, run.queue]) if _is_asked(run) else run for run in runs
    ]


def why_nobody_can(name: str, job: Job | None) -> str:
    """What has to happen before a job that no live worker knows can run."""
    if job is not None and job.error:
        error = error_line(job.error, limit=ERROR_SHOWN)
        return f"nobody can run the job {name!r} before this is mended: {error}"
    return f"no live worker knows the job {name!r}; start one with `rota up [MODULE:APP]`"


def why_none_serves(live: Sequence[dict[str, Any]], job: str, queue: str) -> str | None:
    """What to start where all who know the job work on other queues; None if one takes it."""
    knowing = [worker for worker in live if job in worker["jobs"]]
    if any(serves(worker, queue) for worker in knowing):
        return None
    others = sorted({name for worker in knowing for name in worker["queues"]})
    more = f" and {len(others) - SOME} more" if len(others) > SOME else ""
    return (
        f"no live worker that knows the job {job!r} serves queue {queue!r} "
        f"(they serve {', '.join(others[:SOME])}{more}); start one with --queue {queue}, "
        "or without --queue for all"
    )


def cannot_run(job: Job) -> str | None:
    """Why waiting for a run of it is in vain, whoever starts: its files are gone, or were never
    such that they could be used. None if a worker may come that can."""
    hopeless = job.retired or not job.was_valid
    return why_nobody_can(job.name, job) if hopeless else None


def _is_asked(run: Run) -> bool:
    return run.state == QUEUED and run.reason is None
