"""The queue of a SQL job that takes longer than its interval, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

import rota
from rota.flow.fire import Fire
from rota.model.outcome import Outcome, settle
from rota.model.retry import ONCE
from rota.model.run import ClaimedRun
from rota.storage import operations
from rota.storage.store import Store, open_store
from rota.testing import Clock
from tests.jobsd.support import Jobs, Served

TOML = 'schedule = "* * * * * *"\nqueue_max = 3\ntimeout = "30m"\n'


class Line:
    """A served folder, its store, and a worker that takes as long as the test wants."""

    def __init__(self, jobs: Jobs, store: Store, clock: Clock) -> None:
        app = rota.Rota("sqlite:///:memory:", storage=store, jobs_dir=str(jobs.root))
        self.served, self.store, self.clock = Served(app, jobs), store, clock
        self.fire = Fire(store, monotonic=clock.monotonic, fired=lambda: None)

    def pass_seconds(self, count: int) -> None:
        for _ in range(count):
            self.clock.advance("1s")
            while self.fire.step() == 0.0:
                pass

    def claim(self) -> ClaimedRun:
        lease = timedelta(days=1)
        (run,) = self.store.write(
            operations.claim, "w", queues=(), jobs=["accounting"], limit=1, lease=lease
        )
        return run

    def end(self, run: ClaimedRun) -> None:
        self.store.write(
            operations.settle, [settle(run, Outcome(kind="succeeded"), retry=ONCE, max_lost=3)]
        )

    def states(self) -> list[str]:
        return [run.state for run in reversed(self.store.read(operations.list_runs, limit=99))]

    def outcomes(self) -> list[str]:
        schedule = self.store.read(operations.schedule_named, "accounting")
        found = self.served.app.control.occurrences("accounting", limit=99)
        assert all(row["schedule_id"] == schedule.id for row in found)
        return [row["outcome"] for row in reversed(found)]


@pytest.fixture
def line(jobs: Jobs) -> Iterator[Line]:
    clock = Clock()
    store = open_store("sqlite:///:memory:", clock=clock)
    store.migrate()
    jobs.sql("accounting", TOML)
    made = Line(jobs, store, clock)
    made.served.load()
    yield made
    made.served.app.close()


def test_one_runs_three_wait_the_rest_is_dropped_first_in_first_out(line: Line) -> None:
    line.pass_seconds(1)
    running = line.claim()
    line.pass_seconds(10)
    assert line.states() == ["running", "held", "held", "held"]
    assert line.outcomes() == ["fired"] * 4 + ["dropped"] * 7
    order = []
    for _ in range(3):
        line.end(running)
        running = line.claim()
        order.append(running.occurrence)
    assert order == sorted(order)
    line.end(running)
    assert set(line.states()) == {"succeeded"}


def test_an_edit_leaves_the_queue_and_the_running_one(line: Line, jobs: Jobs) -> None:
    line.pass_seconds(1)
    running = line.claim()
    line.pass_seconds(5)
    before = line.states()
    jobs.sql("accounting", TOML.replace("30m", "5m"), **{"01": "SELECT 2"})
    line.served.settle()
    assert line.served.app.jobs()[0].timeout == timedelta(minutes=5)
    assert line.states() == before == ["running", "held", "held", "held"]
    line.end(running)
    assert line.claim().attempt == 1


def test_deletion_clears_the_queue_and_the_running_one_ends(line: Line, jobs: Jobs) -> None:
    line.pass_seconds(1)
    running = line.claim()
    line.pass_seconds(5)
    jobs.remove("accounting")
    line.served.settle()
    assert line.states() == ["running", "cancelled", "cancelled", "cancelled"]
    line.end(running)
    line.pass_seconds(5)
    assert line.states() == ["succeeded", "cancelled", "cancelled", "cancelled"]
    assert len(line.outcomes()) == 6


def test_a_pause_survives_deletion_and_return(line: Line, jobs: Jobs) -> None:
    line.served.app.control.pause("accounting", "incident")
    jobs.remove("accounting")
    line.served.settle()
    line.pass_seconds(60)
    jobs.sql("accounting", TOML)
    line.served.settle()
    line.pass_seconds(5)
    assert line.states() == []
    line.served.app.control.resume("accounting")
    line.pass_seconds(2)
    assert line.outcomes()[-2:] == ["fired", "fired"]
    assert line.states() == ["queued", "held"]


def test_what_returns_fires_from_then_on(line: Line, jobs: Jobs) -> None:
    jobs.remove("accounting")
    line.served.settle()
    line.pass_seconds(60)
    jobs.sql("accounting", TOML)
    line.served.settle()
    assert line.states() == []
    line.pass_seconds(1)
    assert line.states() == ["queued"]


def test_disabled_in_its_file_stops_fires_and_nothing_else(line: Line, jobs: Jobs) -> None:
    line.pass_seconds(2)
    jobs.sql("accounting", TOML + "enabled = false\n")
    line.served.settle()
    line.pass_seconds(5)
    assert line.states() == ["queued", "held"]
    assert line.claim().job == "accounting"
