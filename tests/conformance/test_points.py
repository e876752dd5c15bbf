"""Probe points: a process may die at any of them, and leaves nothing or everything behind.

A crash is a BaseException that the probe raises. Whoever comes next repeats the call, and its
effect is there once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from rota.flow.fire import fire as fire_plans
from rota.model.control_row import ControlReply, failed
from rota.model.files import NewFile
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.outcome import settle as decide
from rota.model.plan import FirePlan
from rota.model.retry import ONCE
from rota.model.run import BulkRuns, ClaimedRun, NewRun, Run
from rota.model.schedule import Schedule
from rota.model.steps import StepDone, StepFile
from rota.storage import operations
from rota.storage.engine import Transaction
from rota.storage.operations.claiming import ClaimRequest
from rota.storage.operations.steps import StepKey
from rota.storage.store import Store
from tests.conformance.support import (
    CONTROL,
    LEASE,
    ME,
    ORIGIN,
    Place,
    VirtualClock,
    alike,
    all_runs,
    claim,
    claim_one,
    enqueue,
    enqueue_many,
    ledger,
    new_run,
    plans,
    put_definition,
    put_schedule,
    rescue,
    settle,
    slots,
    states,
    together,
)

TABLES = (
    "meta", "jobs", "schedules", "schedule_changes", "occurrences", "runs", "run_keys", "slots",
    "attempts", "logs", "workers", "locks", "queues", "events", "audit", "job_versions",
    "job_texts", "run_files", "steps", "step_marks", "files",
)  # fmt: skip


class Crash(BaseException):
    """The end of a process."""


class CrashAt:
    """A probe that crashes once, at the nth point after it was armed."""

    def __init__(self) -> None:
        self.points: list[str] = []
        self._left: int | None = None

    def arm(self, number: int | None) -> None:
        self.points.clear()
        self._left = number

    def __call__(self, point: str) -> None:
        self.points.append(point)
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._left = None
                raise Crash(point)


@dataclass
class Verb:
    """A call, what must be there before it, and what it leaves when it has happened once."""

    name: ClassVar[str]
    store: Store
    clock: VirtualClock
    round: int
    ids: list[str] = field(default_factory=list)

    def prepare(self) -> None:
        raise NotImplementedError

    def call(self, store: Store) -> object:
        raise NotImplementedError

    def complete(self) -> bool:
        raise NotImplementedError

    def clear(self) -> None:
        """Leave nothing that the next round would meet."""

    @property
    def key(self) -> str:
        return f"{self.name} {self.round}"


class Fire(Verb):
    name = "fire"
    planned: list[FirePlan]
    jobs: dict[str, Job]

    def prepare(self) -> None:
        for name, options in {
            "merges": {"overlap": "wait", "catch_up": "all"},
            "coalesces": {"overlap": "queue"},
            "misses": {"catch_up": "none", "misfire_grace": timedelta(0)},
        }.items():
            put_schedule(self.store, f"{name}-{self.round}", **options)
        self.clock.advance("31s")
        self.planned, self.jobs = plans(self.store), self.store.read(operations.jobs_named, ["job"])

    def call(self, store: Store) -> object:
        return fire_plans(store, self.planned, self.jobs)

    def complete(self) -> bool:
        wanted = {"merges": (2, 3), "coalesces": (1, 2), "misses": (0, 1)}
        return {
            plan.schedule.name.partition("-")[0]: (
                len(self.store.read(operations.list_runs, schedule_id=plan.schedule.id, limit=99)),
                len(ledger(self.store, plan.schedule)),
            )
            for plan in self.planned
            if self.store.read(operations.schedule_named, plan.schedule.name).next_fire_at
            == plan.next_fire_at
        } == wanted

    def clear(self) -> None:
        for plan in self.planned:
            self.store.write(operations.drop_schedule, plan.schedule.name, None, ME)


class FireAndClaim(Verb):
    name = "fire"
    planned: list[FirePlan]

    def prepare(self) -> None:
        put_schedule(self.store, f"claims-{self.round}")
        self.clock.advance("10s")
        self.planned = plans(self.store)

    def call(self, store: Store) -> object:
        asks = ClaimRequest(worker_id="worker", queues=(), jobs=["job"], limit=1, lease=LEASE)
        return fire_plans(store, self.planned, {}, asks)

    def complete(self) -> bool:
        (plan,) = self.planned
        (made,) = self.store.read(operations.list_runs, schedule_id=plan.schedule.id, limit=9)
        return (
            (made.state, made.attempt, made.worker_id) == ("running", 1, "worker")
            and slots(self.store, f"o/{made.overlap_key}") == [1]
            and len(ledger(self.store, plan.schedule)) == 1
        )

    def clear(self) -> None:
        self.store.write(operations.drop_schedule, self.planned[0].schedule.name, None, ME)


class FireKin(Verb):
    name = "fire_group"
    plan: FirePlan
    herd: list[Schedule]

    def prepare(self) -> None:
        self.herd = [
            put_schedule(self.store, f"kin-{self.round}-{n}", overlap="queue") for n in range(3)
        ]
        self.clock.advance("10s")
        self.plan = plans(self.store)[0]

    def call(self, store: Store) -> object:
        return store.write(operations.fire_group, self.plan, [one.id for one in self.herd], None)

    def complete(self) -> bool:
        return all(
            len(self.store.read(operations.list_runs, schedule_id=one.id, limit=9)) == 1
            and len(ledger(self.store, one)) == 1
            and slots(self.store, f"o/schedule {one.id}") == [1]
            and self.store.read(operations.schedule_named, one.name).next_fire_at
            == self.plan.next_fire_at
            for one in self.herd
        )

    def clear(self) -> None:
        for one in self.herd:
            self.store.write(operations.drop_schedule, one.name, None, ME)


class Enqueue(Verb):
    name = "enqueue"
    runs: list[NewRun]

    def prepare(self) -> None:
        self.runs = [new_run(concurrency_key=self.key, key=f"{self.key}/{n}") for n in range(2)]

    def call(self, store: Store) -> object:
        return store.write(operations.enqueue, self.runs)

    def complete(self) -> bool:
        return (
            states(self.store, [run.id for run in self.runs]) == ["queued", "held"]
            and slots(self.store, f"c/{self.key}") == [1]
            and not self.store.write(operations.enqueue, [new_run(key=f"{self.key}/0")])[0].created
        )


class EnqueuePlain(Verb):
    name = "enqueue"
    runs: BulkRuns

    def prepare(self) -> None:
        self.runs = alike(3)

    def call(self, store: Store) -> object:
        return store.write(operations.enqueue, self.runs)

    def complete(self) -> bool:
        return states(self.store, [run.id for run in self.runs]) == ["queued"] * 3


class Promote(Verb):
    name = "promote"

    def prepare(self) -> None:
        second = timedelta(seconds=1)
        self.ids = enqueue_many(self.store, 2, concurrency_key=self.key, delay=second)
        self.clock.advance("1s")

    def call(self, store: Store) -> object:
        return store.write(operations.promote, 10)

    def complete(self) -> bool:
        return states(self.store, self.ids) == ["queued", "held"] and slots(
            self.store, f"c/{self.key}"
        ) == [1]


class Claim(Verb):
    name = "claim"

    def prepare(self) -> None:
        self.ids = enqueue_many(self.store, 2)

    def call(self, store: Store) -> object:
        # The worker's way after an answer it did not get: give back what it does not know of.
        store.write(operations.release_forgotten_runs, "worker", [])
        return claim(store)

    def complete(self) -> bool:
        return states(self.store, self.ids) == ["running"] * 2

    def clear(self) -> None:
        for run_id in self.ids:
            self.store.write(operations.cancel_run, run_id, None, ME)
        self.clock.advance("1h")
        rescue(self.store)


class Settle(Verb):
    name = "settle"
    run: ClaimedRun

    def prepare(self) -> None:
        self.ids = enqueue_many(self.store, 2, concurrency_key=self.key, priority=self.round)
        self.run = claim_one(self.store)

    def call(self, store: Store) -> object:
        return settle(store, self.run, "failed", retry=ONCE, on_terminated=note_end)

    def complete(self) -> bool:
        return (
            states(self.store, self.ids) == ["dead", "queued"]
            and self.store.read(operations.get_run, self.ids[0]).failures == 1
            and slots(self.store, f"c/{self.key}") == [1]
            and len(self.store.read(operations.list_attempts, self.run.seq, limit=9)) == 1
        )


class SettlePlain(Verb):
    name = "settle"
    runs: list[ClaimedRun]

    def prepare(self) -> None:
        self.ids = enqueue_many(self.store, 2)
        self.runs = claim(self.store)

    def call(self, store: Store) -> object:
        told = Outcome(kind="succeeded")
        return store.write(
            operations.settle, [decide(run, told, retry=ONCE, max_lost=3) for run in self.runs]
        )

    def complete(self) -> bool:
        return states(self.store, self.ids) == ["succeeded"] * 2


class Rescue(Verb):
    name = "settle"

    def prepare(self) -> None:
        self.ids = [enqueue(self.store)]
        claim_one(self.store)
        self.clock.advance("1h")

    def call(self, store: Store) -> object:
        return rescue(store)

    def complete(self) -> bool:
        run = self.store.read(operations.get_run, self.ids[0])
        rows = self.store.read(operations.list_attempts, run.seq, limit=9)
        return (run.state, run.lost, len(rows)) == ("queued", 1, 1)

    def clear(self) -> None:
        self.store.write(operations.delete_run, self.ids[0], None, ME)


class Prune(Verb):
    name = "prune_runs"

    def prepare(self) -> None:
        self.ids = enqueue_many(self.store, 2, key=self.key, concurrency_key=self.key)[:1]
        settle(self.store, claim_one(self.store), "failed", retry=ONCE)
        self.clock.advance("1h")

    def call(self, store: Store) -> object:
        return store.write(operations.prune_runs, "dead", age_seconds=1, keep_last=0, limit=10)

    def complete(self) -> bool:
        return all_runs(self.store) == []


class PutSchedule(Verb):
    name = "put_schedule"

    def prepare(self) -> None:
        if self.round % 2:
            put_schedule(self.store, self.key.replace(" ", "-"), expr="1h")

    def call(self, store: Store) -> object:
        return put_schedule(store, self.key.replace(" ", "-"), expr="1m")

    def complete(self) -> bool:
        found: list[Schedule] = [
            schedule
            for schedule in self.store.read(operations.list_schedules, limit=99)
            if schedule.name == self.key.replace(" ", "-") and schedule.expr == "1m"
        ]
        if not found:
            return False
        changes = self.store.read(
            operations.list_schedule_changes, found[0].id, before=10**9, limit=9
        )
        return len(changes) == 1 + self.round % 2


class RegisterSchedule(PutSchedule):
    name = "register_schedule"

    def call(self, store: Store) -> object:
        wanted = Schedule(name=self.key.replace(" ", "-"), job="job", kind="every", expr="1m")
        return store.write(operations.register_schedule, wanted, ME)


class Cancel(Verb):
    name = "cancel_run"

    def prepare(self) -> None:
        self.ids = enqueue_many(self.store, 2, concurrency_key=self.key)

    def call(self, store: Store) -> object:
        if self.store.read(operations.get_run, self.ids[0]).state != "cancelled":
            store.write(operations.cancel_run, self.ids[0], None, ME, note_end)
        return None

    def complete(self) -> bool:
        return states(self.store, self.ids) == ["cancelled", "queued"]


class StepVerb(Verb):
    """A call of the attempt that holds a run."""

    file = StepFile(number=1, name="01.sql", text="SELECT 1")

    def prepare(self) -> None:
        self.ids = enqueue_many(self.store, 1)
        self.run = claim_one(self.store)
        self.step = StepKey(seq=self.run.seq, attempt=self.run.attempt, number=1)

    def clear(self) -> None:
        settle(self.store, self.run)


class KeepFiles(StepVerb):
    name = "keep_files"

    def call(self, store: Store) -> object:
        return store.write(operations.keep_files, self.run.seq, self.run.attempt, [self.file])

    def complete(self) -> bool:
        return self.store.read(operations.kept_files, self.run.seq) == [self.file]


class KeepTexts(Verb):
    name = "keep_texts"
    file: StepFile

    def prepare(self) -> None:
        self.file = StepFile(number=1, name="01.sql", text=f"SELECT {self.round}")

    def call(self, store: Store) -> object:
        return store.write(operations.keep_texts, [self.file])

    def complete(self) -> bool:
        return self.store.read(operations.texts_of, [self.file.hash]) == {
            self.file.hash: self.file.text
        }


class OweScripts(Verb):
    name = "owe_scripts"

    def prepare(self) -> None: ...

    def call(self, store: Store) -> object:
        return store.write(operations.owe_scripts, self.key)

    def complete(self) -> bool:
        return self.store.read(operations.meta).get(f"scripts of {self.key}") == "owed"


class TakeScripts(Verb):
    name = "take_scripts"

    def prepare(self) -> None:
        self.store.write(operations.owe_scripts, self.key)

    def call(self, store: Store) -> object:
        return store.write(operations.take_scripts, self.key)

    def complete(self) -> bool:
        return self.store.read(operations.meta)[f"scripts of {self.key}"] == "taken"


class BeginStep(StepVerb):
    name = "begin_step"

    def call(self, store: Store) -> object:
        return store.write(operations.begin_step, self.step, self.file)

    def complete(self) -> bool:
        return [row["status"] for row in self.store.read(operations.list_steps, self.run.seq)] == [
            "running"
        ]


class FinishStep(StepVerb):
    name = "finish_step"

    def call(self, store: Store) -> object:
        return store.write(operations.finish_step, self.step, StepDone(), "note")

    def complete(self) -> bool:
        return self.store.read(operations.done_steps, self.run.seq) == {1}


class Step(StepVerb):
    """The work of a step and its mark: each attempt asks first whether it is done."""

    name = "step"

    def call(self, store: Store) -> object:
        if store.read(operations.done_steps, self.run.seq) == set():
            with store.step(self.step, LEASE) as step:
                step.connection.execute(f"INSERT INTO effects VALUES ('{self.run.id}')")
                step.commit(StepDone())
        return None

    def complete(self) -> bool:
        return self.store.read(operations.done_steps, self.run.seq) == {1}


def note_end(run: Run) -> list[tuple[str, dict[str, Any]]]:
    return [("INSERT INTO effects (run_id) VALUES (:run_id)", {"run_id": run.id})]


class PutDefinitions(Verb):
    name = "put_definitions"

    def call(self, store: Store) -> object:
        return put_definition(store, self.key.replace(" ", "-"), version=str(self.round))

    def prepare(self) -> None:
        put_definition(self.store, self.key.replace(" ", "-"), every="1h")

    def complete(self) -> bool:
        name = self.key.replace(" ", "-")
        known = self.store.read(operations.jobs_named, [name])[name].spec["version"] == str(
            self.round
        )
        return known and self.store.read(operations.schedule_named, name).expr == "1m"


class Retire(Verb):
    name = "retire_job"

    def prepare(self) -> None:
        put_definition(self.store, self.key.replace(" ", "-"))

    def call(self, store: Store) -> object:
        name = self.key.replace(" ", "-")
        return store.write(operations.retire_job, name, ORIGIN, None, ME, live_seconds=30)

    def complete(self) -> bool:
        name = self.key.replace(" ", "-")
        off = not self.store.read(operations.schedule_named, name).enabled
        return off and self.store.read(operations.jobs_named, [name])[name].retired


class PutFile(Verb):
    name = "put_file"

    def prepare(self) -> None:
        """Nothing: the same file may be kept any number of times."""

    def call(self, store: Store) -> object:
        found = [one for one in store.read(operations.list_files, limit=99) if one.name == self.key]
        return found or store.write(
            operations.put_file, NewFile(name=self.key, content=b"x", content_type="t")
        )

    def complete(self) -> bool:
        return [one.name for one in self.store.read(operations.list_files, limit=99)].count(
            self.key
        ) == 1


class DeleteFile(Verb):
    name = "delete_file"

    def prepare(self) -> None:
        file = NewFile(name=self.key, content=b"x", content_type="t")
        self.ids = [self.store.write(operations.put_file, file).id]

    def call(self, store: Store) -> object:
        return store.write(operations.delete_file, self.ids[0], ME)

    def complete(self) -> bool:
        return self.store.read(operations.kept_file, self.ids[0]) is None


class PruneFiles(Verb):
    name = "prune_files"

    def prepare(self) -> None:
        for _ in range(2):
            file = NewFile(name=self.key, content=b"x", content_type="t", ttl_seconds=1)
            self.ids.append(self.store.write(operations.put_file, file).id)
        self.clock.advance("1s")

    def call(self, store: Store) -> object:
        return store.write(operations.prune_files, limit=9)

    def complete(self) -> bool:
        return self.store.write(operations.prune_files, limit=9) == 0


class Answer(Verb):
    """What a control row asks for, by several calls, and its answer."""

    name = "answer"

    def prepare(self) -> None:
        self.store.engine.write("ask", lambda tx: tx.text(ASK[self.store.dialect], {}))
        self.row = self.store.peek(operations.asked, limit=9)[-1].id
        self.ids = enqueue_many(self.store, 1)

    def call(self, store: Store) -> object:
        def do(tx: Transaction) -> ControlReply:
            joined = store.inside(tx)
            joined.write(operations.cancel_run, self.ids[0], None, ME, note_end)
            joined.write(operations.record_action, ME, "asked", self.key)
            return ControlReply(status="done", redacted_text=self.key)

        return store.write(operations.answer, self.row, do, lambda fault: failed(self.key, fault))

    def complete(self) -> bool:
        return (
            states(self.store, self.ids) == ["cancelled"]
            and self.store.peek(operations.asked, limit=9) == []
        )


class PruneAnswered(Verb):
    name = "prune_answered"

    def prepare(self) -> None:
        for _ in range(2):
            self.store.engine.write("ask", lambda tx: tx.text(ASK[self.store.dialect], {}))
        for one in self.store.peek(operations.asked, limit=9):
            reply = ControlReply(status="done", redacted_text=self.key)
            self.store.write(
                operations.answer,
                one.id,
                lambda _, reply=reply: reply,
                lambda fault: failed("", fault),
            )
        self.clock.advance("1h")

    def call(self, store: Store) -> object:
        return store.write(operations.prune_answered, age_seconds=1, keep=100, limit=9)

    def complete(self) -> bool:
        return self.store.write(operations.prune_answered, age_seconds=1, keep=100, limit=9) == 0


ASK = {
    engine: f"INSERT INTO {table} (statement) VALUES ('PAUSE DISPATCH')"
    for engine, table in CONTROL.items()
}

VERBS: list[type[Verb]] = [
    Fire, FireAndClaim, FireKin, Enqueue, EnqueuePlain, Promote, Claim, Settle, SettlePlain,
    Rescue, Prune, PutSchedule, Cancel, PutDefinitions, Retire, KeepFiles, KeepTexts, OweScripts,
    TakeScripts, BeginStep, FinishStep, Step, PutFile, DeleteFile, PruneFiles, Answer,
    PruneAnswered, RegisterSchedule,
]  # fmt: skip
every_verb = pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
Dump = Callable[[], list[Any]]


@pytest.fixture
def dump(place: Place) -> Iterator[Dump]:
    """Everything that is stored, by a look from outside."""
    place.execute("CREATE TABLE effects (run_id TEXT)")
    connection = place.autocommit()
    names = ["effects", place.view("control"), *map(place.table, TABLES)]
    yield lambda: [
        sorted(map(repr, connection.execute(f"SELECT * FROM {name}").fetchall())) for name in names
    ]
    place.execute("DROP TABLE effects")


@every_verb
def test_every_call_reports_where_it_could_die(
    store: Store, place: Place, clock: VirtualClock, dump: Dump, verb: type[Verb]
) -> None:
    probe = CrashAt()
    watched = place.open(probe=probe)
    scene = verb(store, clock, 0)
    scene.prepare()
    probe.arm(None)
    scene.call(watched)
    points = [point for point in probe.points if not point.startswith("read.")]
    names = [point.split(".") for point in points]
    assert all(len(name) == 4 for name in names)
    assert verb.name in {name[1] for name in names}
    calls = {(f"{name[0]}.{name[1]}", name[2]) for name in names}
    sides = {name[3] for name in names}
    assert sides == {"before", "after"}
    counts = Counter(points)
    for call, statement in calls:
        assert counts[f"{call}.{statement}.before"] == counts[f"{call}.{statement}.after"]
        assert (call, "commit") in calls
    last = ".".join(names[-1][:2])
    assert points[-2:] == [f"{last}.commit.before", f"{last}.commit.after"]


@every_verb
def test_a_crash_anywhere_leaves_nothing_or_everything(
    store: Store, place: Place, clock: VirtualClock, dump: Dump, verb: type[Verb]
) -> None:
    probe = CrashAt()
    doomed = place.open(probe=probe)
    left: list[str] = []
    for number in range(1_000):
        scene = verb(store, clock, number)
        probe.arm(None)
        scene.prepare()
        before = dump()
        probe.arm(number)
        try:
            scene.call(doomed)
        except Crash as crash:
            point = str(crash)
        else:
            break
        probe.arm(None)
        unchanged = dump() == before
        assert unchanged or scene.complete() or verb is Claim, point
        left.append("nothing" if unchanged else "everything")
        scene.call(store)
        assert scene.complete(), point
        once = dump()
        if verb is not Claim:
            scene.call(store)
            assert dump() == once, point
        scene.clear()
    assert left[0] == "nothing"
    assert left[-1] == "everything"
    assert len(left) >= 4


@pytest.mark.each_engine  # the verbs on DuckDB: in the long tests
def test_a_crash_in_one_thread_does_not_stop_the_others(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    lock, commits = threading.Lock(), iter(range(10**6))

    def sometimes(point: str) -> None:
        if point.endswith("commit.before"):
            with lock:
                number = next(commits)
            if number % 5 == 4:
                raise Crash(point)

    shared = place.open(probe=sometimes)

    def work() -> list[str]:
        done = []
        for _ in range(20):
            run = new_run()
            try:
                shared.write(operations.enqueue, [run])
            except (Crash, Exception):
                continue
            done.append(run.id)
        return done

    promised = {run_id for ids in together(*[work] * 8) for run_id in ids}
    assert promised == {run.id for run in all_runs(store)}
    assert 0 < len(promised) < 160
