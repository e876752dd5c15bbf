"""Fire due schedules: each occurrence becomes exactly one run.

One transaction moves the cursor and inserts the run. If the cursor has moved already, another
process fired it and nothing is inserted.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import datetime

from rota.model.clock import ClockGuard
from rota.model.plan import FirePlan, plan_fire
from rota.model.schedule import Schedule
from rota.storage.protocol import Storage

log = logging.getLogger("rota.fire")

BATCH = 500
CLOCK_RECHECK = 1.0
LIMITED_PAUSE = 1.0


class Fire:
    """`fired` is told when runs were made. `pace` is the longest sleep between two looks."""

    def __init__(
        self,
        storage: Storage,
        *,
        monotonic: Callable[[], float],
        fired: Callable[[], None],
        pace: float = 60.0,
        batch: int = BATCH,
        max_fires_per_tick: int = 0,
    ) -> None:
        self.storage, self.monotonic, self.fired = storage, monotonic, fired
        self.pace = pace
        self.batch = min(batch, max_fires_per_tick) if max_fires_per_tick else batch
        self.limited = bool(max_fires_per_tick)
        self.guard = ClockGuard()

    def step(self) -> float:
        due = self.storage.due_schedules(self.batch)
        if not self.guard.accepts(due.now, self.monotonic()):
            log.warning("the clock jumped to %s; nothing fires until it is confirmed", due.now)
            return CLOCK_RECHECK
        broken = list(due.broken)
        plans = []
        for schedule in due.schedules:
            plan = _plan(schedule, due.now, broken)
            if plan is not None:
                plans.append(plan)
        if broken:
            self.storage.park_schedules(broken)
        if plans:
            jobs = self.storage.jobs_named({plan.schedule.job for plan in plans})
            if self.storage.fire(plans, jobs):
                self.fired()
        if due.full:
            return LIMITED_PAUSE if self.limited else 0.0
        return self._until_next()

    def _until_next(self) -> float:
        now, next_fire_at = self.storage.next_fire_at()
        # Jittered, so that many processes do not look at the same instant.
        pace = self.pace * random.uniform(0.8, 1.0)
        if next_fire_at is None:
            return pace
        return max(0.0, min(pace, (next_fire_at - now).total_seconds()))


def _plan(
    schedule: Schedule, now: datetime, broken: list[tuple[int, datetime, str]]
) -> FirePlan | None:
    """One schedule that cannot be planned never delays another."""
    assert schedule.next_fire_at is not None
    if schedule.next_fire_at > now:
        return None  # the clock went back a little between two readings: it is due again soon
    try:
        plan = plan_fire(schedule, now)
    except Exception as fault:
        log.exception("schedule %s cannot be planned", schedule.name)
        broken.append((schedule.id, schedule.next_fire_at, f"cannot be planned: {fault}"))
        return None
    if plan.broken is not None:
        broken.append((schedule.id, schedule.next_fire_at, plan.broken))
        return None
    return plan
