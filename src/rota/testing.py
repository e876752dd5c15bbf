"""Test your jobs without waiting: a store in memory, a clock you own, runs on demand.

    from rota.testing import TestApp

    app = TestApp()

    @app.job(schedule="0 3 * * *")
    def rollup(ctx): ...

    app.advance("3 days")            # fires and runs everything due on the way
    assert len(app.runs("rollup")) == 3

`in_memory(app)` does the same for an app that was defined elsewhere.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from rota.app import Rota
from rota.errors import Conflict
from rota.flow.events import announce
from rota.flow.fire import Fire
from rota.flow.notes import Notes
from rota.flow.promote import Promote
from rota.flow.rescue import Rescue
from rota.flow.run import Execution, Owner, execute
from rota.flow.settle import Settler
from rota.model.duration import parse_duration
from rota.model.limits import PAGE
from rota.model.run import ClaimedRun, Run
from rota.storage import operations
from rota.storage.store import Store, open_store

MAX_DRAINED = 100_000
LEASE = timedelta(days=365)
WORKER = "test"
# A test's ctx.db never reaches the database of the settings.
TARGET = "sqlite:///:memory:"

# pytest collects classes named Test*; these are not tests.
__test__ = False


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self, now: datetime | None = None) -> None:
        self.now = now or datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, span: object) -> None:
        """Move on by '90s', '3 days' or a timedelta."""
        self.now += _span(span)

    def set(self, moment: datetime) -> None:
        self.now = moment.astimezone(UTC)

    def monotonic(self) -> float:
        return (self.now - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()


class Driver:
    """Moves an app along in the calling thread: nothing happens unless it is asked to."""

    def __init__(self, app: Rota, storage: Store, clock: Clock) -> None:
        self.app, self.storage, self.clock = app, storage, clock
        self._settler = Settler(
            storage,
            jobs=app._jobs,
            max_lost=app.settings.max_lost,
            events=app.events,
            termination_hook_of=app._termination_hook_of,
            random_value=lambda: 0.0,
        )
        self._notes = Notes(storage)
        self._owner = Owner(
            store=storage,
            notes=self._notes,
            lease=LEASE,
            target=TARGET,
            # Time stands still while a handler runs.
            done=lambda one, outcome: self._settler.put(one.run, outcome, 0.0),
        )
        self._fire = Fire(storage, monotonic=clock.monotonic, fired=lambda: None)
        self._promote = Promote(storage, promoted=lambda: None)
        self._rescue = Rescue(storage, self._settler, rescued=lambda: None)

    def drain(self) -> list[Run]:
        """Fire and run everything that is due now; the runs that were worked on, in order."""
        self.app.load()
        worked: list[str] = []
        while True:
            while self._fire.step() == 0.0:
                pass
            while self._promote.step() == 0.0:
                pass
            self._rescue.step()
            claimed = self.storage.write(
                operations.claim, WORKER, queues=(), jobs=list(self.app._jobs), limit=1, lease=LEASE
            )
            if not claimed:
                break
            self._work(claimed[0])
            worked.append(claimed[0].id)
            if len(worked) > MAX_DRAINED:
                raise Conflict(f"more than {MAX_DRAINED:,} runs without an end; is there a loop?")
        return [self.storage.read(operations.get_run, run_id) for run_id in dict.fromkeys(worked)]

    def advance(self, span: object) -> list[Run]:
        """Let time pass, stopping at each instant at which something is due."""
        end = self.clock.now + _span(span)
        worked = self.drain()
        while (moment := self._next_moment()) is not None and moment <= end:
            self.clock.now = max(moment, self.clock.now)
            worked += self.drain()
        self.clock.now = end
        return worked

    def _next_moment(self) -> datetime | None:
        coming = (
            self.storage.peek(operations.next_fire_at)[1],
            self.storage.read(operations.next_due_at)[1],
        )
        return min((moment for moment in coming if moment is not None), default=None)

    def _work(self, run: ClaimedRun) -> None:
        # In this thread, whatever the job's isolation: a debugger and a monkeypatch reach it.
        job = replace(self.app._jobs[run.job], isolation="thread")
        execution = Execution(run, job, self._owner)
        attempts = functools.partial(
            self.storage.read, operations.list_attempts, run.seq, limit=PAGE
        )
        announce(self.app.events, run, attempts)
        execute(execution, self.app.executors.get(job.executor).run)
        while self._settler.step() == 0.0:
            pass
        self._notes.step()


class TestApp(Rota):
    """An app in memory with its own clock."""

    __test__ = False

    def __init__(self, *, now: datetime | None = None, **settings: Any) -> None:
        self.clock = Clock(now)
        super().__init__("sqlite:///:memory:", storage=_memory(self.clock), **settings)
        self._driver = Driver(self, self.storage, self.clock)

    def drain(self) -> list[Run]:
        """Fire and run everything that is due now."""
        return self._driver.drain()

    def advance(self, span: object) -> list[Run]:
        """Let time pass, running what becomes due on the way."""
        return self._driver.advance(span)


@contextmanager
def in_memory(app: Rota, *, now: datetime | None = None) -> Iterator[Driver]:
    """Give an app a store in memory and a clock, for the length of a test."""
    if app._service is not None:
        raise Conflict("the app is running; stop it before a test uses it")
    clock = Clock(now)
    storage = _memory(clock)
    try:
        with app._using(storage):
            yield Driver(app, storage, clock)
    finally:
        storage.close()


def _memory(clock: Clock) -> Store:
    store = open_store("sqlite:///:memory:", clock=clock)
    store.migrate()
    return store


def _span(span: object) -> timedelta:
    if isinstance(span, str):
        # '3 days' reads better in a test than '3d'.
        span = _WORDS.sub(lambda found: found["number"] + found["unit"][0], span)
    return parse_duration(span, "advance", zero=True)


_WORDS = re.compile(r"^(?P<number>[0-9]+) (?P<unit>second|minute|hour|day|week)s?$")
