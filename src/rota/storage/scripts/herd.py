"""Fire a herd: many schedules that are due at one instant and alike, by one plan.

What a plan says of one of them it says of all: the rows of a herd are written where they are, and
only ids come and go. Whatever needs a decision of its own is left to `fire`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.job import Job
from rota.model.plan import FirePlan
from rota.model.run import occurrence_ids
from rota.model.schedule import Schedule
from rota.storage.engine import Row, Transaction
from rota.storage.scripts.fire import NOTHING_FIRED, Fired, FireScript, run_row


class HerdScript(FireScript):
    def due_kin(self, schedule: Schedule, limit: int) -> list[int]:
        """The ids of all schedules of this one's kin, itself among them, in order."""
        alike = {"next_fire_at": schedule.next_fire_at, "plan_key": schedule.plan_key}
        return self.engine.look(lambda tx: tx.values("due_kin", **alike, limit=limit), urgent=True)

    def fire_kin(self, plan: FirePlan, ids: Sequence[int], job: Job | None) -> Fired:
        """Carry out one plan for schedules of one kin: for those whose cursor still stands, and
        whose slot is free."""
        return self.engine.write("fire", lambda tx: self._fire_kin(tx, plan, ids, job))

    def _fire_kin(
        self, tx: Transaction, plan: FirePlan, ids: Sequence[int], job: Job | None
    ) -> Fired:
        shared = kin_row(plan, job)
        # Nobody else writes meanwhile: what is free now is what we take.
        free = tx.values("free_kin", ids=list(ids), **shared)
        if not free:
            return NOTHING_FIRED
        ((first,),) = tx.tuples("first_kin_seq", count=len(free))
        # The runs first: what else there is to write is read from them.
        made = {"first_seq": first, "last_seq": first + len(free) - 1}
        run_ids = dict(zip(free, occurrence_ids(free, plan.cursor), strict=True))
        tx.tuples("insert_kin_runs", run_ids=run_ids, **shared, **made)
        tx.tuples("insert_kin_occurrences", **made)
        if shared["has_slot"]:
            tx.tuples("take_kin_slots", **made)
        tx.tuples("advance_kin", **shared, **made)
        return all_fired(free)


def kin_row(plan: FirePlan, job: Job | None) -> Row:
    """What all runs of a herd share, and where the cursor stands and goes."""
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
