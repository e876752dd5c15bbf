"""What PostgreSQL does in one statement, one round trip, instead of the plain operation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rota.errors import StorageError
from rota.model.job import Job
from rota.model.outcome import Settlement
from rota.model.plan import FirePlan
from rota.model.run import BulkRuns, ClaimedRun, Enqueued, NewRun, occurrence_ids
from rota.model.transitions import SUCCEEDED
from rota.storage import rows
from rota.storage.operation import point_name
from rota.storage.operations import claiming, enqueueing, firing, settling
from rota.storage.operations.claiming import ClaimRequest
from rota.storage.operations.firing import (
    NOTHING_FIRED,
    AlreadyFired,
    Fired,
    all_fired,
    group_row,
    run_row,
)
from rota.storage.operations.settling import OnTerminated, Settled, divide
from rota.storage.postgres.bind import array, bind
from rota.storage.postgres.marks import MOST_MARKS, Marks

if TYPE_CHECKING:
    from rota.storage.postgres.engine import PostgresEngine
    from rota.storage.store import Store

CLAIM = point_name(claiming.claim)
SETTLE = point_name(settling.settle)
FIRE = point_name(firing.fire)
FIRE_GROUP = point_name(firing.fire_group)
ENQUEUE = point_name(enqueueing.enqueue)

UNIQUE_VIOLATION = "23505"


class FastPaths:
    """Each does what it can in one statement, and calls the plain operation for the rest."""

    def __init__(self, store: Store, engine: PostgresEngine) -> None:
        self.store, self.engine = store, engine
        self._marks = Marks()
        # The template that was enqueued last, with its values as PostgreSQL reads them, and the
        # shorter statement for one of it, if there is one.
        self._bound: tuple[NewRun | None, dict[str, str | None], str | None] = (None, {}, None)

    def table(self) -> dict[Callable[..., object], Callable[..., Any]]:
        return {
            claiming.claim: self.claim,
            settling.settle: self.settle,
            firing.fire: self.fire,
            firing.fire_group: self.fire_group,
            enqueueing.enqueue: self.enqueue,
        }

    def claim(
        self,
        worker_id: str,
        *,
        queues: Sequence[str],
        jobs: Sequence[str],
        limit: int,
        lease: timedelta,
    ) -> list[ClaimedRun]:
        """One statement: what was picked but not claimed would otherwise stay locked meanwhile."""
        asked: dict[str, Any] = {
            "worker_id": worker_id,
            "queues": list(queues),
            "jobs": list(jobs),
            "limit": limit,
            "lease_seconds": lease.total_seconds(),
        }
        began = time.monotonic()
        if self._marks.usable(began, asked["jobs"]):
            self._read_lines(asked["queues"])
            found = self.engine.single_tuples(
                CLAIM, "claim_marked_runs", **asked, **self._marks.ranges()
            )
            claimed = rows.claimed_in_order(found)
            self._marks.claimed(claimed)
        else:
            found = self.engine.single_tuples(CLAIM, "claim_at_once", **asked)
            claimed = rows.claimed_in_order(found)
            seconds = time.monotonic() - began
            self._marks.looked(claimed, seconds, began, jobs=asked["jobs"], limit=limit)
        return claimed

    def _read_lines(self, queues: Sequence[str]) -> None:
        """Not by the look itself but before the next claim: a fault here loses no run's answer."""
        looked_at, self._marks.passed_at = self._marks.passed_at, None
        if looked_at is not None:
            most = MOST_MARKS + 1
            lines = self.engine.single_tuples(CLAIM, "queued_lines", queues=queues, limit=most)
            self._marks.passed(lines, ago=time.monotonic() - looked_at)

    def settle(
        self, settlements: Sequence[Settlement], on_terminated: OnTerminated | None = None
    ) -> list[Settled]:
        """Plain successes in one statement, which is the whole transaction."""
        plain, others = divide(settlements, on_terminated)
        done = self._succeed(plain) if plain else []
        if others:
            done += self.store.plain(settling.settle, others, on_terminated)
        return done

    def _succeed(self, plain: Sequence[Settlement]) -> list[Settled]:
        seqs = [one.run.seq for one in plain]
        asked: dict[str, object] = {
            "seq": seqs,
            "ran_seconds": [one.ran_seconds for one in plain],
            "result": [one.outcome.result for one in plain],
        }
        if self.engine.pooled:  # sent alone it would wait for a held row without an end
            answer = self.engine.write(SETTLE, lambda tx: tx.tuples("succeed_runs", **asked))
        else:
            answer = self.engine.single_tuples(SETTLE, "succeed_runs", **asked)
        ((some,),) = answer
        return [Settled(seq, SUCCEEDED) for seq in (seqs if some is None else some)]

    def fire(
        self,
        plans: Sequence[FirePlan],
        jobs: Mapping[str, Job],
        claimant: ClaimRequest | None = None,
    ) -> Fired:
        """Those on time and free to start in one statement, and begun by it where nobody is in
        line; the others with every decision, and for a claim to find. What was begun waits for
        none of those: they are due as before, and the next look has them."""
        fired = self._fire_free(plans, jobs, claimant)
        rest = [plan for plan in plans if plan.schedule.id not in fired.moved]
        if fired.claimed or not rest:
            return fired
        try:
            return fired + self.store.plain(firing.fire, rest, jobs)
        except AlreadyFired as refused:
            refused.fired = fired  # those are committed
            raise

    def _fire_free(
        self, plans: Sequence[FirePlan], jobs: Mapping[str, Job], claimant: ClaimRequest | None
    ) -> Fired:
        first: dict[str, FirePlan] = {}  # a slot goes to its oldest occurrence
        for plan in plans:
            if plan.schedule.slot is not None:
                first.setdefault(plan.schedule.slot, plan)
        asked = []
        for plan in sorted(plans, key=lambda plan: plan.schedule.id):
            slot = plan.schedule.slot
            alone = slot is None or first[slot] is plan
            ends = plan.next_fire_at is None
            if len(plan.runs) != 1 or plan.ranges or ends or not alone:
                continue
            row = run_row(0, plan.schedule, plan.runs[0], jobs.get(plan.schedule.job), owns=True)
            row["key"] = None if slot is None else f"o/{slot}"
            row["cursor_at"], row["next_fire_at"] = plan.cursor, plan.next_fire_at
            row["revision"] = plan.schedule.revision
            asked.append(row)
        if not asked:
            return NOTHING_FIRED
        # Those that are decided one by one may come before these: then a claim finds the order.
        alone = len(asked) == len(plans) and not self._marks.slow
        if claimant is not None and not (alone and len(asked) <= claimant.limit):
            claimant = None
        columns = {name: [row[name] for row in asked] for name in asked[0] if name != "seq"}
        try:
            found = self.engine.single_tuples(FIRE, "fire_free", **columns, **_claims(claimant))
        except StorageError as fault:
            # Somebody took a slot meanwhile, or the ledger knows an occurrence already.
            if not _is_taken(fault):
                raise
            return NOTHING_FIRED
        made = rows.claimed_in_order(found)
        return Fired(
            frozenset(run.schedule_id for run in made if run.schedule_id is not None),
            {"fired": len(made)},
            tuple(run for run in made if run.attempt),
        )

    def fire_group(self, plan: FirePlan, ids: Sequence[int], job: Job | None) -> Fired:
        """One statement, which is the whole transaction."""
        run_ids = occurrence_ids(ids, plan.cursor)
        try:
            found = self.engine.single_tuples(
                FIRE_GROUP, "fire_group", ids=list(ids), run_ids=run_ids, **group_row(plan, job)
            )
        except StorageError as fault:
            if not _is_taken(fault):
                raise
            return NOTHING_FIRED  # by somebody who did not stand in the way when we looked
        return all_fired([schedule_id for (schedule_id,) in found])

    def enqueue(self, new_runs: Sequence[NewRun], *, notify: bool = True) -> list[Enqueued]:
        """Runs of one template, about which there is nothing to decide, in one statement."""
        if isinstance(new_runs, BulkRuns) and new_runs.template.wanted_key is None:
            return self._enqueue_alike(new_runs, notify)
        return self.store.plain(enqueueing.enqueue, new_runs, notify=notify)

    def _enqueue_alike(self, new_runs: BulkRuns, notify: bool) -> list[Enqueued]:
        """One round trip, with what all of them share bound once."""
        template, bound, plain = self._bound
        if template is not new_runs.template:
            template = new_runs.template
            shared = rows.new_run_row(template)
            bound = {name: bind(value) for name, value in shared.items()}
            plain = "insert_plain_run" if _is_plain(template) else None
            self._bound = template, bound, plain
        ids, args = new_runs.ids, new_runs.args
        if len(ids) == 1:
            name, own = "insert_run", {"id": ids[0], "args": bind(args[0])}
        else:
            name, own = "insert_new_runs", {"id": array(ids), "args": array(args)}
            plain = None
        told = {**bound, **own}
        try:
            self.engine.single_bound(
                ENQUEUE, name, told, made=len(ids), notify=notify, quietly=plain
            )
        except StorageError as fault:
            if not _is_taken(fault):
                raise
            # Sent before, perhaps, and its answer was lost: once more, each where it is not there.
            return self.store.plain(enqueueing.enqueue, new_runs, notify=notify)
        return [Enqueued(id, True) for id in ids]


def _claims(claimant: ClaimRequest | None) -> dict[str, object]:
    """How fire_free is told who claims, or that nobody does."""
    if claimant is None:
        return {"worker_id": None, "queues": [], "jobs": [], "lease_seconds": 0.0}
    return {
        "worker_id": claimant.worker_id,
        "queues": list(claimant.queues),
        "jobs": list(claimant.jobs),
        "lease_seconds": claimant.lease.total_seconds(),
    }


def _is_taken(fault: StorageError) -> bool:
    """True if something that may be there once was there already."""
    return getattr(fault.__cause__, "sqlstate", None) == UNIQUE_VIOLATION


def _is_plain(run: NewRun) -> bool:
    """True if `insert_plain_run` says all of it: the rest is as a run has it by itself."""
    return run == NewRun(
        id=run.id,
        job=run.job,
        queue=run.queue,
        args=run.args,
        priority=run.priority,
        max_attempts=run.max_attempts,
        created_by=run.created_by,
    )
