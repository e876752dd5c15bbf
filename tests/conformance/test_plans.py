"""Plans: with 200,000 runs present, every statement of the path walks an index.

The statements are the ones that real calls send, with the parameters they send; each is explained
where it stands.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from copy import copy
from datetime import timedelta
from typing import Any

import pytest

from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.outcome import settle as decide
from rota.model.retry import ONCE
from rota.model.transitions import STATES
from rota.storage import operations
from rota.storage.engine import Row
from rota.storage.operations.claiming import LogLine
from rota.storage.postgres import connect
from rota.storage.postgres.marks import SLOW_LOOKS, Marks
from rota.storage.postgres.store import open_postgres
from rota.storage.sqlite.engine import TYPED_OPTIONS
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
    claim,
    claim_one,
    enqueue,
    enqueue_many,
    fast_paths,
    fire,
    new_run,
    plans,
    put_schedule,
    rescue,
    settle,
    sweep,
    tick,
)

# The first test of each engine waits until the crowd is there.
pytestmark = pytest.mark.timeout(600)

ROWS = 200_000
FRESH_ID = {"sqlite": "lower(hex(randomblob(16)))", "postgres": "gen_random_uuid()"}
FRESH_NAME = {"sqlite": FRESH_ID["sqlite"], "postgres": "gen_random_uuid()::text"}
# The tables that grow with the work. Slots are no such table, nor is a walk over the runs under a
# lease a long one: there are as many as workers have in hand.
LARGE = (
    "runs", "run_ids", "occurrences", "attempts", "logs", "run_keys", "schedules",
    "schedule_changes", "events", "audit",
)  # fmt: skip
LEASED = "runs_lease"
STOPS_AT_A_LIMIT = ("count_open", "queued_jobs", "list_runs_of_state", "count_rare_runs")


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
    store.write(operations.put_jobs, [Job(name="job"), Job(name="other", queue="other")])
    for kind in ("succeeded", "failed", "cancelled"):
        enqueue_many(store, 20)
        for run in claim(store, 20):
            settle(store, run, kind, retry=ONCE)
    enqueue_many(store, 2)
    claim(store, 2, lease=timedelta(days=1_000))
    for run_id in enqueue_many(store, 2):
        store.write(operations.pause_run, run_id, None, ME)
    for number in range(10):
        put_schedule(store, f"schedule-{number}", expr="1000d", overlap="allow")
        enqueue_many(store, 2, concurrency_key=f"key {number}", schedule_id=number)
        enqueue(store, delay=timedelta(days=number + 1))
        enqueue(store, key=f"key {number}")
        enqueue(store, job="other", queue="other")
    assert {run.state for run in all_runs(store)} == set(STATES)
    line = LogLine(run_seq=1, attempt=1, at=place.clock(), level="info", text="hello")
    store.write(operations.insert_logs, [line])
    event = {"kind": "test", "run_id": run_id, "name": None, "detail": None}
    store.engine.write("test", lambda tx: tx.many("insert_events", [event]))
    store.write(operations.pause_schedule, "schedule-0", None, ME)
    store.write(operations.resume_schedule, "schedule-0", None, ME)
    put_schedule(store, expr="1s", overlap="allow")
    place.clock.advance("1s")
    tick(store)
    store.write(operations.drop_schedule, "schedule", None, ME)

    fresh_id, fresh_name = FRESH_ID[place.engine], FRESH_NAME[place.engine]
    another_run = "run_seq + (SELECT max(run_seq) FROM {table})"
    another_schedule = "schedule_id + (SELECT max(schedule_id) FROM {table})"
    some = ROWS // 10
    double(place, "runs", ROWS, seq=None, id=fresh_id)
    if place.engine == "postgres":
        place.execute(
            "INSERT INTO rota_data.run_ids (id, seq) SELECT id, seq FROM rota_data.runs"
            " ON CONFLICT DO NOTHING"
        )
    double(place, "schedules", some, id=None, name=fresh_name)
    double(place, "attempts", some, run_seq=another_run)
    double(place, "logs", some, id=None, run_seq=another_run)
    double(place, "occurrences", some, schedule_id=another_schedule)
    double(place, "schedule_changes", some, id=None, schedule_id=another_schedule)
    double(place, "run_keys", some, key=fresh_name)
    double(place, "events", some, id=None, run_id=fresh_id)
    double(place, "audit", some, id=None)
    # Those who own a slot are among the latest.
    slots, runs = place.table("slots"), place.table("runs")
    place.execute(f"UPDATE {slots} SET owner_run = (SELECT max(seq) FROM {runs}) - owner_run")
    if place.engine == "postgres":
        place.execute("ANALYZE")  # as autovacuum does after so many changes


def double(place: Place, table: str, wanted: int, **fresh: str | None) -> None:
    """Copy all rows again and again; `fresh` columns get a new value, or their default."""
    name = place.table(table)
    connection = place.autocommit()
    described = connection.execute(f"SELECT * FROM {name} LIMIT 0").description
    generated = TYPED_OPTIONS if (place.engine, table) == ("sqlite", "schedules") else ()
    columns = {
        column[0]: fresh.get(column[0], f'"{column[0]}"')
        for column in described
        if column[0] not in generated
    }
    kept = {column: value for column, value in columns.items() if value is not None}
    into = ", ".join(f'"{column}"' for column in kept)
    values = ", ".join(kept.values()).replace("{table}", name)
    (count,) = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
    assert count, table
    while count < wanted:
        copied = f"SELECT {values} FROM {name} LIMIT {wanted - count}"
        connection.execute(f"INSERT INTO {name} ({into}) {copied}")
        (count,) = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
    connection.close()


@pytest.fixture(autouse=True)
def plain_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each statement is good by itself, wherever it is sent: also where a transaction helps it."""
    monkeypatch.setattr(connect, "_LOCALLY", b"")


def open_plainly(place: Place, *, fast_paths: bool = True) -> Store:
    """On PostgreSQL as behind a pooler: there no setting of ours forbids a sequential scan in what
    is sent alone."""
    if place.engine == "postgres":
        opened = open_postgres(place.url, clock=place.clock, prepare=False, fast_paths=fast_paths)
        return place.keep(opened)
    return place.open()


# What is asked of the crowd


def do_fire(store: Store, clock: VirtualClock) -> None:
    now = f"{clock():%H%M%S}"  # called again it finds what it left
    put_schedule(store, f"due-{now}", overlap="queue")
    for _ in range(2):  # the second run waits for the first
        clock.advance("30s")
        fire(store, plans(store))
    store.peek(operations.next_fire_at)
    herd = [put_schedule(store, f"kin-{now}-{number}", overlap="wait") for number in range(2)]
    clock.advance("10s")
    plan = next(plan for plan in plans(store) if plan.schedule.id == herd[0].id)
    ids = store.peek(operations.due_group, plan.schedule, 100)
    assert {one.id for one in herd} <= set(ids)
    assert store.write(operations.fire_group, plan, ids, None).runs >= len(herd)
    put_schedule(store, f"on-time-{now}", overlap="queue")
    clock.advance("10s")
    fire(store, plans(store))


def do_enqueue(store: Store, clock: VirtualClock) -> None:
    enqueue_many(store, 2)
    enqueue_many(store, 2, concurrency_key="key 1")
    key = f"k {clock()}"
    clock.advance("1s")
    store.write(operations.enqueue, [new_run(key=key, concurrency_key="key 1"), new_run(key=key)])


def do_promote(store: Store, clock: VirtualClock) -> None:
    store.read(operations.next_due_at)
    enqueue(store, delay=timedelta(seconds=1), concurrency_key="key 2")
    clock.advance("1s")
    store.write(operations.promote, 100)


def do_admit(store: Store, clock: VirtualClock) -> None:
    store.write(operations.admit, store.read(operations.held_keys, "", 100))


def do_claim(store: Store, clock: VirtualClock) -> None:
    claim(store, 100)
    claim(store, 100, queues=["default"], jobs=["job", "other"])
    store.write(operations.release_forgotten_runs, "nobody", [1, 2, 3])
    if paths := fast_paths(store):  # a claim that begins where a long look ended
        marks, paths._marks = paths._marks, Marks()
        for _ in range(SLOW_LOOKS):
            paths._marks.looked([], 1.0, time.monotonic(), jobs=["job"], limit=1)
        claim(store, 100)
        assert paths._marks._marks  # what was asked for: queued_lines, and claim_marked_runs
        paths._marks = marks


def do_renew(store: Store, clock: VirtualClock) -> None:
    run = claim_one(store)
    store.write(operations.renew, [(run.seq, run.attempt)], LEASE)
    store.write(operations.set_progress, run.seq, run.attempt, "half")


def do_settle(store: Store, clock: VirtualClock) -> None:
    silent, telling = Outcome(kind="succeeded"), Outcome(kind="succeeded", result="1")
    runs = claim(store, 50)
    plain = [run for run in runs if not run.owns_slots]
    ends = zip(plain, [silent, telling] * len(plain), strict=False)
    store.write(
        operations.settle, [decide(run, told, retry=ONCE, max_lost=3) for run, told in ends]
    )
    put_schedule(store, "delay", anchor="delay", priority=9)
    clock.advance("10s")
    tick(store)
    fired = claim_one(store)
    assert fired.schedule_id == store.read(operations.schedule_named, "delay").id
    settle(store, fired, on_terminated=lambda run: [])
    put_schedule(store, "doomed", priority=99, pause_after=5)
    clock.advance("10s")
    tick(store)
    settle(store, claim_one(store), "failed", retry=ONCE)
    for run in runs:
        settle(store, run, "failed")


def do_rescue(store: Store, clock: VirtualClock) -> None:
    enqueue(store, priority=9, overlap_key="mine")
    claim_one(store)
    clock.advance("31s")
    rescue(store)
    sweep(store, 100)


def do_prune(store: Store, clock: VirtualClock) -> None:
    clock.advance("1m")
    for state in ("succeeded", "dead", "cancelled"):
        store.write(operations.prune_runs, state, age_seconds=5, keep_last=50, limit=100)
    (schedule_id,) = store.read(operations.ledger_ids, after=0, limit=1)
    store.write(operations.fold_ledger, schedule_id, age_seconds=5, keep_rows=100, limit=100)


def do_control(store: Store, clock: VirtualClock) -> None:
    first, second = enqueue_many(store, 2, concurrency_key="mine")
    store.write(operations.pause_run, first, None, ME)
    store.write(operations.resume_run, first, None, ME)
    store.write(operations.cancel_run, first, None, ME)
    store.write(operations.redo_run, first, None, ME)
    store.write(operations.delete_run, second, None, ME)


def do_read(store: Store, clock: VirtualClock) -> None:
    (run,) = all_runs(store, job="job")[-1:]
    store.read(operations.list_runs, limit=10)
    store.read(operations.list_runs, job="job", limit=10)
    store.read(operations.list_runs, job="of nobody", limit=10)
    store.read(operations.list_runs, schedule_id=3, before=run.seq, limit=10)
    store.read(operations.list_attempts, run.seq, limit=10)
    store.read(operations.list_logs, run.seq, limit=10)
    store.read(operations.list_events, run_id=run.id, limit=10)
    store.read(operations.list_audit, limit=10)
    store.read(operations.list_schedules, limit=10)
    store.read(operations.list_occurrences, 3, before=FAR, limit=10)
    store.read(operations.list_schedule_changes, 3, before=10**9, limit=10)
    store.read(operations.occurrence_at, 3, clock())
    store.read(operations.slot_owners, "c/key 1")
    store.read(operations.count_held, "c/key 1")
    store.read(operations.run_ids, "abcd", limit=10)


def do_look(store: Store, clock: VirtualClock) -> None:
    """What surfaces show, however much there is."""
    now, soon = clock(), clock() + timedelta(days=10_000)
    at = store.read(operations.follow_position)
    told = {"seq": at["seq"] - 5, "audit_id": at["audit_id"] - 5}
    store.read(operations.changes_since, **told, since_at=now, until_at=soon, limit=100)
    store.read(operations.brief_runs, [1, 2, 3])
    store.read(operations.attempts_above, {1: 0, 2: 1, 3: 0}, limit=100)
    for state in ("dead", "cancelled", "paused", "running"):
        store.read(operations.list_runs, state=state, limit=10)
        store.read(operations.count_matching_runs, state, job="job", limit=10)
    store.read(operations.list_dead_runs, before=at["seq"], limit=10)
    store.read(operations.count_by_state, now, limit=100)
    store.read(operations.look_for_problems, late_at=now, lost_at=now, limit=10)
    store.read(operations.queued_jobs, limit=100)
    store.read(operations.runs_between, now - timedelta(days=1), now, limit=10, looked=10)
    store.read(operations.schedules_due, soon, limit=10)
    store.read(operations.recent_durations, ["job", "other"], limit=20)
    store.read(operations.recent_outcomes, [1, 2, 3], limit=30)
    store.read(operations.tail_logs, 1, limit=10)
    store.read(operations.running_by_schedule)
    store.read(operations.ended_in_buckets, now, soon, seconds=60)
    store.read(operations.ended_by_job_in_buckets, now, soon, seconds=60, limit=100)
    store.read(operations.recent_fires, limit=10)
    store.read(operations.durations_of_schedule, 3, limit=10)


CALLS = [
    do_fire, do_enqueue, do_promote, do_admit, do_claim, do_renew, do_settle, do_rescue, do_prune,
    do_control, do_read, do_look,
]  # fmt: skip
# Statements that each call must have sent, so that a plan nobody asked for is not taken for good.
SENT_BY_FAST_PATHS = {
    "do_fire": {"fire_free", "fire_kin"},
    "do_enqueue": {"insert_new_runs"},
    "do_admit": {"admit_runs"},
    "do_claim": {"claim_at_once", "claim_marked_runs", "queued_lines"},
}
SENT_INSTEAD = {
    "do_fire": {"advance_schedules", "take_slots", "insert_fired_runs", "free_kin"},
    "do_enqueue": {"insert_alike_runs", "insert_runs"},
    "do_promote": {"taken_numbers"},
    "do_admit": {"lock_slots", "taken_numbers", "held_runs"},
    "do_claim": {"open_queues", "pick_runs", "pick_whole_runs", "claim_runs", "claimed_runs"},
}
SENT = {
    "do_fire": {"due_schedules", "next_fire_at", "advance_schedules", "count_held", "due_in_group"},
    "do_enqueue": {"insert_alike_runs", "insert_runs", "take_keys"},
    "do_promote": {"promote_runs", "next_due_at"},
    "do_admit": {"held_keys"},
    "do_claim": {"release_forgotten_runs"},
    "do_renew": {"renew_runs", "set_progress"},
    "do_settle": {"succeed_runs", "settle_runs", "release_slots", "delay_schedules", "recent_ends"},
    "do_rescue": {"expired_runs", "sweep_slots", "stranded_delay_schedules"},
    "do_prune": {"old_runs", "delete_runs", "foldable_occurrences"},
    "do_control": {"lock_run", "cancel_run", "delete_runs"},
    "do_read": {
        "list_runs",
        "recent_runs_of_job",
        "list_runs_of_job",
        "list_runs_of_schedule",
        "occurrence_at",
    },
    "do_look": {
        "brief_runs_after",
        "brief_ended",
        "attempts_above",
        "ended_from",
        "list_runs_of_state",
        "dead_runs",
        "broken_schedules",
        "paused_schedules",
        "schedule_ids_due",
        "recent_durations",
        "recent_outcomes",
        "audit_after",
        "running_by_schedule",
        "ended_in_buckets",
        "ended_by_job_in_buckets",
        "recent_fires",
        "durations_of_schedule",
    },
}


# Plans


def sqlite_walks(sql: str, rows: list[Row]) -> list[str]:
    """A SEARCH goes down an index, a SCAN goes along it or the table; either names the alias."""
    tables = {alias: table for table, alias in re.findall(r"_rota_(\w+) (?:AS )?([a-z]+)\b", sql)}
    scans = [re.match(r"SCAN (?:_rota_)?(\w+)(.*)", told(row, "detail")) for row in rows]
    return [
        scan[0]
        for scan in scans
        if scan and tables.get(scan[1], scan[1]) in LARGE and LEASED not in scan[2]
    ]


def postgres_walks(sql: str, rows: list[Row]) -> list[str]:
    """Nodes that read a large table without a condition on an index."""
    return [
        f"{node['Node Type']} {node.get('Index Name', '')} on {node['Relation Name']}"
        for node, above in nodes(told(rows[0], "QUERY PLAN")[0]["Plan"], None)
        if node.get("Relation Name") in LARGE
        and node["Node Type"] in ("Seq Scan", "Index Scan", "Index Only Scan")
        and "Index Cond" not in node
        and node.get("Index Name") != LEASED
        # The first rows of an index, and whichever they are: min(), max().
        and not (above == "Limit" and "Index Name" in node and "Filter" not in node)
    ]


def told(row: Any, column: str) -> Any:
    """The plan in a row, which is a tuple on the hot path; it stands last there."""
    return row[column] if isinstance(row, dict) else row[-1]


def nodes(plan: dict[str, Any], above: str | None) -> Iterator[tuple[dict[str, Any], str | None]]:
    """All nodes of a plan, with the type of the node above."""
    yield plan, above
    for inner in plan.get("Plans", ()):
        yield from nodes(inner, plan["Node Type"])


def explaining(statement: Any) -> Any:
    """The engine's own form of a statement, asking for its plan instead."""
    if isinstance(statement, str):
        return f"EXPLAIN QUERY PLAN {statement}"
    asking = copy(statement)
    asking.sql = b"EXPLAIN (FORMAT JSON) " + statement.sql
    asking.numbered = b"EXPLAIN (FORMAT JSON) " + statement.numbered
    asking.handle = b"explain_" + statement.handle
    return asking


@pytest.fixture
def walks(crowded: Place, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The walks over large tables in the plan of every statement that is sent, by its name."""
    return watch_walks(crowded, monkeypatch)


def watch_walks(place: Place, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    transaction: Any = place.open().engine.read(type)
    read = sqlite_walks if place.engine == "sqlite" else postgres_walks
    rows = transaction._execute_tuples

    def watch(method: str) -> None:
        real = getattr(transaction, method)
        explain = rows if method == "_execute_values" else real  # a plan has more than one column

        def watched(self: Any, name: str, params: Any, *shared: Any) -> Any:
            if name not in found and name != "explain":
                statements = self.engine.statements
                statements["explain"] = explaining(statements[name])
                found[name] = read(str(statements[name]), explain(self, "explain", params, *shared))
            return real(self, name, params, *shared)

        monkeypatch.setattr(transaction, method, watched)

    sending = (
        "_execute", "_execute_many", "_execute_tuples", "_execute_values", "_execute_columns",
    )  # fmt: skip
    for method in sending:
        if method in vars(transaction):  # else it calls one that is
            watch(method)
    if place.engine == "postgres":
        watch_bound(found, monkeypatch)
    return found


def watch_bound(found: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """What PostgreSQL's engine sends without a transaction around it."""
    from rota.storage.postgres.engine import PostgresEngine

    send = PostgresEngine._send_bound

    def watched(self: Any, name: str, statement: str, bound: Any, then: bytes | None) -> Any:
        if statement not in found:
            asked = self.statements[statement]
            self.statements["explain"] = explaining(asked)
            found[statement] = postgres_walks(
                str(asked), send(self, name, "explain", dict(bound), None)
            )
        return send(self, name, statement, bound, then)

    monkeypatch.setattr(PostgresEngine, "_send_bound", watched)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_no_statement_walks_a_large_table(
    crowded: Place, walks: dict[str, list[str]], call: Callable[[Store, VirtualClock], None]
) -> None:
    call(open_plainly(crowded), crowded.clock)
    assert SENT[call.__name__] <= set(walks)
    if crowded.engine == "postgres":
        assert SENT_BY_FAST_PATHS.get(call.__name__, set()) <= set(walks)
    # What is queued of a job that is not among the recent runs is looked for in the whole line.
    assert len(walks.pop("list_runs_of_job", [])) <= 1
    # They stop at a limit, or are for what is rare: along the index of their state, and never along
    # the table.
    for name in STOPS_AT_A_LIMIT:
        assert all("USING" in line or "Index" in line for line in walks.pop(name, []))
    assert {name: lines for name, lines in walks.items() if lines} == {}


@pytest.mark.parametrize("call", SENT_INSTEAD)
def test_no_plain_statement_walks_a_large_table(
    crowded: Place, walks: dict[str, list[str]], call: str
) -> None:
    if crowded.engine != "postgres":
        pytest.skip("there are no others")
    calls = {one.__name__: one for one in CALLS}
    calls[call](open_plainly(crowded, fast_paths=False), crowded.clock)
    assert SENT_INSTEAD[call] <= set(walks)
    assert {name: lines for name, lines in walks.items() if lines} == {}


@pytest.mark.parametrize("view", ["runs", "dead", "job_runs", "attempts", "steps", "events"])
def test_a_view_finds_a_run_by_its_id_however_many_there_are(crowded: Place, view: str) -> None:
    if crowded.engine != "postgres":
        pytest.skip("ids have a table of their own on PostgreSQL")
    ((run_id,),) = crowded.execute("SELECT id FROM rota_data.run_ids LIMIT 1")
    asked = f"SELECT * FROM rota.{view} WHERE run_id = '{run_id}'"
    ((plan,),) = crowded.execute(f"EXPLAIN (FORMAT JSON) {asked}")
    assert "run_ids_pkey" in str(plan)
    walked = [line for line in postgres_walks("", [{"QUERY PLAN": plan}]) if "runs" in line]
    assert walked == []


def test_figures_read_no_more_than_they_count(crowded: Place, walks: dict[str, list[str]]) -> None:
    """What waits is counted, up to a limit, and so are schedules; nothing else is walked."""
    store = open_plainly(crowded)
    store.read(operations.figures, depth=1_000, queues=100, jobs=100, recent=100, live_seconds=30.0)
    walked = {name for name, lines in walks.items() if lines}
    assert walked <= {"queue_depths", "schedule_statuses"}
    assert {"last_successes", "oldest_queued", "count_live_workers"} <= set(walks)


def test_a_walk_is_seen(crowded: Place, walks: dict[str, list[str]]) -> None:
    open_plainly(crowded).read(operations.overview)
    assert walks["count_runs"]


@pytest.mark.own_store  # what ANALYZE notes of a table outlives its rows
def test_many_runs_are_found_one_by_one_where_the_table_is_small(
    postgres_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planner that knew how many are asked for would read the whole table, for each of them."""
    store = open_plainly(postgres_place)
    store.write(operations.put_jobs, [Job(name="job")])
    for _ in range(10):
        enqueue_many(store, 1_000)
    postgres_place.execute("ANALYZE")
    walks = watch_walks(postgres_place, monkeypatch)
    runs = claim(store, 1_000)
    store.write(operations.renew, [(run.seq, run.attempt) for run in runs], LEASE)
    store.read(operations.cancel_requests, [run.seq for run in runs])
    succeeded, failed = Outcome(kind="succeeded"), Outcome(kind="failed")
    ends = [decide(run, failed, retry=ONCE, max_lost=3) for run in runs[500:]]
    assert store.write(operations.held_elsewhere, ends) == set()
    store.write(
        operations.settle, [decide(run, succeeded, retry=ONCE, max_lost=3) for run in runs[:500]]
    )
    store.write(operations.settle, ends)
    asked = {"renew_runs", "cancel_requests", "succeed_runs", "settle_runs"}
    assert {name: walks[name] for name in asked} == {name: [] for name in asked}
    # There is no schedule here, so to read them all is to read nothing.
    assert set(walks["held_elsewhere"]) == {"Seq Scan  on schedules"}
