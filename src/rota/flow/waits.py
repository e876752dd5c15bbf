"""Why a run waits though it is due: nobody who is alive can run its job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rota.flow.explain import LIVE
from rota.model.job import Job
from rota.model.limits import PAGE
from rota.model.outcome import error_line
from rota.model.redact import redact_text
from rota.model.run import Run
from rota.model.transitions import QUEUED
from rota.storage.protocol import Storage

ERROR_LENGTH = 500


def with_reasons(storage: Storage, runs: Sequence[Run]) -> list[Run]:
    """The same runs; those that wait in a queue for nobody have that as their reason. It is true
    of this moment, and therefore said and not stored."""
    names = {run.job for run in runs if _is_asked(run)}
    if not names:
        return list(runs)
    now = storage.now()
    workers = storage.list_workers(limit=PAGE)
    known = {
        name for worker in workers if now - worker["seen_at"] <= LIVE for name in worker["jobs"]
    }
    jobs = storage.jobs_named(sorted(names - known))
    return [
        replace(run, reason=why_nobody_can(run.job, jobs.get(run.job)))
        if _is_asked(run) and run.job not in known
        else run
        for run in runs
    ]


def why_nobody_can(name: str, job: Job | None) -> str:
    """What has to happen before a job that no live worker knows can run."""
    if job is not None and job.error:
        error = redact_text(error_line(job.error, limit=ERROR_LENGTH))
        return f"nobody can run the job {name!r} before this is mended: {error}"
    return f"no live worker knows the job {name!r}; start one with `rota up [MODULE:APP]`"


def _is_asked(run: Run) -> bool:
    return run.state == QUEUED and run.reason is None
