"""Fire: move cursors, decide overlap, insert runs and ledger rows, all in one transaction.

Schedules that are due at one instant and alike are a group: what a plan says of one of them it says
of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from rota.errors import Invalid, StorageError
from rota.model.duration import format_duration
from rota.model.job import Job
from rota.model.limits import MISSED_COUNT
from rota.model.plan import FirePlan, OccurrenceRange, PlannedRun
from rota.model.policies import decide_overlap
from rota.model.run import ClaimedRun, occurrence_ids, slot_keys
from rota.model.schedule import Schedule
from rota.storage import rows
from rota.storage.engine import Row, Transaction
from rota.storage.operation import single_statement
from rota.storage.operations.audit import Finished, record_finished
from rota.storage.operations.claiming import ClaimRequest, claim_rows
from rota.storage.operations.delays import restart_delay
from rota.storage.operations.installation import read_clock


class AlreadyFired(StorageError):
    """The ledger knows an occurrence that the cursor said was still to come. `fired`: what was
    committed before that was seen."""

    fired: Fired | None = None


class Broken(NamedTuple):
    """A schedule that cannot be planned, as it was read, and why."""

    id: int
    cursor: datetime
    revision: int
    error: str


@dataclass(frozen=True, slots=True)
class Due:
    """Due schedules, their jobs, and the instant they were read at. `broken` rows could not be
    understood."""

    now: datetime
    schedules: list[Schedule]
    jobs: dict[str, Job]
    broken: list[Broken]
    full: bool


@dataclass(frozen=True, slots=True)
class Fired:
    """What became of plans: whose cursors were moved here, and how many occurrences had which
    outcome. One that waits for its run to be counted counts as MISSED_COUNT. `claimed`: runs that
    are the claimant's now."""

    moved: frozenset[int]
    outcomes: Mapping[str, int]
    claimed: tuple[ClaimedRun, ...] = ()

    @property
    def runs(self) -> int:
        return self.outcomes.get("fired", 0)

    def __add__(self, other: Fired) -> Fired:
        return Fired(
            self.moved | other.moved,
            Counter(self.outcomes) + Counter(other.outcomes),
            self.claimed + other.claimed,
        )


NOTHING_FIRED = Fired(frozenset(), {})


def due_schedules(
    tx: Transaction, limit: int, *, newest: bool = False, ahead: timedelta = timedelta(0)
) -> Due:
    """Schedules whose cursor has come, or comes within `ahead`; oldest or newest first."""
    statement = "newest_due_schedules" if newest else "due_schedules"

    found = tx.all(statement, limit=limit, ahead_seconds=ahead.total_seconds())
    # The clock is read afterwards: what was due a moment ago is due by it.
    now = read_clock(tx)
    names = sorted({row["job"] for row in found})
    jobs = tx.all("jobs_named", names=names) if names else []
    known: dict[str, Job] = {}
    unreadable: dict[str, str] = {}
    for row in jobs:
        try:
            known[row["name"]] = rows.checked_job(row)
        except Invalid as fault:  # nobody knows its queue, its key, its timeout: nothing fires
            unreadable[row["name"]] = f"{fault}, and the schedule goes on once it is put again"
    good, broken = [], []
    for row in found:
        try:
            if row["job"] in unreadable:
                raise Invalid(unreadable[row["job"]])
            good.append(rows.checked_schedule(dict(row)))
        except Exception as fault:  # one corrupt row must not delay the others
            cursor, revision = row["next_fire_at"], row["revision"]
            broken.append(Broken(row["id"], cursor, revision, str(fault)))
    return Due(now, good, known, broken, len(found) == limit)


def next_fire_at(tx: Transaction) -> tuple[datetime, datetime | None]:
    """(now, the earliest cursor)."""
    row = tx.one("next_fire_at")
    return read_clock(tx), row["next_fire_at"] if row else None


@single_statement
def disable_broken_schedules(tx: Transaction, broken: Sequence[Broken]) -> set[int]:
    """Take schedules that cannot be planned out of the way, with the reason shown. Whose it
    was done: not of those that were changed since they were read, or that somebody holds."""
    broken_rows = [
        {"id": one.id, "cursor_at": one.cursor, "revision": one.revision, "error": one.error}
        for one in broken
    ]
    return {row["id"] for row in tx.many("disable_broken_schedules", broken_rows)}


def fire(
    tx: Transaction,
    plans: Sequence[FirePlan],
    jobs: Mapping[str, Job],
    claimant: ClaimRequest | None = None,
) -> Fired:
    """Carry out the plans whose cursor still stands. With a claimant it is a claim as well, in
    one transaction: what was made begins without another one."""

    fired = fire_plans(tx, plans, jobs)
    claimed = claim_rows(tx, claimant) if claimant and fired.runs else []
    return Fired(fired.moved, fired.outcomes, tuple(rows.claimed_in_order(claimed)))


def fire_known(tx: Transaction, plan: FirePlan, jobs: Mapping[str, Job]) -> Fired:
    """After AlreadyFired, a plan alone: the ledger wins, and the cursor goes one occurrence on. It
    fires only if it is not in the ledger; what comes after is planned from there."""
    asked = {"schedule_id": plan.schedule.id, "instant": plan.cursor}
    known = tx.one("occurrence_at", **asked) is not None
    own = () if known else tuple(run for run in plan.runs[:1] if run.occurrence == plan.cursor)
    one = replace(
        plan,
        next_fire_at=plan.schedule.next_after(plan.cursor),
        runs=tuple(replace(run, missed_count=1) for run in own),
        ranges=(),
    )
    return fire_plans(tx, [one], jobs)


def fire_plans(tx: Transaction, plans: Sequence[FirePlan], jobs: Mapping[str, Job]) -> Fired:
    moved = _advance(tx, plans)
    won = [plan for plan in plans if plan.schedule.id in moved]
    made, ledger = _admit(tx, won, jobs)
    firsts = {row["schedule_id"]: row for row in reversed(ledger)}
    ledger += [row for plan in won for row in _stretches(plan, firsts.get(plan.schedule.id))]
    # The ledger first: it says politely what the unique id of a run would say with an error.
    if tx.changed("insert_occurrences", ledger) != len(ledger):
        raise AlreadyFired("an occurrence is in the ledger already")
    tx.many("insert_fired_runs", made)
    # Skipped, dropped or merged into another one: there is no run of its own to wait for.
    begun = {row["schedule_id"] for row in made}
    for plan in won:
        if plan.schedule.delays and plan.schedule.id not in begun:
            restart_delay(tx, plan.schedule.id, plan.schedule.expr)
    over = [plan.schedule for plan in won if plan.next_fire_at is None]
    if over:
        record_finished(tx, [Finished(one.id, one.name) for one in over])
    outcomes: Counter[str] = Counter()
    for row in ledger:
        outcomes[row["outcome"]] += MISSED_COUNT if row["count"] is None else row["count"]
    return Fired(frozenset(moved), outcomes)


def _advance(tx: Transaction, plans: Sequence[FirePlan]) -> set[int]:
    """Move the cursors that still stand where they were read; whose they are."""
    return {row["id"] for row in tx.many("advance_schedules", advances(plans))}


def _take_slots(tx: Transaction, first: Mapping[str, int]) -> set[int]:
    """Give each free key to the run that asks for it; the runs that got theirs."""
    # Sorted, so that two processes never wait for each other's slots.
    asked = [{"key": key, "seq": seq} for key, seq in sorted(first.items())]
    return {row["owner_run"] for row in tx.many("take_slots", asked)}


def _admit(
    tx: Transaction, plans: Sequence[FirePlan], jobs: Mapping[str, Job]
) -> tuple[list[Row], list[Row]]:
    """Decide each occurrence against slots and held rows; (run rows, ledger rows)."""
    wanted = [(plan.schedule, run) for plan in plans for run in plan.runs]
    if not wanted:
        return [], []
    seqs = [row["seq"] for row in tx.all("allocate_seqs", count=len(wanted))]
    first: dict[str, int] = {}  # each key's slot goes to its oldest occurrence in this batch
    keyed = 0
    for (schedule, _), seq in zip(wanted, seqs, strict=True):
        if (slot := schedule.slot) is not None:
            first.setdefault(f"o/{slot}", seq)
            keyed += 1
    taken = _take_slots(tx, first) if first else set()
    held: dict[str, int] = {}
    if keyed > len(taken):
        line = tx.all("count_held", keys=sorted(first))
        held = {row["key"]: row["held"] for row in line}

    made: list[Row] = []
    ledger: list[Row] = []
    for (schedule, run), seq in zip(wanted, seqs, strict=True):
        key = f"o/{schedule.slot}"
        decision = decide_overlap(
            schedule.overlap,
            free=seq in taken,
            held=held.get(key, 0),
            queue_max=schedule.queue_max,
        )
        run_id = _merge(tx, key, run, made) if decision == "merge" else None
        if decision == "merge" and run_id is None:
            decision = "hold"  # the run that waited was let in just now
        if decision in ("start", "hold"):
            owns = decision == "start"
            made.append(run_row(seq, schedule, run, jobs.get(schedule.job), owns=owns))
            run_id = run.run_id
            held[key] = held.get(key, 0) + (not owns)
        ledger.append(_ledger_row(schedule, run, decision, run_id))
    return made, ledger


def _merge(tx: Transaction, key: str, run: PlannedRun, made: list[Row]) -> str | None:
    """The held run that will stand for this occurrence: from this batch, or already there."""
    for row in made:
        if row["wanted_key"] == key:
            row["missed_count"] += run.missed_count
            return str(row["id"])
    merged = tx.many("merge_into_held", [{"key": key, "missed_count": run.missed_count}])
    return merged[0]["id"] if merged else None


def advances(plans: Sequence[FirePlan]) -> list[Row]:
    return [
        {
            "id": plan.schedule.id,
            "cursor_at": plan.cursor,
            "revision": plan.schedule.revision,
            "next_fire_at": plan.next_fire_at,
            "last_fired_at": plan.runs[-1].occurrence if plan.runs else None,
        }
        for plan in sorted(plans, key=lambda plan: plan.schedule.id)
    ]


def run_row(seq: int, schedule: Schedule, run: PlannedRun, job: Job | None, *, owns: bool) -> Row:
    retry = schedule.retry or (job.retry if job else None)
    concurrency_key = job.concurrency_key if job else None
    slot = schedule.slot
    needs = slot_keys(slot, concurrency_key)
    if owns and slot is not None:
        needs = needs[1:]
    return {
        "seq": seq,
        "id": run.run_id,
        "job": schedule.job,
        "queue": job.queue if job else "default",
        "priority": _first_of(schedule.priority, job.priority if job else 0),
        "due_at": run.due_at,
        "max_attempts": retry.max_attempts if retry else 1,
        "timeout": format_duration(job.timeout) if job and job.timeout else None,
        "backoff": rows.to_json(schedule.retry.to_dict()) if schedule.retry else None,
        "args": rows.to_json(schedule.args),
        "overlap_key": slot,
        "concurrency_key": concurrency_key,
        "concurrency_limit": job.concurrency_limit if job else 1,
        "wanted_key": next(iter(needs), None),
        "schedule_id": schedule.id,
        "occurrence": run.occurrence,
        "missed_count": run.missed_count,
        "retry_of": None,
        "created_by": f"schedule {schedule.name}",
        "correlation_id": None,
        "trace": run.trace,
    }


def _first_of(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


_OUTCOMES = {
    "start": ("fired", None),
    "hold": ("fired", "waits for the run before it"),
    "merge": ("coalesced", "merged into the run that waits already (overlap = wait)"),
    "skip": ("skipped", "the run before it had not ended (overlap = skip)"),
    "drop": ("dropped", "queue_max runs were waiting already"),
}


def _ledger_row(schedule: Schedule, run: PlannedRun, decision: str, run_id: str | None) -> Row:
    outcome, reason = _OUTCOMES[decision]
    return {
        "schedule_id": schedule.id,
        "occurrence": run.occurrence,
        "last_occurrence": run.occurrence,
        "count": 1,
        "outcome": outcome,
        "reason": reason,
        "run_id": run_id,
    }


def _stretches(plan: FirePlan, first: Row | None) -> list[Row]:
    """Ledger rows of occurrences without a run of their own; `first` is the row before them."""
    return [_stretch_row(plan.schedule, stretch, first) for stretch in plan.ranges]


def _stretch_row(schedule: Schedule, stretch: OccurrenceRange, first: Row | None) -> Row:
    outcome, reason, run_id = stretch.outcome, stretch.reason, None
    if outcome == "coalesced" and first is not None:
        run_id = first["run_id"]
        if run_id is None:  # the run they would have been part of was skipped or dropped
            outcome, reason = first["outcome"], first["reason"]
    return {
        "schedule_id": schedule.id,
        "occurrence": stretch.first,
        "last_occurrence": stretch.last,
        "count": stretch.count,
        "outcome": outcome,
        "reason": reason,
        "run_id": run_id,
    }


def due_group(tx: Transaction, schedule: Schedule, limit: int) -> list[int]:
    """The ids of all schedules that this one's plan is for, itself among them, in order."""
    alike = {"next_fire_at": schedule.next_fire_at, "plan_key": schedule.plan_key}
    ids: list[int] = tx.values("due_in_group", **alike, limit=limit)
    return ids


def fire_group(tx: Transaction, plan: FirePlan, ids: Sequence[int], job: Job | None) -> Fired:
    """Carry out one plan for all schedules of a group whose cursor still stands, and whose slot is
    free. Rows are written where they are: only ids come and go. What needs a decision of its own
    is left to `fire`."""
    shared = group_row(plan, job)
    free = tx.values("free_in_group", ids=list(ids), **shared)
    if not free:
        return NOTHING_FIRED
    if not tx.writes_alone:
        return _fire_standing(tx, plan, free, job)
    # No other transaction writes until the end of this one: what is free now is what we take.
    ((first,),) = tx.tuples("first_group_seq", count=len(free))
    # The runs first: what else there is to write is read from them.
    made = {"first_seq": first, "last_seq": first + len(free) - 1}
    run_ids = dict(zip(free, occurrence_ids(free, plan.cursor), strict=True))
    tx.tuples("insert_group_runs", run_ids=run_ids, **shared, **made)
    tx.tuples("insert_group_occurrences", **made)
    if shared["has_slot"]:
        tx.tuples("take_group_slots", **made)
    tx.tuples("advance_group", **shared, **made)
    return all_fired(free)


def _fire_standing(tx: Transaction, plan: FirePlan, ids: Sequence[int], job: Job | None) -> Fired:
    """Where others write meanwhile a slot may be taken by now: each schedule is decided for."""
    try:
        with tx.savepoint():
            return fire_plans(tx, _plans_of(tx, plan, ids), {} if job is None else {job.name: job})
    except AlreadyFired:  # `fire` goes from one to the next to find which
        return NOTHING_FIRED


def _plans_of(tx: Transaction, plan: FirePlan, ids: Sequence[int]) -> list[FirePlan]:
    """The plan, for each schedule that is still of its group. By the revision that is read here
    its cursor moves, or does not."""
    found = [
        row
        for row in tx.all("schedules_by_id", ids=list(ids))
        if (row["next_fire_at"], row["plan_key"]) == (plan.cursor, plan.schedule.plan_key)
    ]
    run_ids = dict(zip(ids, occurrence_ids(ids, plan.cursor), strict=True))
    return [
        replace(
            plan,
            schedule=rows.schedule(row),
            runs=tuple(replace(run, run_id=run_ids[row["id"]]) for run in plan.runs),
        )
        for row in found
    ]


def group_row(plan: FirePlan, job: Job | None) -> Row:
    """What all runs of a group share, and where the cursor stands and goes."""
    (run,) = plan.runs
    shared = run_row(0, plan.schedule, run, job, owns=True)
    return {
        **shared,
        "has_slot": plan.schedule.slot is not None,
        "cursor_at": plan.cursor,
        "next_fire_at": plan.next_fire_at,
        "plan_key": plan.schedule.plan_key,
    }


def all_fired(ids: Sequence[int]) -> Fired:
    return Fired(frozenset(ids), {"fired": len(ids)})
