"""Fire due schedules: each occurrence becomes exactly one run.

One transaction moves the cursor and inserts the run. If the cursor has moved already, another
process fired it and nothing is inserted.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from rota.model.clock import ClockGuard
from rota.model.plan import FirePlan, plan_fire
from rota.model.schedule import Schedule
from rota.storage.protocol import Storage

log = logging.getLogger("rota.fire")

BATCH = 1_000
CLOCK_RECHECK = 1.0
LIMITED_PAUSE = 1.0
MOST_RUNS = 1_000  # in one transaction


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
        start_delay: float = 0.0,
    ) -> None:
        self.storage, self.monotonic, self.fired = storage, monotonic, fired
        self.pace = pace
        self.batch = min(batch, max_fires_per_tick) if max_fires_per_tick else batch
        self.limited = bool(max_fires_per_tick)
        self.most_runs = max_fires_per_tick or MOST_RUNS
        self.guard = ClockGuard()
        self.begins_at = monotonic() + start_delay
        self.newest = False  # which end of what is due this tick takes

    def step(self) -> float:
        early = self.begins_at - self.monotonic()
        if early > 0:
            return early
        due = self.storage.due_schedules(self.batch, newest=self.newest)
        if not self.guard.accepts(due.now, self.monotonic()):
            log.warning("the clock jumped to %s; nothing fires until it is confirmed", due.now)
            return CLOCK_RECHECK
        broken = list(due.broken)
        plans = []
        room = self.most_runs
        for schedule in due.schedules:
            plan = _plan(schedule, due.now, room, broken)
            if plan is not None:
                plans.append(plan)
                room -= len(plan.runs)
            if room <= 0:
                break  # the others are due at the next tick
        if broken:
            self.storage.park_schedules(broken)
        if plans:
            if self.storage.fire(plans, due.jobs):
                self.fired()
        if due.full or room <= 0:
            # Behind: every other tick takes the newest, so that a long catch-up never keeps
            # those waiting that are on time.
            self.newest = not self.newest
            return LIMITED_PAUSE if self.limited else 0.0
        self.newest = False
        return self._until_next()

    def _until_next(self) -> float:
        now, next_fire_at = self.storage.next_fire_at()
        # Jittered, so that many processes do not look at the same instant.
        pace = self.pace * random.uniform(0.8, 1.0)
        if next_fire_at is None:
            return pace
        return max(0.0, min(pace, (next_fire_at - now).total_seconds()))


def _plan(
    schedule: Schedule, now: datetime, room: int, broken: list[tuple[int, datetime, str]]
) -> FirePlan | None:
    """One schedule that cannot be planned never delays another."""
    cursor = schedule.next_fire_at
    assert cursor is not None
    if cursor > now:
        return None  # the clock went back a little between two readings: it is due again soon
    try:
        if room < schedule.catch_up_limit:
            schedule = replace(schedule, catch_up_limit=room)
        plan = plan_fire(schedule, now)
    except Exception as fault:
        log.exception("schedule %s cannot be planned", schedule.name)
        broken.append((schedule.id, cursor, f"cannot be planned: {fault}"))
        return None
    if plan.broken is not None:
        broken.append((schedule.id, cursor, plan.broken))
        return None
    return plan
