"""Explain a schedule: in words, when it comes next, and why it is not running now.

Also answers "why did it not run at 02:00?" from the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from rota.errors import Unknown
from rota.flow.words import SOME, counted
from rota.flow.workers import serves, taking, why_none
from rota.model.cron_words import cron_in_words
from rota.model.job import Job
from rota.model.limits import PAGE
from rota.model.records import dropped_in_words
from rota.model.run import Run, slot_keys
from rota.model.schedule import WAITING_FOR_RUN, Schedule
from rota.model.zone import parse_zone
from rota.storage import operations
from rota.storage.store import AnyStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """An occurrence to come, in the schedule's own zone."""

    at: datetime
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`reasons` is empty when nothing keeps the schedule and its runs from going on."""

    schedule: Schedule
    words: str
    coming: list[Coming]
    reasons: list[str]


def explain(store: AnyStore, name: str, count: int) -> Explanation:
    schedule, now = _schedule(store, name), store.now()
    return Explanation(
        schedule=schedule,
        words=in_words(schedule),
        coming=list(coming(schedule, now, count)),
        reasons=list(_reasons(store, schedule, now)),
    )


def _schedule(store: AnyStore, name: str) -> Schedule:
    """The schedule; whoever names a job without one hears that, and how it runs."""
    try:
        return store.read(operations.schedule_named, name)
    except Unknown:
        if name not in store.read(operations.jobs_named, [name]):
            raise
    others = ", ".join(
        repr(one.name) for one in store.read(operations.list_schedules, job=name, limit=SOME)
    )
    if others:
        raise Unknown(f"job {name!r} has no schedule of its name; explain one of: {others}")
    raise Unknown(f"job {name!r} has no schedule: it runs when asked, as by `rota run {name}`")


def _job(store: AnyStore, schedule: Schedule) -> Job | None:
    return store.read(operations.jobs_named, [schedule.job]).get(schedule.job)


def coming(schedule: Schedule, now: datetime, count: int) -> Iterator[Coming]:
    """The next times at which it fires, as far as they are known.

    The first may be past: then it is due, and waits for a scheduler.
    """
    if schedule.status != "ACTIVE" or schedule.next_fire_at == WAITING_FOR_RUN:
        return
    zone, cron, moment = (
        parse_zone(schedule.timezone),
        schedule.calendar.cron,
        schedule.next_fire_at,
    )
    for _ in range(count):
        if moment is None:
            return
        note = None if cron is None else cron.note(moment, zone, schedule.dst)
        if moment < now:
            note = "due: no scheduler has seen it yet"
        elif schedule.delays:
            note = f"then {schedule.expr} after each run's end"
        yield Coming(at=moment.astimezone(zone), note=note)
        if schedule.delays:
            return
        moment = replace(schedule, next_fire_at=moment).next_after(max(moment, now))


def why(store: AnyStore, name: str, at: datetime) -> str:
    """What became of the occurrence at an instant, in a sentence."""
    if (dropped := store.read(operations.dropped_schedule, name)) is not None:
        row = store.read(operations.occurrence_at, dropped["schedule_id"], at)
        told = "not in the ledger" if row is None else _told(row)
        return f"{at.isoformat()}: {told}; {dropped_in_words(dropped)}"
    schedule = _schedule(store, name)
    shown = at.astimezone(parse_zone(schedule.timezone)).isoformat()
    row = store.read(operations.occurrence_at, schedule.id, at)
    if row is not None:
        return f"{shown}: {_told(row)}"
    cursor, now = schedule.next_fire_at, store.now()
    if schedule.calendar.next_after(at - timedelta(microseconds=1), cursor) != at:
        return f"{shown}: not an occurrence of {schedule.described()}"
    if cursor is not None and at >= cursor and at > now:
        return f"{shown}: still to come"
    if cursor is not None and at >= cursor:
        reasons = (
            "; ".join(_standstill(schedule, _job(store, schedule)))
            or "no scheduler has seen it yet"
        )
        return f"{shown}: did not run: {reasons}"
    return f"{shown}: not in the ledger; the schedule did not exist, or its timing was another"


def in_words(schedule: Schedule) -> str:
    """What the timing means in English."""
    if schedule.error is not None:
        return schedule.described()
    match schedule.kind:
        case "cron":
            cron = schedule.calendar.cron
            assert cron is not None
            return f"{cron_in_words(cron)} ({schedule.timezone})"
        case "every":
            tail = " after the end of each run" if schedule.delays else ""
            return f"Every {schedule.expr}{tail}"
        case _:
            return f"Once, at {schedule.expr}"


def _reasons(store: AnyStore, schedule: Schedule, now: datetime) -> Iterator[str]:
    """What keeps it from running, from the schedule on down to the worker."""
    job = _job(store, schedule)
    yield from _standstill(schedule, job)
    dispatch = store.read(operations.meta).get("dispatch", "on")
    if dispatch != "on":
        yield f"dispatch is off: {dispatch}; `rota resume --dispatch` turns it on"
    yield from _line(store, schedule)
    yield from _workers(store, schedule, job, now)


def _standstill(schedule: Schedule, job: Job | None) -> Iterator[str]:
    """Why the schedule itself makes no runs."""
    if schedule.error is not None:
        yield f"it is broken: {schedule.error}"
    if not schedule.enabled and job is not None and job.retired:
        yield f"its job is {job.error}"
    elif not schedule.enabled and "enabled" in schedule.operator_changes():
        yield f"it was disabled here: `rota schedule {schedule.name} --enabled` lets it fire again"
    elif not schedule.enabled:
        yield "it is disabled in its definition (enabled = false): set it to true there"
    if schedule.paused:
        since = schedule.paused_at.isoformat(timespec="seconds") if schedule.paused_at else "?"
        reason = f": {schedule.paused_reason}" if schedule.paused_reason else ""
        yield (
            f"it was paused by {schedule.paused_by} at {since}{reason}; "
            f"`rota resume {schedule.name}` lets it go on"
        )
    if schedule.next_fire_at is None and schedule.error is None:
        yield "it is finished: there is no further occurrence"


def _line(store: AnyStore, schedule: Schedule) -> Iterator[str]:
    """Runs in the way of the next one."""
    if schedule.slot is None:
        return
    (key,) = slot_keys(schedule.slot, None)
    for owner in store.read(operations.slot_owners, key):
        yield f"run {owner.id} of {owner.job!r} is {_state_in_words(owner)}" + _held_up(schedule)
    waiting = store.read(operations.count_held, key)
    if waiting:
        full = schedule.queue_max is not None and waiting >= schedule.queue_max
        tail = f"; the line is full (queue_max {schedule.queue_max})" if full else ""
        yield f"{counted(waiting, 'run')} {'waits' if waiting == 1 else 'wait'} in line{tail}"


def _state_in_words(run: Run) -> str:
    match run.state:
        case "running":
            since = run.started_at.isoformat(timespec="seconds") if run.started_at else "?"
            return f"running since {since} on {run.worker_id}"
        case "waiting":
            return f"between attempts until {run.due_at.isoformat(timespec='seconds')}"
        case "queued":
            return "queued for a worker"
        case "held":
            return f"held: it waits for {run.wanted_key}"
        case _:
            return run.state


def _held_up(schedule: Schedule) -> str:
    return {
        "skip": "; until it ends, occurrences are skipped",
        "wait": "; the next one waits for its end",
        "queue": "; later ones queue behind it",
    }.get(schedule.overlap, "")


def _workers(store: AnyStore, schedule: Schedule, job: Job | None, now: datetime) -> Iterator[str]:
    if job is None:
        yield (
            f"job {schedule.job!r} is not registered by any process; start the app that has it "
            "(`rota up MODULE:APP`), or put its file into jobs.d"
        )
        return
    if job.retired:
        return  # there is nothing that a worker could know
    for queue in store.read(operations.list_queues, limit=PAGE):
        if queue["name"] == job.queue and queue["paused"]:
            reason = f": {queue['reason']}" if queue["reason"] else ""
            yield (
                f"queue {job.queue!r} is paused by {queue['paused_by']}{reason}; "
                f"`rota resume --queue {job.queue}` lets it go on"
            )
    workers = store.read(operations.list_workers, limit=PAGE)
    live = taking(workers, now)
    if not live:
        yield f"{why_none(workers, now)}; start one with `rota up [MODULE:APP]`"
    elif not any(schedule.job in one["jobs"] for one in live):
        way = f": {job.error}" if job.error else "; start one that does: `rota up [MODULE:APP]`"
        yield f"no live worker knows job {schedule.job!r}{way}"
    elif not any(schedule.job in one["jobs"] and serves(one, job.queue) for one in live):
        yield (
            f"no live worker that knows job {schedule.job!r} serves queue {job.queue!r}; "
            f"start one with --queue {job.queue}, or without --queue for all"
        )


def _told(row: dict[str, Any]) -> str:
    reason = f": {row['reason']}" if row["reason"] else ""
    run = f", run {row['run_id']}" if row["run_id"] else ""
    many = ""
    if row["count"] is None or row["count"] > 1:
        number = "very many" if row["count"] is None else row["count"]
        many = f", one of {number} until {row['last_occurrence'].isoformat()}"
    return f"{row['outcome']}{reason}{run}{many}"
