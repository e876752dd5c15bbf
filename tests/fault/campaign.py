"""One history from beginning to end: processes under load, faults, rest, and a verdict.

    with Campaign(zygote, database, folder, seed=17) as campaign:
        campaign.start(3)
        ...                       # kill, freeze and cut what you like
        campaign.finish()         # rest, and the judgement

The seed decides what the clients ask for, whom faults meet and when. Real processes are not
repeatable to the microsecond: a seed that failed is tried again, its archive is what happened.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import tarfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from tests.fault.checker import check, late_starts
from tests.fault.history import NOTES, History, count, read_rows
from tests.fault.notes import Notebook, read_notes
from tests.fault.observer import LOOK_SECONDS, UNDER_WAY, Observer, query
from tests.fault.serve import MAX_LOST, NOT_NOW
from tests.fault.zygote import Child, Zygote

PROCESSES = 3
REST_SECONDS = 60.0


@dataclass
class Verdict:
    """What one campaign did and found."""

    counts: dict[str, int]
    violations: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)  # what was measured
    archive: Path | None = None


class Impossible(Exception):
    """This machine cannot bring the fault about."""


class NotReached(Exception):
    """The fault did not come about: no process came to the point where it waits."""


class Failed(AssertionError):
    """A broken promise, with the place where everything about it is kept."""


class Campaign:
    def __init__(
        self,
        zygote: Zygote,
        database: str,
        folder: Path,
        *,
        seed: int,
        lease: float = 2.0,
        environment: Mapping[str, str] | None = None,
        observed: str | None = None,
        **told: Any,
    ) -> None:
        self.zygote, self.database, self.folder, self.seed = zygote, database, folder, seed
        self.lease, self.environment, self.told = lease, dict(environment or {}), told
        self.asked = dict(self.environment)  # what a part adds is its own
        self.target = "tests.fault.serve:serve"  # what its processes run
        self.observed = observed or database  # a way to the rows that faults leave alone
        self.luck = random.Random(seed)
        self.counts: dict[str, int] = {}
        self.without: set[str] = set()  # rules that a part cannot be judged by
        folder.mkdir(parents=True, exist_ok=True)
        self.notes = folder / NOTES
        self.notebook = Notebook(self.notes, "campaign")
        self.children: dict[int, Child] = {}
        self.born = 0
        # Only the process that has a DuckDB file can look into it: it observes itself.
        self.alone = database.startswith("duckdb")
        self.places = range(1 if self.alone else PROCESSES)
        self.observer = None if self.alone else Observer(self.observed, self.notebook)

    def __enter__(self) -> Self:
        if self.observer is not None:
            self.observer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._stop_observing()
        for child in self.children.values():
            child.signal(signal.SIGKILL)
        for child in self.children.values():
            with suppress(AssertionError):
                child.wait()

    def _stop_observing(self) -> None:
        if self.observer is not None:
            self.observer.stop()

    # Processes

    def start(self, processes: int, **told: Any) -> None:
        for place in range(processes):
            self.start_at(place, **told)

    def start_at(
        self, place: int, environment: Mapping[str, str] | None = None, **told: Any
    ) -> Child:
        """A process in this place, whose last one has ended."""
        self.born += 1
        name = f"p{place}.{self.born}"
        child = self.zygote.fork(
            name,
            self.target,
            environment={**self.environment, **(environment or {})},
            **{
                "database": self.database,
                "notes": str(self.notes),
                "name": name,
                "seed": self.seed * 1_000_003 + self.born,
                "lease": f"{self.lease}s",
                **self.told,
                **told,
            },
        )
        self.children[place] = child
        return child

    def kill(self, place: int) -> None:
        """SIGKILL, wherever it is; its place is free."""
        child = self.children.pop(place)
        child.kill()
        assert child.code in (-signal.SIGKILL, NOT_NOW), f"{child.name} ended with {child.code}"
        self.notebook.write("killed", process=child.name)
        self.tally("SIGKILL")

    def revive(self) -> None:
        """Start again those that found no database, as a supervisor does."""
        for place, child in list(self.children.items()):
            if not child.alive:
                assert child.code == NOT_NOW, f"{child.name} ended with {child.code}"
                self.start_at(place)

    def freeze(self, place: int) -> Child:
        child = self.children[place]
        child.signal(signal.SIGSTOP)
        # It is told by another process, and its threads stop one by one.
        until(lambda: not child.alive or is_frozen(child.pid), "it stands still", REST_SECONDS)
        self.notebook.write("frozen", process=child.name)
        return child

    def thaw(self, child: Child) -> None:
        child.signal(signal.SIGCONT)
        self.notebook.write("thawed", process=child.name)

    def tally(self, fault: str, times: int = 1) -> None:
        self.counts[fault] = self.counts.get(fault, 0) + times

    def pass_time(self, shortest: float, longest: float) -> None:
        """Let the load go on for a while: what a fault meets is chance."""
        threading.Event().wait(self.luck.uniform(shortest, longest))

    # Looking

    def wait_note(
        self, what: str, seconds: float = REST_SECONDS, **facts: object
    ) -> dict[str, Any]:
        """The first note like this."""
        found: dict[str, Any] = {}

        def look() -> bool:
            for note in read_notes(self.notes):
                if note["what"] == what and all(note.get(k) == v for k, v in facts.items()):
                    found.update(note)
                    return True
            return False

        until(look, f"a note {what} {facts}", seconds)
        return found

    def query(self, sql: str) -> Any:
        """The first value of a query from outside; the prefix of tables is {prefix}."""
        return query(self.observed, sql)

    # The end

    def finish(self, *, stop: bool = True) -> Verdict:
        """Stop all, let two workers end what is left, and judge. Raises Failed."""
        if stop:
            self.stop_all()
        self.drain()
        self._stop_observing()
        history = History(
            notes=list(read_notes(self.notes)),
            rows=read_rows(self.observed),
            lease=self.lease,
            max_lost=MAX_LOST,
        )
        violations = [str(one) for one in check(history, self.without)]
        counts = {
            **self.counts,
            "runs": len(history.runs),
            "attempts": count(history.notes, "start"),
            "acknowledged": count(history.notes, "acked"),
            "occurrences": len(history.rows["occurrences"]),
            "late starts": len(late_starts(history)),
        }
        return Verdict(counts=counts, violations=violations)

    def stop_all(self) -> None:
        """SIGTERM to all, and each of them ends in order."""
        for child in self.children.values():
            child.signal(signal.SIGCONT)
            child.signal(signal.SIGTERM)
        for child in self.children.values():
            code = child.wait()
            assert code in (0, NOT_NOW), f"{child.name} was stopped and ended with {code}"
        self.children.clear()

    def drain(self) -> None:
        """Nothing new is fired or asked for; what there is ends."""
        if self.alone:
            self.start_at(0, parts=["worker"], client=False, drain=True).wait(REST_SECONDS)
            self.stop_all()
            return
        self.start(2, parts=["worker"], client=False)
        until(lambda: self.query(UNDER_WAY) == 0, "every run has ended", REST_SECONDS)
        self.stop_all()

    def archive(self, target: Path) -> Path:
        """Seed, notes, rows and what the processes printed, in one file."""
        with suppress(Exception):  # also of a campaign that did not come to its end
            History(
                notes=list(read_notes(self.notes)),
                rows=read_rows(self.observed),
                lease=self.lease,
                max_lost=MAX_LOST,
            ).save(self.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(target, "w:gz") as tar:
            for file in sorted(self.folder.iterdir()):
                if file.is_file():
                    tar.add(file, arcname=file.name)
        return target


def is_frozen(pid: int) -> bool:
    tasks = Path(f"/proc/{pid}/task")
    if not tasks.exists():  # gone, or no Linux
        return True
    try:
        stats = [(one / "stat").read_text() for one in tasks.iterdir()]
    except (FileNotFoundError, ProcessLookupError):  # a thread that ended just then: look again
        return False
    return {stat.rpartition(")")[2].split()[0] for stat in stats} == {"T"}


def until(reached: Callable[[], bool], what: str, seconds: float) -> None:
    """Look until it is so. Bounded: what does not come is a failure that names it."""
    pause = threading.Event()
    for _ in range(int(seconds / LOOK_SECONDS)):
        with suppress(sqlite3.OperationalError, psycopg.OperationalError):
            if reached():
                return
        pause.wait(LOOK_SECONDS)
    raise AssertionError(f"{seconds:.0f} s have passed, and not: {what}")
