"""Everything at once: those who fire, enqueue, claim, settle, repair and meddle disturb nobody.

Nothing here is timed. Whatever the order was, at the end every run has ended once, every slot is
free, no key was ever shared by more runs than it allows, and nobody met an error.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

from rota.errors import Conflict
from rota.model.retry import Retry
from rota.model.run import ClaimedRun, Run
from rota.storage import operations
from rota.storage.store import Store
from tests.conformance.support import (
    ME,
    Place,
    VirtualClock,
    claim,
    ledger,
    new_run,
    put_schedule,
    rescue,
    settle,
    sweep,
    tick,
    together,
)

ROUNDS = {"sqlite": 25, "postgres": 25, "duckdb": 8}  # a call takes DuckDB much longer
LIMIT = 2
RETRY = Retry(max_attempts=2, backoff="none")


class Worker:
    """Claims and ends runs, and watches that no key is shared by too many of them."""

    running: ClassVar[defaultdict[str, set[str]]] = defaultdict(set)
    lock = threading.Lock()

    def __init__(self, store: Store, number: int) -> None:
        self.store, self.name, self.luck = store, f"worker-{number}", random.Random(number)

    def step(self) -> int:
        runs = claim(self.store, 3, worker=self.name)
        for run in runs:
            self.begin(run)
        for run in runs:
            self.end(run)
        return len(runs)

    def begin(self, run: ClaimedRun) -> None:
        with self.lock:
            for key, limit in ((run.overlap_key, 1), (run.concurrency_key, LIMIT)):
                if key is not None:
                    self.running[key].add(run.id)
                    assert len(self.running[key]) <= limit, (key, self.running[key])

    def end(self, run: ClaimedRun) -> None:
        # Before the settle: from then on another run may have the slot.
        with self.lock:
            for key in (run.overlap_key, run.concurrency_key):
                self.running[key or ""].discard(run.id)
        kind = self.luck.choice(["succeeded", "succeeded", "failed", "released", "snoozed"])
        answer = settle(self.store, run, kind, retry=RETRY, on_terminated=note_end)
        assert len(answer) == 1


def note_end(run: Run) -> list[tuple[str, dict[str, Any]]]:
    return [("INSERT INTO ends (run_id) VALUES (:run_id)", {"run_id": run.id})]


def enqueuer(store: Store, place: Place, promised: set[str]) -> None:
    for number in range(ROUNDS[place.engine]):
        keys = {"concurrency_key": f"key {number % 3}", "concurrency_limit": LIMIT}
        runs = [
            new_run(),
            new_run(**keys),
            new_run(overlap_key=f"line {number % 2}", priority=number % 3),
            new_run(overlap_key=f"line {number % 2}", **keys),
        ]
        if number % 5:
            made = store.write(operations.enqueue, runs)
        else:
            caller = place.begin()
            made = store.enqueue_on(caller, runs)
            caller.commit()
            caller.close()
        promised.update(one.id for one in made)


def janitor(store: Store) -> None:
    store.write(operations.promote, 10)
    store.write(operations.admit, store.read(operations.held_keys, "", 10))
    rescue(store)
    sweep(store, 10)


def meddler(store: Store, luck: random.Random) -> None:
    for run in store.read(operations.list_runs, limit=20):
        act = luck.choice(["cancel", "pause", "resume"])
        with suppress(Conflict):
            match act:
                case "cancel":
                    store.write(operations.cancel_run, run.id, None, ME, note_end)
                case "pause":
                    store.write(operations.pause_run, run.id, None, ME)
                case _:
                    store.write(operations.resume_run, run.id, None, ME)


def test_everybody_at_once_loses_nothing(store: Store, place: Place, clock: VirtualClock) -> None:
    place.execute("CREATE TABLE ends (run_id TEXT)")
    Worker.running.clear()
    overlaps = ("queue", "wait", "skip", "allow")
    schedules = [
        put_schedule(store, overlap, expr="1s", overlap=overlap, overlap_key="line 0")
        for overlap in overlaps
    ]
    promised: set[str] = set()
    rounds = ROUNDS[place.engine]
    stores = [place.open() for _ in range(3)]
    luck = random.Random(7)

    def firer() -> None:
        for _ in range(rounds):
            clock.advance("1s")
            tick(stores[0])

    def often(step: Callable[[], object]) -> None:
        for _ in range(rounds):
            step()

    together(
        firer,
        lambda: often(lambda: tick(stores[1])),
        lambda: enqueuer(stores[0], place, promised),
        lambda: enqueuer(stores[1], place, promised),
        lambda: often(Worker(stores[0], 1).step),
        lambda: often(Worker(stores[1], 2).step),
        lambda: often(Worker(stores[2], 3).step),
        lambda: often(lambda: janitor(stores[2])),
        lambda: often(lambda: meddler(stores[2], luck)),
    )
    drain(store, clock)
    check(store, place, promised, [row for one in schedules for row in ledger(store, one)])


def drain(store: Store, clock: VirtualClock) -> None:
    worker, page = Worker(store, 0), 500
    for run in store.read(operations.list_runs, state="paused", limit=page):
        store.write(operations.resume_run, run.id, None, ME)
    for _ in range(10_000):
        clock.advance("1s")
        janitor(store)
        left = set(store.read(operations.overview)["runs"]) - {"succeeded", "dead", "cancelled"}
        if not worker.step() and not left:
            return
    raise AssertionError(store.read(operations.overview))


def check(store: Store, place: Place, promised: set[str], ledger: list[dict[str, Any]]) -> None:
    (count,) = place.execute(f"SELECT count(*) FROM {place.table('runs')}")[0]
    ends = [row[0] for row in place.execute("SELECT run_id FROM ends")]
    assert len(ends) == len(set(ends)) == count
    assert place.execute(f"SELECT * FROM {place.table('slots')}") == []
    fired = [row["run_id"] for row in ledger if row["outcome"] == "fired"]
    assert len(fired) == len(set(fired))
    assert promised | set(fired) == set(ends)
    assert all(row["run_id"] for row in ledger if row["outcome"] in ("fired", "coalesced"))
    assert store.read(operations.list_events, limit=9) == []
