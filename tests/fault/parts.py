"""The parts of the campaign: each brings one kind of fault over processes under load.

A part is a function of a campaign that has not begun, a number of faults, and the server.
`make test` runs each of them briefly, `make faults` for long; both judge with the same checker.
"""

from __future__ import annotations

import shutil
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fault import mishaps, soak, storms
from tests.fault.campaign import PROCESSES, Campaign, NotReached, Verdict
from tests.fault.history import read_rows
from tests.fault.life import Life
from tests.fault.zygote import Child
from tests.support.postgres import Cluster

if TYPE_CHECKING:
    from tests.fault.bench import Bench

REACH_SECONDS = 30.0
TRIES = 3
STRIDE = 20  # a short campaign dies at every so many points of a beginning
CALLS_STRIDE = 7
MOST_POINTS = 2_000
# What is reached only in a process that something else happens to as well.
HINTS: Mapping[str, Mapping[str, str]] = {
    "claiming.release_forgotten_runs.release_forgotten_runs": {
        "ROTA_FAIL_AT": "claiming.claim.commit.before:1"
    },
    "enqueueing.enqueue.find_keys": {"ROTA_TEST_ONCE_SECONDS": "600", "ROTA_TEST_WISH": "once"},
}
# What a busy machine comes to now and then, and on one engine only.
LONG_LOOKS = {"ROTA_TEST_LONG_LOOKS": "1"}
SOMETIMES = {
    "claiming.claim.claim_marked_runs": LONG_LOOKS,
    "claiming.claim.queued_lines": LONG_LOOKS,
}
# What clients ask for more often where it is the way to a point.
WISHES = {"runs.cancel_run": "cancelled", "enqueueing.enqueue_on": "on_connection"}
# Where each call that writes is met: in the everyday life of processes under load, when a store
# is made, when a process stops. What only operators and handlers ask for is not met at all; that
# it can be repeated after a crash anywhere is tested in conformance/test_points.py.
EVERYDAY = (
    "slots.admit", "runs.cancel_run", "claiming.claim", "enqueueing.enqueue",
    "enqueueing.enqueue_on", "firing.fire", "ledger.fold_ledger", "workers.forget_old_workers",
    "slots.promote", "pruning.prune_runs", "workers.put_worker", "claiming.renew",
    "settling.settle", "slots.sweep",
)  # fmt: skip
# Met by the SQL jobs of test_sql_steps.py; the last two need more than a crash.
STEPS = (
    "steps.keep_files", "steps.begin_step", "steps.step", "steps.finish_step", "steps.end_step",
    "steps.has_mark", "steps.prune_texts",
)  # fmt: skip
AT_THE_BEGINNING = (
    "installation.migrate", "jobs.put_jobs", "sql_jobs.put_schedule",
    "schedules.register_schedule", "enqueueing.ensure_queues",
)  # fmt: skip
# Groups need many schedules alike, held rows another engine, a claim that is given back a lost
# answer, the others a store that was moved or changed by hand.
NOT_MET = (
    "claiming.release_forgotten_runs", "settling.held_elsewhere",
    "firing.fire_group", "firing.fire_known", "installation.pause_active_schedules",
    "installation.put_home", "installation.adopt_home", "installation.grant_roles",
)  # fmt: skip
AT_THE_END = ("workers.forget_worker",)
OPERATORS = (
    "workers.acquire_lock", "requests.answer", "ledger.put_count", "stored_files.delete_file",
    "runs.delete_run", "sql_jobs.drop_schedule", "workers.extend_lock", "pruning.forget_bench",
    "claiming.insert_logs", "steps.keep_texts", "job_files.owe_scripts",
    "firing.disable_broken_schedules", "queues.pause_queue", "runs.pause_run",
    "schedules.pause_schedule",
    "requests.prune_answered", "stored_files.prune_files", "sql_jobs.prune_shared_jobs",
    "job_files.put_definitions", "stored_files.put_file", "access.put_token",
    "audit.record_action", "runs.redo_run", "workers.release_lock", "queues.resume_queue",
    "runs.resume_run", "schedules.resume_schedule", "job_files.retire_job",
    "access.revoke_token", "queues.set_dispatch", "claiming.set_progress",
    "job_files.take_scripts",
)  # fmt: skip


def kills(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """SIGKILL of any process at any moment, also while it starts."""
    begin(campaign)
    for _ in range(times):
        place = campaign.luck.choice(campaign.places)
        campaign.kill(place)
        child = campaign.start_at(place)
        # Of several some are always up. The only one would be killed before it has done anything.
        if campaign.alone and campaign.luck.random() < 0.7:
            campaign.wait_note("up", by=child.name)
            campaign.pass_time(0.0, 0.7)
        campaign.pass_time(0.0, 0.35)
    return campaign.finish()


def zombies(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """SIGSTOP for longer than a lease, then SIGCONT: whoever wakes finds that others went on."""
    begin(campaign)
    woken = 0
    while woken < times:
        asleep = campaign.luck.sample(range(PROCESSES), min(PROCESSES - 1, times - woken))
        frozen = [campaign.freeze(place) for place in asleep]
        campaign.pass_time(1.1 * campaign.lease, 2.2 * campaign.lease)
        for child in frozen:
            campaign.thaw(child)
        woken += len(frozen)
        campaign.tally("zombie", len(frozen))
        campaign.pass_time(0.1, 0.5)
    return campaign.finish()


def sleepers(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """SIGSTOP of a scheduler that has read what is due and has not fired it; others go on."""
    begin(campaign)
    for _ in range(times):
        place = campaign.luck.randrange(PROCESSES)
        point = f"read.due_schedules.after:{campaign.luck.randrange(2, 6)}"
        campaign.kill(place)
        child = campaign.start_at(place, environment={"ROTA_STOP_AT": point})
        campaign.wait_note("point", by=child.name)
        campaign.tally("sleeping scheduler")
        campaign.pass_time(1.1, 2.5)
        campaign.thaw(child)
    return campaign.finish()


def server_crashes(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """PostgreSQL ends at once, without a checkpoint, and comes back after a while."""
    server = bench.server
    assert isinstance(server, Cluster)
    begin(campaign)
    for _ in range(times):
        server.stop(immediate=True)
        campaign.tally("PostgreSQL crash")
        campaign.pass_time(0.0, 0.5)
        server.start()
        campaign.pass_time(0.5, 1.5)
        campaign.revive()
    return campaign.finish()


def begin(campaign: Campaign) -> None:
    campaign.start(len(campaign.places))
    campaign.wait_note("up")
    campaign.pass_time(0.2, 0.5)


# Crash points


def crash_points(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """A process dies at each point that processes under this load come to, `times` times; where
    ROTA_TEST_POINTS_OF names operations, at those of these."""
    record = campaign.folder / "points.txt"
    campaign.environment["ROTA_TEST_POINTS"] = str(record)
    campaign.start(1)  # goes on through all of it, unless it is the only one that may
    campaign.wait_note("up")
    places = range(1, PROCESSES + 1)
    if campaign.alone:
        campaign.wait_note("end")
        campaign.kill(0)
        places = campaign.places
    among = set(campaign.environment.get("ROTA_TEST_POINTS_OF", "").split())
    tried: Counter[str] = Counter()
    with ThreadPoolExecutor(PROCESSES) as pool:
        while waiting := [
            point
            for point in points_met(record, times)
            if tried[point] < times and (not among or call_of(point) in among)
        ]:
            lines = defaultdict(list)
            for place, point in zip(cycle(places), waiting, strict=False):
                lines[place].append(point)
            for done in [
                pool.submit(die_at_each, campaign, place, line) for place, line in lines.items()
            ]:
                done.result()
            tried.update(waiting)
    missed = (among or set(EVERYDAY)) - {call_of(point) for point in tried}
    if missed:
        raise NotReached(f"nobody came to any point of {', '.join(sorted(missed))}")
    return campaign.finish()


def die_at_each(campaign: Campaign, place: int, points: list[str]) -> None:
    for point in points:
        for left in reversed(range(TRIES)):
            child = die_at(campaign, place, point)
            if child.ended.wait(REACH_SECONDS):
                break
            if not left:
                raise NotReached(f"nobody came to {point}")
            campaign.kill(place)
        assert child.code == -signal.SIGKILL, f"{child.name} ended with {child.code} before {point}"
        del campaign.children[place]
        campaign.tally("crash point")


def call_of(point: str) -> str:
    """The operation in whose transaction a point lies: "claiming.claim"."""
    return ".".join(point.split(".")[:2])


def points_met(record: Path, times: int) -> list[str]:
    """Every point of a process's everyday life that any process has come to so far. Once each,
    those of which another one leaves the same behind are left out."""
    found = set(record.read_text().split())
    if times == 1:
        found = {point for point in found if not is_repeated(point)}
    found |= {f"{hint}.{side}" for hint in HINTS for side in ("before", "after")}
    return sorted(point for point in found if call_of(point) not in AT_THE_BEGINNING)


def is_repeated(point: str) -> bool:
    """Between a statement and the next one of its transaction nothing is written, and before a
    read nothing was: who dies on one side leaves what he leaves on the other."""
    operation, statement, side = point.rsplit(".", 2)
    if operation == "read":
        return side == "before"
    return side == "after" and statement != "commit"


def die_at(campaign: Campaign, place: int, point: str) -> Child:
    statement = point.rpartition(".")[0]
    hint = HINTS.get(statement) or SOMETIMES.get(statement, {})
    wish = WISHES.get(call_of(point), "")
    told = {
        "ROTA_CRASH_AT": f"{point}:1", "ROTA_TEST_PAUSE": "0.02", "ROTA_TEST_WISH": wish, **hint,
    }  # fmt: skip
    child = campaign.start_at(place, environment=told)
    if call_of(point) in AT_THE_END:
        campaign.wait_note("up", by=child.name)
        child.signal(signal.SIGTERM)
    return child


def beginnings(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """A process dies while it makes the store or saves its definitions; the next one completes it.

    Each time in an empty database, at the first, second, ... point until one comes to its end.
    """
    engine = engine_of(campaign.database)
    complete = None
    for number in range(1, MOST_POINTS, max(1, STRIDE // times)):
        folder = campaign.folder / f"beginning-{number}"
        folder.mkdir()
        with bench.database(engine, folder) as database:
            told = {"database": database, "notes": str(campaign.notes)}
            doomed = {"ROTA_CRASH_AT": f"any:{number}"}
            died = begin_once(campaign, environment=doomed, **told) == -signal.SIGKILL
            assert begin_once(campaign, **told) == 0
            made = definitions(database)
        if complete is not None and made != complete:
            told = f"after a crash at point {number} of the beginning there is {made}"
            return Verdict(counts=campaign.counts, violations=[told])
        complete = made
        if not died:
            return Verdict(counts=campaign.counts)
        campaign.tally("crash point")
    raise AssertionError(f"a beginning has more than {MOST_POINTS} points")


def failing_calls(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """The first, second, ... database call of a whole life fails, until one comes to its end.

    `times` of 7 is every call, 1 is every seventh, from a call on that the seed decides.
    """
    engine = engine_of(campaign.database)
    stride = max(1, CALLS_STRIDE // times)
    for number in range(1 + campaign.seed % stride, MOST_POINTS, stride):
        folder = campaign.folder / f"life-{number}"
        folder.mkdir()
        with bench.database(engine, folder) as database:
            life = Life(database, folder, number=number, seed=campaign.seed)
            life.live()
            broken = life.judge()
        if life.point is None:
            return Verdict(counts=campaign.counts)
        if broken:
            told = f"call {number} failed, at {life.point}"
            return Verdict(counts=campaign.counts, violations=[told, *broken])
        campaign.tally("failing call")
        shutil.rmtree(folder)
    raise AssertionError(f"a life has more than {MOST_POINTS} calls")


def engine_of(database: str) -> str:
    kind = database.partition(":")[0]
    return kind if kind in ("sqlite", "duckdb") else "postgres"


def begin_once(campaign: Campaign, **told: Any) -> int:
    campaign.born += 1
    name = f"b.{campaign.born}"
    return campaign.zygote.fork(name, "tests.fault.serve:begin", name=name, **told).wait()


def definitions(database: str) -> dict[str, Any]:
    found = read_rows(database, ("meta", "jobs", "schedules", "queues", "schedule_changes"))
    return {
        "schedules": sorted(
            (row["name"], row["expr"], row["overlap"]) for row in found["schedules"]
        ),
        "changes": len(found["schedule_changes"]),
        "jobs": sorted(row["name"] for row in found["jobs"]),
        "queues": sorted(row["name"] for row in found["queues"]),
        "meta": sorted(row["key"] for row in found["meta"]),
    }


@dataclass(frozen=True, kw_only=True)
class Part:
    """`fault` names what is counted; `durable` needs a PostgreSQL of its own, with fsync; `alone`
    measures, and shares the machine with nobody."""

    run: Callable[[Campaign, int, Bench], Verdict]
    fault: str
    engines: tuple[str, ...] = ("sqlite", "postgres")
    lease: float = 2.0
    durable: bool = False
    connections: int = 200  # that the server allows
    alone: bool = False


EVERY_ENGINE = ("sqlite", "postgres", "duckdb")
PARTS = {
    "kills": Part(run=kills, fault="SIGKILL", engines=EVERY_ENGINE),
    "zombies": Part(run=zombies, fault="zombie", lease=1.0),
    "sleepers": Part(run=sleepers, fault="sleeping scheduler"),
    "crash-points": Part(run=crash_points, fault="crash point", engines=EVERY_ENGINE),
    "beginnings": Part(run=beginnings, fault="crash point", engines=EVERY_ENGINE),
    "failing-calls": Part(run=failing_calls, fault="failing call", engines=EVERY_ENGINE),
    "server-crashes": Part(
        run=server_crashes, fault="PostgreSQL crash", engines=("postgres",), durable=True
    ),
    "terminations": Part(
        run=storms.terminations, fault="terminated session", engines=("postgres",)
    ),
    "network": Part(run=storms.network, fault="network fault", engines=("postgres",)),
    "connection-limit": Part(
        run=storms.connection_limit,
        fault="connection limit",
        engines=("postgres",),
        connections=60,
    ),
    "storm": Part(run=storms.storm, fault="second of storm", engines=("sqlite",)),
    "storm-long": Part(
        run=storms.storm_long, fault="second of storm", engines=("sqlite",), alone=True
    ),
    "disk-full": Part(run=storms.disk_full, fault="full disk", engines=("sqlite",)),
    "rolling-restarts": Part(run=storms.rolling_restarts, fault="SIGTERM", lease=5.0),
    "all-asleep": Part(run=storms.all_asleep, fault="all asleep", lease=1.0),
    "cancels": Part(run=mishaps.cancels, fault="cancel"),
    "deadlocks": Part(run=mishaps.deadlocks, fault="deadlock", engines=("postgres",)),
    "strangers": Part(run=mishaps.strangers, fault="held row", engines=("postgres",), lease=5.0),
    "clock-steps": Part(run=mishaps.clock_steps, fault="clock step"),
    "herd": Part(run=mishaps.herd, fault="kill in a herd"),
    "backlog": Part(run=mishaps.backlog, fault="kill in a backlog"),
    "past-retention": Part(run=mishaps.sleepers_past_retention, fault="sleep past retention"),
    "soak": Part(run=soak.soak, fault="acknowledged", alone=True),
    "held-transaction": Part(
        run=soak.held_transaction,
        fault="second beside a held transaction",
        engines=("postgres",),
        alone=True,
    ),
}
