"""Poisoned handlers: others go on, and the poisoned run ends dead with the reason.

What is judged is the order of events: good runs complete while a handler that never ends is still
under way. All poisons that leave their worker alive are given to one worker at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.model.limits import ERROR_LENGTH, LOG_LINES
from rota.model.run import Run
from rota.storage import operations
from rota.storage.store import Store, open_store
from tests.fault.campaign import until
from tests.fault.harness import Process
from tests.fault.notes import read_notes
from tests.fault.poison import DEADLY, IN_PROCESS, IN_THREAD
from tests.fault.zygote import Child, Zygote

pytestmark = pytest.mark.timeout(240)

PATIENCE = 90.0
GOOD = 10
SLOTS = 24
LONG_ENGINE = pytest.param("postgres", marks=pytest.mark.long)
TERMINAL = ("succeeded", "dead", "cancelled")


@dataclass
class Ward:
    """A store, somebody who asks for runs, and a place for notes."""

    database: str
    notes: Path
    store: Store
    client: rota.Rota
    zygote: Zygote

    def worker(self, name: str, isolation: str, **settings: Any) -> Child:
        told = {"ROTA_TEST_DATABASE": self.database, "ROTA_TEST_NOTES": str(self.notes)}
        target = "tests.fault.poison:serve"
        return self.zygote.fork(name, target, environment=told, isolation=isolation, **settings)

    def ready(self, workers: int = 1) -> None:
        until(
            lambda: len(self.store.read(operations.list_workers, limit=9)) >= workers,
            "workers",
            PATIENCE,
        )

    def enqueue(self, job: str, **options: Any) -> str:
        return self.client.enqueue(job, {}, **options).id

    def wait(self, run_id: str, *states: str) -> Run:
        wanted = states or TERMINAL
        until(
            lambda: self.store.read(operations.get_run, run_id).state in wanted,
            f"{run_id} {wanted}",
            PATIENCE,
        )
        return self.store.read(operations.get_run, run_id)

    def began(self, run_id: str, nth: int = 1) -> dict[str, Any]:
        """What the nth attempt that began has noted; one that was given back never did."""
        found: list[dict[str, Any]] = []

        def look() -> bool:
            if self.notes.exists():
                found[:] = [note for note in read_notes(self.notes) if note["run"] == run_id]
            return len(found) >= nth

        until(look, f"{run_id} begins", PATIENCE)
        return found[nth - 1]

    def serve_good_ones(self) -> None:
        asked = [self.enqueue("good", priority=10) for _ in range(GOOD)]
        assert {self.wait(run_id).state for run_id in asked} == {"succeeded"}


@contextmanager
def open_ward(engine: str, folder: Path, zygote: Zygote, request: Any) -> Iterator[Ward]:
    if engine == "sqlite":
        database = f"sqlite:///{folder / 'rota.db'}"
    else:
        server = request.getfixturevalue("postgres_server")
        database = server.create_database()
    store, client = open_store(database), rota.Rota(database)
    store.migrate()
    try:
        yield Ward(database, folder / "notes", store, client, zygote)
    finally:
        store.close()
        client.close()
        if engine == "postgres":
            server.drop_database(database)


@pytest.fixture(params=["sqlite", LONG_ENGINE])
def ward(request: Any, quick_folder: Path, zygote: Zygote) -> Iterator[Ward]:
    with open_ward(request.param, quick_folder, zygote, request) as opened:
        yield opened


# Poison that takes its worker along

SHORT = ("exit_at_once",)
DEATHS = [
    pytest.param("thread", name, marks=() if name in SHORT else pytest.mark.long) for name in DEADLY
] + [("process", "kill_parent")]


@pytest.mark.parametrize(("isolation", "name"), DEATHS)
def test_a_run_that_costs_its_workers_ends_dead_and_others_are_served(
    ward: Ward, isolation: str, name: str
) -> None:
    settings = {"lease": "1s", "max_lost": 2, "slots": 4, "grace": "1s"}
    workers = [ward.worker(f"w{number}", isolation, **settings) for number in range(3)]
    ward.ready(3)
    run_id = ward.enqueue(name)
    ward.began(run_id)
    ward.serve_good_ones()
    run = ward.wait(run_id)
    ward.serve_good_ones()
    for worker in workers:
        worker.kill()
    if name == "close_all" and not run.lost:
        # A worker that can connect anew goes on, and hears what the handler says.
        assert (run.state, run.failures) == ("dead", 1)
        assert "RuntimeError: closed everything" in str(run.error)
    else:
        assert (run.state, run.lost, run.failures) == ("dead", 2, 0)
        assert run.error == f"attempt {run.attempt}: its worker was lost"
        assert ward.began(run_id, nth=2)["pid"] != ward.began(run_id)["pid"]
    if ward.database.startswith("sqlite"):
        with closing(sqlite3.connect(ward.database.removeprefix("sqlite:///"))) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# Slots that nothing frees


def test_a_worker_whose_slots_are_stuck_renews_itself(
    tmp_path: Path, ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_TEST_NOTES", str(ward.notes))
    process = Process("stuck", ward.database)
    try:
        ward.ready()
        run = ward.wait(ward.enqueue("hang"))
        assert (run.state, run.error) == ("dead", "timed out after 2s")
        # It has two slots, one of them is stuck: half. The process stays and is another worker.
        until(
            lambda: run.worker_id not in {row["id"] for row in workers_of(ward)} != set(),
            "another worker",
            PATIENCE,
        )
        ward.serve_good_ones()
        (worker,) = workers_of(ward)
        assert (worker["pid"], worker["stuck"]) == (process.popen.pid, 0)
        assert process.stop() == 0
    finally:
        process.clean_up()


def workers_of(ward: Ward) -> list[dict[str, Any]]:
    return list(ward.store.read(operations.list_workers, limit=9))


# Poison that leaves its worker alive


@dataclass
class Poisoned:
    """One worker that has been given everything at once."""

    ward: Ward
    worker: Child
    reasons: dict[str, str]
    runs: dict[str, str]
    stay: str


Find = Callable[[str, str], Poisoned]
BOTH = pytest.mark.parametrize("isolation", ["process", "thread"])
ENGINES = pytest.mark.parametrize("engine", ["sqlite", LONG_ENGINE])
# Beside an endless loop in the same interpreter a million lines take their time.
SLOW = {("thread", "talk")}
CASES = [
    pytest.param(isolation, name, marks=pytest.mark.long if (isolation, name) in SLOW else ())
    for isolation, reasons in (("process", IN_PROCESS), ("thread", IN_THREAD))
    for name in reasons
]


@pytest.fixture(scope="module")
def poisoned(
    request: Any, tmp_path_factory: pytest.TempPathFactory, zygote: Zygote
) -> Iterator[Find]:
    """A poisoned worker of each kind, made when it is first asked for."""
    made: dict[tuple[str, str], Poisoned] = {}
    long = "not long" not in request.config.option.markexpr

    def find(engine: str, isolation: str) -> Poisoned:
        if (engine, isolation) not in made:
            opened = open_ward(engine, tmp_path_factory.mktemp("ward"), zygote, request)
            made[engine, isolation] = poison(stack.enter_context(opened), isolation, long=long)
        return made[engine, isolation]

    with ExitStack() as stack:
        yield find
        codes = [one.worker.stop() for one in made.values()]
    assert set(codes) <= {0}


def poison(ward: Ward, isolation: str, *, long: bool) -> Poisoned:
    reasons = IN_PROCESS if isolation == "process" else IN_THREAD
    worker = ward.worker(isolation, isolation, slots=SLOTS, grace="1s")
    ward.ready()
    stay = ward.enqueue("stay")
    ward.began(stay)
    runs = {name: ward.enqueue(name) for name in reasons if long or (isolation, name) not in SLOW}
    return Poisoned(ward, worker, reasons, runs, stay)


@ENGINES
@BOTH
def test_others_complete_while_a_handler_never_ends(
    poisoned: Find, engine: str, isolation: str
) -> None:
    found = poisoned(engine, isolation)
    found.ward.serve_good_ones()
    assert found.ward.store.read(operations.get_run, found.stay).state == "running"
    assert found.worker.alive


@ENGINES
@pytest.mark.parametrize(("isolation", "name"), CASES)
def test_a_poisoned_run_ends_dead_with_its_reason(
    poisoned: Find, engine: str, isolation: str, name: str
) -> None:
    found = poisoned(engine, isolation)
    run = found.ward.wait(found.runs[name])
    assert (run.state, run.lost, run.failures) == ("dead", 0, 1)
    assert found.reasons[name] in str(run.error)
    assert len(str(run.error)) <= ERROR_LENGTH
    kept = found.ward.store.read(operations.list_logs, run.seq, limit=LOG_LINES + 10)
    assert len(kept) <= LOG_LINES + 1


@ENGINES
@BOTH
def test_copies_of_a_worker_that_a_handler_forked_end(
    poisoned: Find, engine: str, isolation: str
) -> None:
    found = poisoned(engine, isolation)
    note = found.ward.began(found.runs["fork"])
    found.ward.wait(found.runs["fork"])
    until(lambda: not forks_of(note["pid"]), "the copies have ended", PATIENCE)
    if isolation == "process":
        until(lambda: not is_alive(note["sleeper"]), "its process has ended", PATIENCE)


@ENGINES
def test_a_cancel_ends_a_process_that_never_ends(poisoned: Find, engine: str) -> None:
    found = poisoned(engine, "process")
    found.ward.client.control.cancel(found.stay)
    assert found.ward.wait(found.stay).state == "cancelled"


def forks_of(pid: int) -> list[int]:
    """Living children of a process that run what it runs itself."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return []
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and (entry / "cmdline").read_bytes() == command:
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [one for one in found if is_alive(one)]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
