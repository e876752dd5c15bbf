"""React to dead runs as on_error and pause_after of their schedules say, where they died."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from rota.model.on_error import MOST_RETRIES, DeadRunAction, on_dead_run, retries_within, retry_id
from rota.model.outcome import Settlement, error_line
from rota.model.run import NewRun, Run
from rota.model.schedule import Schedule
from rota.storage import rows
from rota.storage.engine import Transaction
from rota.storage.operations.audit import SYSTEM, record_change
from rota.storage.operations.installation import read_clock

STATE_LENGTH = 300


def react_to_dead_runs(tx: Transaction, dead: Sequence[Settlement]) -> None:
    """Only runs that stand for an occurrence concern their schedule."""
    concerned = [one.run for one in dead if one.run.occurrence is not None]
    ids = sorted({run.schedule_id for run in concerned if run.schedule_id is not None})
    if not ids:
        return
    schedules = {row["id"]: rows.schedule(row) for row in tx.all("lock_schedules", ids=ids)}
    now = read_clock(tx)
    for run in concerned:
        schedule = schedules.get(run.schedule_id or 0)
        row = tx.one("run_by_seq", seq=run.seq)
        if schedule is None or schedule.error is not None or row is None:
            continue  # dropped meanwhile, or broken: its runs go on alone
        died = rows.run(row)
        deaths, retries = _deaths_in_a_row(tx, schedule), _retries(tx, schedule, died)
        reaction = on_dead_run(schedule, died, now, deaths, retries)
        schedules[schedule.id] = _carry_out(tx, schedule, died, reaction)


def _deaths_in_a_row(tx: Transaction, schedule: Schedule) -> int:
    if schedule.pause_after is None:
        return 1
    ends = tx.all("recent_ends", schedule_id=schedule.id, limit=schedule.pause_after)
    states = [row["state"] for row in ends]
    return states.index("succeeded") if "succeeded" in states else len(states)


def _retries(tx: Transaction, schedule: Schedule, died: Run) -> int:
    """How many retries of this occurrence led to the one that died, itself included."""
    count, earlier = 0, died.retry_of if schedule.on_error == "retry" else None
    while earlier is not None and count < MOST_RETRIES:
        row = tx.one("run_by_id", id=earlier)
        if row is None:  # pruned, or deleted: the time that has passed tells how many at most
            began, ended = died.occurrence, died.finished_at
            passed = ended - began if began and ended else timedelta(0)
            return max(count + 1, retries_within(passed))
        count, earlier = count + 1, row["retry_of"]
    return count


def _carry_out(tx: Transaction, schedule: Schedule, died: Run, reaction: DeadRunAction) -> Schedule:
    error = error_line(died.error, limit=STATE_LENGTH)
    told = f"run {died.id} died: {error}"
    if reaction.retry_at is not None:
        tx.many("insert_runs", [rows.new_run_row(_retry(schedule, died, reaction))])
        told += f"; tried again at {reaction.retry_at.isoformat(timespec='seconds')}"
    if reaction.pause_reason is None:
        tx.all("set_schedule_state", id=schedule.id, state=told[:STATE_LENGTH])
        return schedule
    reason = f"{reaction.pause_reason}: {error}"[:STATE_LENGTH]
    row = tx.one(
        "pause_schedule", id=schedule.id, by=SYSTEM.by, reason=reason, state=f"paused: {reason}"
    )
    assert row is not None, "react() leaves paused schedules alone"
    paused = rows.schedule(row)
    record_change(tx, paused, SYSTEM, "pause", reason, schedule, paused)
    return paused


def _retry(schedule: Schedule, died: Run, reaction: DeadRunAction) -> NewRun:
    """The same occurrence once more: cursor and ledger are not touched."""
    return NewRun(
        id=retry_id(died),
        job=died.job,
        queue=died.queue,
        args=died.args,
        priority=died.priority,
        due_at=reaction.retry_at,
        max_attempts=died.max_attempts,
        timeout=died.timeout,
        backoff=died.backoff,
        overlap_key=died.overlap_key,
        concurrency_key=died.concurrency_key,
        concurrency_limit=died.concurrency_limit,
        schedule_id=schedule.id,
        occurrence=died.occurrence,
        retry_of=died.id,
        trace=died.trace,
        created_by=f"schedule {schedule.name} (on_error = retry)",
    )
