"""Fire due schedules: each occurrence becomes exactly one run.

One transaction moves the cursor and inserts the run. If the cursor has moved already, another
process fired it and nothing is inserted.
"""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import structs

from rota import tracing
from rota.flow.claim import Claim
from rota.flow.counters import Counters
from rota.flow.loop import WORKER_FIRST_SECONDS
from rota.model.clock import ClockGuard
from rota.model.job import Job
from rota.model.plan import FirePlan, plan_fire
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.operations.claiming import ClaimRequest
from rota.storage.operations.firing import NOTHING_FIRED, AlreadyFired, Broken, Fired
from rota.storage.store import Store

log = logging.getLogger("rota.fire")

LOOK = 100  # how many schedules one look takes; those of a herd are not looked at
BATCH = 1_000  # the same where many are due that are no herd
LEAST_KIN = 20  # so many of one kin in one look are part of a herd
HERD = 100_000  # whose ids are read at once, at most
HERD_RUNS = 12_500  # at a time
HERD_STRIDE = 500  # where a process begins: at any multiple of it
HERD_SECONDS = 0.3  # after this those that are on time have their turn
CLOCK_RECHECK = 1.0
LIMITED_PAUSE = 1.0
OFF_PAUSE = 1.0  # switched off: how long until it is asked again
REFUSED_PAUSE = 0.05  # somebody holds a schedule that is due: how long until it is tried again
NEAR_SECONDS = 0.002  # before the instant the clock is asked once more
LATEST_SECONDS = 1.0  # a plan that was made ahead and is older than this is made again
MOST_RUNS = 1_000  # in one transaction


def fire(
    store: Store,
    plans: Sequence[FirePlan],
    jobs: Mapping[str, Job],
    claimant: ClaimRequest | None = None,
) -> Fired:
    """Carry out plans. The ledger knows an occurrence already only where a cursor was moved back by
    hand: then one plan at a time, so that only the schedule concerned pays for it."""
    try:
        return store.write(operations.fire, plans, jobs, claimant)
    except AlreadyFired as refused:
        fired = refused.fired or NOTHING_FIRED
        rest = [plan for plan in plans if plan.schedule.id not in fired.moved]
        if len(plans) > 1:
            return sum((fire(store, [plan], jobs) for plan in rest), fired)
        return store.write(operations.fire_known, plans[0], jobs)


class Fire:
    """`fired` is told when runs were made, and `tell` a moment later where they were on time: who
    is here begins them before others are told. With the `claim` of a worker of this process they
    begin as its runs, without a claim of their own. `pace` is the longest sleep between two looks.

    With `look_ahead` what comes due next is read and planned that many seconds before, and at the
    instant itself only written: cursor and revision are compared then, so that an edit wins."""

    def __init__(
        self,
        store: Store,
        *,
        monotonic: Callable[[], float],
        fired: Callable[[], None],
        tell: Callable[[], None] = lambda: None,
        claim: Claim | None = None,
        enabled: Callable[[], bool] = lambda: True,
        pace: float = 60.0,
        batch: int = BATCH,
        max_fires_per_tick: int = 0,
        start_delay: float = 0.0,
        look_ahead: float = 0.0,
        least_group: int = LEAST_KIN,
        counters: Counters | None = None,
    ) -> None:
        self.counters = counters or Counters()
        self.store, self.monotonic, self.fired, self.tell = store, monotonic, fired, tell
        self.claim, self.enabled, self.pace = claim, enabled, pace
        self.batch = min(batch, max_fires_per_tick) if max_fires_per_tick else batch
        self.limited = bool(max_fires_per_tick)
        self.most_runs = max_fires_per_tick or MOST_RUNS
        self.look_ahead = timedelta(seconds=look_ahead)
        self.guard = ClockGuard()
        self.begins_at = monotonic() + start_delay
        self.newest = False  # which end of what is due this tick takes
        self.least_group = least_group
        self.crowd = False  # more is due than one look found, and it is no herd
        self.herds: list[Herd] = []
        self.left: dict[tuple[Any, ...], list[int]] = {}  # of herds whose time was over, by kin
        self.scattered = False  # each of a herd needs a decision: one by one, until all is done
        self.coming: Coming | None = None
        self.unparked: set[int] = set()  # broken, and held by somebody at the last look
        self.just_fired = False  # on time: what comes next is still to be asked for
        self.untold = False  # others are still to be told of runs that were made on time
        self.read = (0.0, datetime.min.replace(tzinfo=UTC))  # the clock of the store, and ours

    def step(self) -> float:
        if self.untold:
            self.untold = False
            self.tell()
        early = self.begins_at - self.monotonic()
        if early > 0:
            return early
        if not self.enabled():
            self.coming, self.herds, self.left = None, [], {}
            return OFF_PAUSE
        if self.herds:
            return self._fire_herd()
        coming, self.coming = self.coming, None
        if coming is not None and not coming.near:
            return self._approach(coming)
        if coming is not None and 0 <= self.monotonic() - coming.at < LATEST_SECONDS:
            self._fire(coming.plans, coming.jobs, on_time=not coming.full)
            self.just_fired = not coming.full
            if coming.crowd:
                self._gather(coming.plans, coming.jobs)
            return self._rest() if coming.full else WORKER_FIRST_SECONDS
        if self.just_fired:
            self.just_fired = False
            return self._until_next()
        return self._look()

    def _look(self) -> float:
        # Behind, what is due now comes first: the newest would be those that are not due yet.
        ahead = timedelta(0) if self.newest else self.look_ahead
        limit = self.batch if self.crowd or self.limited else min(LOOK, self.batch)
        due = self.store.peek(operations.due_schedules, limit, newest=self.newest, ahead=ahead)
        self.read = (self.monotonic(), due.now)
        if self._jumped(due.now):
            return CLOCK_RECHECK
        now = due.now
        ripe = [one for one in due.schedules if _cursor(one) <= now]
        soon = [_cursor(one) for one in due.schedules if _cursor(one) <= now + self.look_ahead]
        if soon and not ripe:
            # Nothing yet, but in a moment: plan the first of them as of their instant.
            now = min(soon)
            ripe = [one for one in due.schedules if _cursor(one) <= now]
        broken = list(due.broken)
        plans, room = self._plans(ripe, now, broken)
        parked = self._park(broken)
        if now > due.now:
            full = self.limited and (due.full or room <= 0)
            at = self.read[0] + (now - due.now).total_seconds()
            self.coming = Coming(plans, due.jobs, now, at, full, due.full)
            return max(0.0, min(at - NEAR_SECONDS - self.monotonic(), self.pace))
        fired = bool(plans) and self._fire(plans, due.jobs)
        refused = bool(plans or broken) and not (parked or fired)
        if due.full or room <= 0:
            # Behind: every other tick takes the newest, so that a long catch-up never keeps
            # those waiting that are on time.
            self.newest = not self.newest
            self._gather(plans, due.jobs)
            self.crowd = not self.herds
            return self._rest() if self.limited else REFUSED_PAUSE * refused
        self.newest = self.crowd = self.scattered = False
        self.left = {}
        return max(self._until_next(), REFUSED_PAUSE * refused)

    def _approach(self, coming: Coming) -> float:
        """Ask for the time once more: what was read before may be off by more than anybody should
        be late, and a server that has just answered is quicker to answer again."""
        asked_at = self.monotonic()
        now = self.store.now()
        answered_at = self.monotonic()
        if self._jumped(now):
            return CLOCK_RECHECK
        # The clock was read somewhere between the two.
        at = (asked_at + answered_at) / 2 + (coming.instant - now).total_seconds()
        self.coming = replace(coming, at=at, near=True)
        return max(0.0, min(at - answered_at, self.pace))

    def _rest(self) -> float:
        """Between two ticks of which each fired as much as it may: no wake shortens it."""
        self.begins_at = self.monotonic() + LIMITED_PAUSE
        return LIMITED_PAUSE

    def _jumped(self, now: datetime) -> bool:
        if self.guard.accepts(now, self.monotonic()):
            return False
        log.warning("the clock jumped to %s; nothing fires until it is confirmed", now)
        return True

    def _plans(
        self, due: list[Schedule], now: datetime, broken: list[Broken]
    ) -> tuple[list[FirePlan], int]:
        """Plans, and how many more runs this tick could make."""
        plans, room = [], self.most_runs
        for schedule in due:
            plan = self._plan(schedule, now, room, broken)
            if plan is not None:
                plans.append(plan)
                room -= len(plan.runs)
            if room <= 0:
                break  # the others are due at the next tick
        return plans, room

    def _plan(
        self, schedule: Schedule, now: datetime, room: int, broken: list[Broken]
    ) -> FirePlan | None:
        """One schedule that cannot be planned never delays another."""
        try:
            plan = plan_fire(schedule, now, room)
        except Exception as fault:
            if schedule.id not in self.unparked:  # tried again and again, and told once
                log.exception("schedule %s cannot be planned", schedule.name)
            broken.append(_parked(schedule, f"cannot be planned: {fault}"))
            return None
        if plan.broken is not None:
            broken.append(_parked(schedule, plan.broken))
            return None
        return plan

    def _park(self, broken: list[Broken]) -> bool:
        """False if none of them was parked: those that somebody holds are tried again."""
        parked = self.store.write(operations.disable_broken_schedules, broken) if broken else set()
        self.unparked = {one.id for one in broken} - parked
        return bool(parked)

    def _fire(
        self, plans: list[FirePlan], jobs: Mapping[str, Job], *, on_time: bool = False
    ) -> bool:
        """False if none of them was carried out: others fired, edited or hold what they are of."""

        def write(claimant: ClaimRequest | None) -> Fired:
            return self._write(plans, jobs, claimant)

        if on_time and self.claim is not None:
            fired = self.claim.with_fire(sum(len(plan.runs) for plan in plans), write, self.fired)
        else:
            fired = write(None)
        if fired.runs:
            if not _all_claimed(plans, fired):
                self.fired()
            self.untold = on_time
            if not on_time:
                self.tell()
        if fired.outcomes:
            self.counters.fired(fired.outcomes, self._lags(plans, fired))
        return bool(fired.moved)

    def _write(
        self, plans: list[FirePlan], jobs: Mapping[str, Job], claimant: ClaimRequest | None
    ) -> Fired:
        traced = Traced(plans)
        try:
            fired = fire(self.store, traced.plans, jobs, claimant)
            traced.moved = fired.moved
        finally:
            traced.end()
        return fired

    def _gather(self, plans: list[FirePlan], jobs: Mapping[str, Job]) -> None:
        """Find the herds that plans of one look are part of. They are fired at the next steps, by
        these plans; what they leave is for the looks that follow."""
        if self.limited or self.scattered or tracing.tracer() is not None:
            return  # to count them, to decide for each, or to tell of each takes one by one
        kin: defaultdict[tuple[Any, ...], list[FirePlan]] = defaultdict(list)
        for plan in plans:
            if (key := plan.group_key) is not None:
                kin[key].append(plan)
        made_at = self.monotonic()
        self.herds = [
            Herd(alike[0], jobs.get(alike[0].schedule.job), made_at, self.left.get(key))
            for key, alike in kin.items()
            if len(alike) >= self.least_group
        ]
        self.left = {}

    def _fire_herd(self) -> float:
        herd = self.herds[0]
        if not 0 <= self.monotonic() - herd.made_at < HERD_SECONDS:
            herd.ids = self._judge(herd)
            self.left = {
                key: one.ids for one in self.herds if one.ids and (key := one.plan.group_key)
            }
            self.herds, self.newest = [], True
            return 0.0
        if herd.ids is None:
            herd.gather(self.store.peek(operations.due_group, herd.plan.schedule, HERD))
        if ids := herd.take():
            fired = self.store.write(operations.fire_group, herd.plan, ids, herd.job)
            herd.refused += [one for one in ids if one not in fired.moved]
            if fired.runs:
                self.fired()
                self.tell()
                lag = self._lag(herd.plan.cursor)
                self.counters.fired(fired.outcomes, [lag] * fired.runs)
        if not herd.ids:
            self._judge(herd)
            del self.herds[0]
        return 0.0

    def _judge(self, herd: Herd) -> list[int] | None:
        """What was refused has been fired by others meanwhile, or needs a decision for each. The
        answer is who is still to be fired."""
        if not herd.refused:
            return herd.ids
        due = self.store.peek(operations.due_group, herd.plan.schedule, HERD)
        self.scattered = 2 * len(set(due).intersection(herd.refused)) > herd.tried
        return due

    def _lags(self, plans: list[FirePlan], fired: Fired) -> list[float]:
        """How long after its instant each occurrence was fired."""
        return [
            self._lag(run.occurrence)
            for plan in plans
            if plan.schedule.id in fired.moved
            for run in plan.runs
        ]

    def _lag(self, occurrence: datetime) -> float:
        read_at, now = self.read
        now += timedelta(seconds=self.monotonic() - read_at)
        return max(0.0, (now - occurrence).total_seconds())

    def _until_next(self) -> float:
        now, next_fire_at = self.store.peek(operations.next_fire_at)
        # Jittered, so that many processes do not look at the same instant.
        pace = self.pace * random.uniform(0.8, 1.0)
        if next_fire_at is None:
            return pace
        left = next_fire_at - now - self.look_ahead
        return max(0.0, min(pace, left.total_seconds()))


class Traced:
    """Plans whose runs know the span of their fire, where somebody wants traces."""

    def __init__(self, plans: list[FirePlan]) -> None:
        self.plans = plans
        self.moved: Collection[int] = ()  # whose cursor it was that moved
        self._spans: dict[int, Any] = {}
        if tracing.tracer() is not None:
            self.plans = [self._begin(plan) for plan in plans]

    def end(self) -> None:
        """What another process fired is its span; ours says that it made nothing."""
        for schedule_id, span in self._spans.items():
            tracing.end_fire(span, ours=schedule_id in self.moved)

    def _begin(self, plan: FirePlan) -> FirePlan:
        if not plan.runs:
            return plan
        span = tracing.begin_fire(plan.schedule.name, plan.schedule.job)
        if span is None:
            return plan
        self._spans[plan.schedule.id] = span
        trace = tracing.traceparent(span)
        runs = tuple(structs.replace(run, trace=trace) for run in plan.runs)
        return structs.replace(plan, runs=runs)


@dataclass(frozen=True, slots=True)
class Coming:
    """What is due next: planned, and to be written at its instant, which is `at` by the monotonic
    clock: exactly, once it is `near`. `full`: it is as many as one tick may fire; `crowd`: as many
    as one look may find."""

    plans: list[FirePlan]
    jobs: Mapping[str, Job]
    instant: datetime
    at: float
    full: bool
    crowd: bool
    near: bool = False


@dataclass(slots=True)
class Herd:
    """Schedules of one kin, due at one instant, and the plan that is true of all of them."""

    plan: FirePlan
    job: Job | None
    made_at: float
    ids: list[int] | None = None  # still to be fired; None: not read yet
    tried: int = 0
    refused: list[int] = field(default_factory=list)

    def gather(self, ids: list[int]) -> None:
        # From anywhere on, so that many processes do not try the same ones.
        begin = random.randrange(0, len(ids) + 1, HERD_STRIDE)
        self.ids = ids[begin:] + ids[:begin]

    def take(self) -> list[int]:
        assert self.ids is not None
        taken, self.ids = self.ids[:HERD_RUNS], self.ids[HERD_RUNS:]
        self.tried += len(taken)
        return taken


def _cursor(schedule: Schedule) -> datetime:
    assert schedule.next_fire_at is not None
    return schedule.next_fire_at


def _all_claimed(plans: list[FirePlan], fired: Fired) -> bool:
    """Whether every run that was made is in somebody's hands already."""
    made = {run.run_id for plan in plans for run in plan.runs}
    return sum(run.id in made for run in fired.claimed) == fired.runs


def _parked(schedule: Schedule, error: str) -> Broken:
    return Broken(schedule.id, _cursor(schedule), schedule.revision, error)
