"""Runs: what operators do to them, each with its audit row, and how they are found and listed."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from rota.errors import Conflict, Unknown
from rota.model.duration import EPOCH
from rota.model.run import RUN_ID, Attempt, Run
from rota.model.steps import begin_at, step_names
from rota.model.transitions import (
    PAUSED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    TERMINAL,
    may_delete,
    require,
)
from rota.storage import rows
from rota.storage.engine import Row, Transaction
from rota.storage.operations.audit import Actor, audit
from rota.storage.operations.delays import restart_delays
from rota.storage.operations.settling import OnTerminated, add_to_end
from rota.storage.operations.slots import admit

# How many of the newest runs are looked through for those of one job, before its index is.
RECENT_RUNS = 1_000


UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Up to so many runs that wait are sorted to find the newest of them.
RARE_RUNS = 5_000


def cancel_run(
    tx: Transaction,
    run_id: str,
    reason: str | None,
    actor: Actor,
    on_terminated: OnTerminated | None = None,
    *,
    running: bool = True,
) -> Run:
    """End a run that has not started; ask for the end of one that runs, unless `running` is
    false: then it is left alone."""
    run = lock_run(tx, run_id)
    require(run.state, "cancel", f"run {run_id}")
    if run.state == RUNNING and not running:
        return run
    told = reason or f"cancelled by {actor.by}"
    if run.state == RUNNING:
        tx.all("request_cancel", seq=run.seq, reason=told)
    else:
        tx.all("cancel_run", seq=run.seq, reason=told)
        restart_delays(tx, [(run.schedule_id, run.occurrence)])
        freed = {row["key"] for row in tx.many("release_slots", [{"seq": run.seq}])}
        admit(tx, freed)
        if on_terminated is not None:
            add_to_end(tx, run.seq, on_terminated)
    changed = get_run(tx, run_id)
    audit(tx, actor, "cancel_run", run_id, reason, run.state, changed.state)
    return changed


def redo_run(
    tx: Transaction,
    run_id: str,
    reason: str | None,
    actor: Actor,
    *,
    from_step: str | None = None,
    latest: bool = False,
) -> Run:
    """Start over a run that has ended: fresh counts, attempt numbers go on. Its steps begin at
    the first that is not done, or at `from_step`, with the texts it had; `latest` forgets
    those, so that it begins with the files as they are then, at the first or at `from_step`."""
    run = lock_run(tx, run_id)
    require(run.state, "redo", f"run {run_id}")
    _reopen_steps(tx, run, from_step, latest)
    tx.all("redo_run", seq=run.seq, reason=reason)
    changed = get_run(tx, run_id)
    audit(tx, actor, "redo_run", run_id, reason, run.state, changed.state)
    return changed


def _reopen_steps(tx: Transaction, run: Run, from_step: str | None, latest: bool) -> None:
    tx.all("unpin_marks", seq=run.seq)
    if from_step is not None:
        _begin_at(tx, run, from_step, latest)
    elif latest or run.state == SUCCEEDED:  # after a success no step is left to begin at
        tx.all("void_marks", seq=run.seq, number=0)
    if latest:
        tx.many("delete_run_files", [{"seq": run.seq}])


def _begin_at(tx: Transaction, run: Run, from_step: str, latest: bool) -> None:
    kept = [row["name"] for row in tx.all("run_files", seq=run.seq)]
    names, what = None, f"run {run.id}"
    if latest:
        names, what = _latest_steps(tx, run.job), f"job {run.job!r} as it is now"
    begin = begin_at(from_step, kept, names, what)
    tx.all("void_marks", seq=run.seq, number=begin.forget)
    tx.all("pin_marks", seq=run.seq, number=begin.first)


def _latest_steps(tx: Transaction, name: str) -> tuple[str, ...]:
    row = tx.one("jobs_named", names=[name])
    if row is None:
        raise Unknown(f"job {name!r} does not exist any more, so there is no latest version")
    job = rows.checked_job(row)
    return step_names(job.executor, job.spec)


def pause_run(tx: Transaction, run_id: str, reason: str | None, actor: Actor) -> Run:
    """Hold a run back. A running one is asked, and stops where its executor can."""
    run = lock_run(tx, run_id)
    require(run.state, "pause", f"run {run_id}")
    statement = "pause_run" if run.state in PENDING else "request_pause"
    tx.all(statement, seq=run.seq, reason=reason)
    changed = get_run(tx, run_id)
    audit(tx, actor, "pause_run", run_id, reason, run.state, changed.state)
    return changed


def resume_run(tx: Transaction, run_id: str, reason: str | None, actor: Actor) -> Run:
    run = lock_run(tx, run_id)
    require(run.state, "resume", f"run {run_id}")
    tx.all("resume_run", seq=run.seq, reason=reason)
    changed = get_run(tx, run_id)
    audit(tx, actor, "resume_run", run_id, reason, run.state, changed.state)
    return changed


def delete_run(tx: Transaction, run_id: str, reason: str | None, actor: Actor) -> None:
    run = lock_run(tx, run_id)
    restart_delays(tx, [(run.schedule_id, run.occurrence)])
    if not may_delete(run.state) or not delete_runs(tx, [run.seq]):
        raise Conflict(f"run {run_id} is running; cancel it first, then delete it")
    audit(tx, actor, "delete_run", run_id, reason, run.state)


def delete_runs(tx: Transaction, seqs: list[int]) -> int:
    deleted = tx.many("delete_runs", [{"seq": seq} for seq in sorted(seqs)])
    gone = [{"seq": row["seq"]} for row in deleted]
    tx.many("delete_attempts", gone)
    tx.many("delete_logs", gone)
    for statement in ("delete_steps", "delete_marks", "delete_run_files"):
        tx.many(statement, gone)
    tx.many("delete_keys", [{"id": row["id"]} for row in deleted])
    freed = {row["key"] for row in tx.many("release_slots", gone)}
    admit(tx, freed)
    return len(deleted)


def list_runs(
    tx: Transaction,
    *,
    job: str | None = None,
    schedule_id: int | None = None,
    state: str | None = None,
    queue: str | None = None,
    before: int | None = None,
    limit: int,
) -> list[Run]:
    """Newest first, in pages: `before` is the seq of the last one seen."""
    params: dict[str, Any] = {
        "before": before if before is not None else 2**62,
        "state": state,
        "queue": queue,
        "limit": limit,
    }
    name = "list_runs"
    if schedule_id is not None:
        name, params["schedule_id"], params["job"] = "list_runs_of_schedule", schedule_id, job
    elif job is not None:
        name, params["job"] = "list_runs_of_job", job
        recent = tx.all("recent_runs_of_job", recent=RECENT_RUNS, **params)
        if len(recent) == limit:
            return [rows.run(row) for row in recent]
    elif state is not None and _is_rare(tx, state):
        name = "list_runs_of_state"
    return [rows.run(row) for row in tx.all(name, **params)]


def count_matching_runs(
    tx: Transaction,
    state: str,
    *,
    job: str | None = None,
    schedule_id: int | None = None,
    queue: str | None = None,
    limit: int,
) -> int:
    """How many runs there are like this; counting ends at `limit`."""
    if job is None and queue is None and schedule_id is None:
        return _count_state(tx, state, limit)
    params = {"state": state, "job": job, "queue": queue, "schedule_id": schedule_id}
    name = "count_rare_runs" if _is_rare(tx, state) else "count_matching_runs"
    row = tx.one(name, limit=limit, **params)
    return 0 if row is None else int(row["runs"])


def _count_state(tx: Transaction, state: str, limit: int) -> int:
    """From the index alone, where the engine can: the rows themselves lie far apart."""

    if state in TERMINAL:
        found = tx.all("count_ended", since_at=EPOCH, limit=limit)
    else:
        found = tx.all("count_open", limit=limit)
    return sum(row["runs"] for row in found if row["state"] == state)


def _is_rare(tx: Transaction, state: str) -> bool:
    """True if the runs of a state are better found by its own index than among all. Of what is
    plenty, the newest are found soon."""
    if state in TERMINAL or state in (PAUSED, RUNNING):
        return state != SUCCEEDED
    found = tx.all("count_open", limit=RARE_RUNS)
    return any(row["state"] == state and row["runs"] < RARE_RUNS for row in found)


def run_ids(tx: Transaction, prefix: str, *, limit: int) -> list[str]:
    """Ids that begin like this, by the index; the caller has checked that one can."""
    low, high = prefix + RUN_ID[len(prefix) :], prefix + RUN_ID.replace("0", "f")[len(prefix) :]
    found = tx.all("run_ids_between", low=low, high=high, limit=limit)
    return [row["id"] for row in found]


def list_attempts(tx: Transaction, seq: int, *, limit: int) -> list[Attempt]:
    found = tx.all("list_attempts", seq=seq, limit=limit)
    return [rows.attempt(row) for row in found]


def list_logs(tx: Transaction, seq: int, *, after: int = 0, limit: int) -> list[Row]:
    return tx.all("list_logs", seq=seq, after=after, limit=limit)


def tail_logs(tx: Transaction, seq: int, *, before: int | None = None, limit: int) -> list[Row]:
    """The last lines, in their order."""
    last = before if before is not None else 2**62
    found = tx.all("tail_logs", seq=seq, before=last, limit=limit)
    return found[::-1]


def list_events(
    tx: Transaction, *, run_id: str | None = None, before: int | None = None, limit: int
) -> list[Row]:
    if run_id is not None and not UUID.fullmatch(run_id):
        return []
    last = before if before is not None else 2**62
    return tx.all("list_events", run_id=run_id, before=last, limit=limit)


def get_run(tx: Transaction, run_id: str) -> Run:
    return _one_run(tx, run_id, "run_by_id")


def _one_run(tx: Transaction, run_id: str, statement: str) -> Run:
    # A text that is no id names no run: PostgreSQL, whose ids are uuids, would refuse it.
    row = tx.one(statement, id=run_id) if UUID.fullmatch(run_id) else None
    if row is None:
        raise Unknown(f"run {run_id!r} does not exist; `rota runs` lists them")
    return rows.run(row)


def lock_run(tx: Transaction, run_id: str) -> Run:
    """Read a run and keep others from changing it until we commit."""
    return _one_run(tx, run_id, "lock_run")


def running_by_schedule(tx: Transaction) -> dict[int, int]:
    """How many runs of each schedule workers have now."""
    found = tx.all("running_by_schedule")
    return {row["schedule_id"]: row["running"] for row in found}


def brief_runs(tx: Transaction, seqs: Collection[int]) -> list[Row]:
    return tx.all("brief_runs", seqs=sorted(seqs))


def attempts_above(tx: Transaction, numbers: Mapping[int, int], *, limit: int) -> list[Attempt]:
    """Those of several runs that ended, in their order; `numbers` says above which one, by the
    seq of the run."""
    if not numbers:
        return []
    told = {"seqs": list(numbers), "numbers": list(numbers.values())}
    found = tx.all("attempts_above", **told, limit=limit)
    return [rows.attempt(row) for row in found]


def queued_jobs(tx: Transaction, *, limit: int) -> list[Row]:
    return tx.all("queued_jobs", limit=limit)


def list_dead_runs(tx: Transaction, *, before: int, limit: int) -> list[Row]:
    """The dead, newest first, with their errors."""
    return tx.all("dead_runs", before=before, limit=limit)


def runs_between(
    tx: Transaction, since_at: datetime, until_at: datetime, *, limit: int, looked: int
) -> tuple[list[Row], bool]:
    """Those that run, those that ran across the end of this stretch, and those that ended in
    it, the latest first. Of what ended later only the first `looked` are known; true if there
    were so many."""
    later = tx.all("ended_from", from_at=until_at, limit=looked)
    begun = [one for one in later if one["started_at"] and one["started_at"] < until_at]
    seqs = [one["seq"] for one in begun[-limit:]]
    across = tx.all("brief_runs", seqs=seqs) if seqs else []
    found = [
        *tx.all("brief_running", limit=limit),
        *sorted(across, key=lambda one: one["finished_at"], reverse=True),
        *tx.all("brief_ended", since_at=since_at, until_at=until_at, limit=limit),
    ]
    return found, len(later) >= looked
