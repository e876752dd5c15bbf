"""Plans: with 200,000 runs present, every statement of the path walks an index.

The statements are the ones that real calls send, with the parameters they send; each is explained
where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.outcome import settle as decide
from rota.model.retry import ONCE
from rota.storage.engine import Probed, Transaction
from rota.storage.store import Store
from tests.conformance.support import (
    FAR,
    LEASE,
    ME,
    Place,
    PostgresPlace,
    SqlitePlace,
    VirtualClock,
    all_runs,
    as_claimed,
    claim,
    claim_one,
    enqueue,
    enqueue_many,
    fire,
    new_run,
    plans,
    put_schedule,
    rescue,
    settle,
    tick,
)

ROWS = 200_000
FRESH_ID = {"sqlite": "lower(hex(randomblob(16)))", "postgres": "gen_random_uuid()::text"}
EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN", "postgres": "EXPLAIN"}
# A walk over a whole table that grows with the work: how each engine says it.
LARGE = r"(runs|occurrences|attempts|logs|slots|run_keys|schedules|events|audit)"
WALK = {
    "sqlite": re.compile(rf"^SCAN (_rota_{LARGE}|r|newer|s|o)\b"),
    "postgres": re.compile(rf"Seq Scan on {LARGE}\b"),
}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def crowded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A store in which many runs of every state lie, and many schedules."""
    clock = VirtualClock()
    if request.param == "sqlite":
        folder = tmp_path_factory.mktemp("crowded")
        place: Place = SqlitePlace(f"sqlite:///{folder}/rota.db", clock)
    else:
        server = request.getfixturevalue("postgres_server")
        place = PostgresPlace(server.create_database(), clock)
    store = place.open()
    store.migrate()
    fill(store, place)
    yield place
    place.close()
    if request.param == "postgres":
        server.drop_database(place.url)


def fill(store: Store, place: Place) -> None:
    """One of each by real calls, then doubled until it is a crowd."""
    store.put_jobs([Job(name="job"), Job(name="other", queue="other")])
    for number in range(10):
        put_schedule(store, f"schedule-{number}", expr="1000d", overlap="allow")
        enqueue(store, concurrency_key=f"key {number}")
        enqueue(store, concurrency_key=f"key {number}", schedule_id=number)
        enqueue(store, delay=timedelta(days=number + 1))
        enqueue(store, job="other", queue="other", key=f"key {number}")
    for kind in ("succeeded", "succeeded", "succeeded", "failed", "cancelled", "released"):
        for run in claim(store, 5):
            settle(store, run, kind, retry=ONCE)
    for run_id in enqueue_many(store, 2):
        store.pause_run(run_id, None, ME)
    enqueue_many(store, 5)
    claim(store, 5, lease=timedelta(days=1_000))
    double(place, "runs", {"seq": None, "id": FRESH_ID[place.engine]}, ROWS)
    double(place, "schedules", {"id": None, "name": FRESH_ID[place.engine]}, 10_000)
    place.execute("ANALYZE") if place.engine == "postgres" else None


def double(place: Place, table: str, fresh: dict[str, str | None], wanted: int) -> None:
    """Copy all rows again and again; `fresh` columns get a new value, or their default."""
    name = place.table(table)
    connection = place.autocommit()
    described = connection.execute(f"SELECT * FROM {name} LIMIT 0").description
    columns = {column[0]: fresh.get(column[0], f'"{column[0]}"') for column in described}
    kept = {column: value for column, value in columns.items() if value is not None}
    into, values = ", ".join(f'"{column}"' for column in kept), ", ".join(kept.values())
    count = connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
    while count < wanted:
        copy = f"SELECT {values} FROM {name} LIMIT {wanted - count}"
        connection.execute(f"INSERT INTO {name} ({into}) {copy}")
        count = connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
    connection.close()


# What is asked of the crowd


def do_fire(store: Store, clock: VirtualClock) -> None:
    put_schedule(store, "due", overlap="queue")
    clock.advance("30s")
    fire(store, plans(store))
    store.next_fire_at()


def do_enqueue(store: Store, clock: VirtualClock) -> None:
    enqueue(store)
    store.enqueue([new_run(key="k", concurrency_key="key 1"), new_run(key="k")])


def do_promote(store: Store, clock: VirtualClock) -> None:
    store.next_due_at()
    enqueue(store, delay=timedelta(seconds=1), concurrency_key="key 2")
    clock.advance("1s")
    store.promote(100)


def do_admit(store: Store, clock: VirtualClock) -> None:
    store.admit(store.held_keys("", 100))


def do_claim(store: Store, clock: VirtualClock) -> None:
    claim(store, 100)
    claim(store, 100, queues=["default"], jobs=["job", "other"])
    store.let_go_unknown("nobody", [1, 2, 3])


def do_renew(store: Store, clock: VirtualClock) -> None:
    run = claim_one(store)
    store.renew([(run.seq, run.attempt)], LEASE)
    store.set_progress(run.seq, run.attempt, "half")


def do_settle(store: Store, clock: VirtualClock) -> None:
    told = Outcome(kind="succeeded")
    runs = claim(store, 50)
    store.settle([decide(run, told, retry=ONCE, max_lost=3) for run in runs if not run.owns_slots])
    put_schedule(store, "delay", anchor="delay")
    clock.advance("10s")
    tick(store)
    fired = store.list_runs(schedule_id=store.schedule_named("delay").id, limit=1)
    settle(store, as_claimed(fired[0]), on_terminated=lambda run: [])
    for run in runs:
        settle(store, run)


def do_rescue(store: Store, clock: VirtualClock) -> None:
    enqueue(store, priority=9, overlap_key="mine")
    claim_one(store)
    clock.advance("31s")
    rescue(store)
    store.sweep(100)


def do_prune(store: Store, clock: VirtualClock) -> None:
    for state in ("succeeded", "dead", "cancelled"):
        store.prune_runs(state, age_seconds=5, keep_last=50, limit=100)
    store.prune_occurrences(age_seconds=5, limit=100)


def do_control(store: Store, clock: VirtualClock) -> None:
    first, second = enqueue_many(store, 2, concurrency_key="mine")
    store.pause_run(first, None, ME)
    store.resume_run(first, None, ME)
    store.cancel_run(first, None, ME)
    store.redo_run(first, None, ME)
    store.delete_run(second, None, ME)


def do_read(store: Store, clock: VirtualClock) -> None:
    (run,) = all_runs(store, job="job")[-1:]
    store.list_runs(limit=10)
    store.list_runs(job="job", limit=10)
    store.list_runs(schedule_id=3, before=run.seq, limit=10)
    store.list_attempts(run.seq, limit=10)
    store.list_logs(run.seq, limit=10)
    store.list_events(run_id=run.id, limit=10)
    store.list_audit(limit=10)
    store.list_schedules(limit=10)
    store.list_occurrences(3, before=FAR, limit=10)
    store.list_schedule_changes(3, before=10**9, limit=10)


CALLS = [
    do_fire, do_enqueue, do_promote, do_admit, do_claim, do_renew, do_settle, do_rescue, do_prune,
    do_control, do_read,
]  # fmt: skip
# Statements that each call must have sent, so that a plan nobody asked for is not taken for good.
SENT = {
    "do_fire": {"due_schedules", "next_fire_at", "advance_schedules", "take_slots", "count_held"},
    "do_enqueue": {"insert_runs", "take_keys", "held_runs"},
    "do_promote": {"promote_runs", "next_due_at", "held_runs"},
    "do_admit": {"held_keys", "held_runs", "taken_numbers"},
    "do_claim": {"claim_runs", "let_go_unknown"},
    "do_renew": {"renew_runs", "set_progress"},
    "do_settle": {"settle_runs", "release_slots", "delay_schedules"},
    "do_rescue": {"expired_runs", "sweep_slots", "stranded_delay_schedules"},
    "do_prune": {"old_runs", "delete_runs", "old_occurrences"},
    "do_control": {"lock_run", "cancel_run", "delete_runs"},
    "do_read": {"list_runs", "list_runs_of_job", "list_runs_of_schedule"},
}


@pytest.fixture
def explained(
    crowded: Place, monkeypatch: pytest.MonkeyPatch
) -> dict[str, list[str]]:
    """The plan of every statement, by name, from the moment it is first sent."""
    found: dict[str, list[str]] = {}
    real_all, real_many = Probed.all, Probed.many

    def explain(transaction: Transaction, name: str, send: Callable[[str], list[dict]]) -> None:
        if name not in found and name != "explain":
            statements = transaction.engine.statements  # type: ignore[attr-defined]
            statements["explain"] = f"{EXPLAIN[crowded.engine]} {statements[name]}"
            found[name] = [str(list(row.values())[-1]) for row in send("explain")]

    def explained_all(self, name, /, **params):  # type: ignore[no-untyped-def]
        explain(self, name, lambda asked: self._execute(asked, params))
        return real_all(self, name, **params)

    def explained_many(self, name, rows):  # type: ignore[no-untyped-def]
        if rows:
            explain(self, name, lambda asked: self._execute_many(asked, rows[:1]))
        return real_many(self, name, rows)

    monkeypatch.setattr(Probed, "all", explained_all)
    monkeypatch.setattr(Probed, "many", explained_many)
    return found


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_no_statement_walks_a_whole_table(
    crowded: Place, explained: dict[str, list[str]], call: Callable[[Store, VirtualClock], None]
) -> None:
    call(crowded.open(), crowded.clock)
    assert SENT[call.__name__] <= set(explained)
    walks = {
        name: [line for line in plan if WALK[crowded.engine].search(line)]
        for name, plan in explained.items()
    }
    assert {name: lines for name, lines in walks.items() if lines} == {}
    seen = [line for plan in explained.values() for line in plan]
    assert any("index" in line.lower() or "primary key" in line.lower() for line in seen)
