"""The real SQLite storage in memory, cut at every call and every statement.

Around each call others may go on; inside a transaction nobody can (SQLite has one write lock),
but the process may die, the database may be away, or the answer to a COMMIT may be lost.
Triggers log every change of a row, so that the recorder sees what was committed and only that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from rota.errors import Unavailable
from rota.model.schedule import OPTIONS, to_json_value
from rota.storage.engine import Transaction
from rota.storage.operations.claiming import ClaimRequest
from rota.storage.rows import JSON_OPTIONS
from rota.storage.sqlite.engine import SqliteEngine
from rota.storage.store import Store
from tests.simulation.baton import Crash

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

# What the recorder keeps of each table.
TRACKED = {
    "_rota_runs": (
        "seq", "id", "job", "queue", "priority", "state", "due_at", "finished_at", "attempt",
        "failures", "lost", "redo", "max_attempts", "overlap_key", "concurrency_key",
        "concurrency_limit", "wanted_key", "schedule_id", "occurrence", "missed_count",
        "retry_of", "worker_id", "lease_until", "error", "result", "cancel_requested_at",
        "pause_requested_at",
    ),
    "_rota_schedules": (
        "id", "name", "kind", "expr", "timezone", "dst", "anchor", "next_fire_at", "last_fired_at",
        "enabled",
        "paused", "on_error", "pause_after", "first_run", "starts_at", "ends_at", "error",
    ),
    "_rota_occurrences": (
        "schedule_id", "occurrence", "last_occurrence", "count", "outcome", "run_id",
        "recorded_at",
    ),
    "_rota_slots": ("key", "number", "owner_run"),
    "_rota_run_keys": ("job", "key", "run_id", "until"),
    "_rota_attempts": ("run_seq", "number", "outcome"),
    "_rota_queues": ("name", "paused"),
    "_rota_meta": ("key", "value"),
    "sim_ends": ("run_id", "redo", "state"),
}  # fmt: skip

LOG = """
CREATE TABLE sim_log (n INTEGER PRIMARY KEY, what TEXT, how TEXT, row TEXT);
CREATE TABLE sim_ends (run_id TEXT, redo INTEGER, state TEXT);
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong in one storage call: `kind` crash, away or unsure (a COMMIT without an
    answer); `at` statement, before or after the commit."""

    kind: str
    at: str
    statements: int = 0

    def strike(self) -> None:
        if self.kind == "crash":
            raise Crash
        fault = Unavailable(f"simulated: {self.kind} {self.at}")
        fault.maybe_committed = self.kind == "unsure"
        raise fault


class SimulatedEngine(SqliteEngine):
    """One connection for all simulated processes; the baton says whose call it is."""

    def __init__(self, world: World) -> None:
        super().__init__(":memory:", clock=world.clock.now, probe=self._at_point)
        self.world = world
        self._fault: Fault | None = None
        self._statements_left = 0
        _template().backup(self._writer)

    @property
    def connection(self) -> sqlite3.Connection:
        return self._writer

    def blocked_within(self, seconds: float) -> bool:
        return False  # nobody waits for the lock here, and the engine would ask the real clock

    def read(self, work: Callable[[Transaction], T]) -> T:
        self.world.cut()
        self._arm(self.world.draw_fault(writing=False))
        try:
            answer = super().read(work)
        finally:
            self._fault = None
        self.world.looked()
        self.world.cut()
        return answer

    def write(self, name: str, work: Callable[[Transaction], T]) -> T:
        self.world.cut()
        self._arm(self.world.draw_fault(writing=True))
        try:
            answer = super().write(name, work)
        finally:
            self._fault = None
            self.world.committed()
        self.world.cut()
        return answer

    def _arm(self, fault: Fault | None) -> None:
        self._fault = fault
        self._statements_left = fault.statements if fault is not None else 0

    def _at_point(self, point: str) -> None:
        fault = self._fault
        if fault is None:
            return
        if point.endswith(".commit.after"):
            if fault.at == "after":
                fault.strike()
        elif point.endswith(".commit.before"):
            if fault.at != "after":
                fault.strike()
        elif fault.at == "statement":
            if self._statements_left == 0:
                fault.strike()
            self._statements_left -= 1


@cache
def _template() -> sqlite3.Connection:
    """A migrated store with the log; to copy it is ten times faster than to migrate."""
    engine = SqliteEngine(":memory:")
    engine.migrate()
    connection = engine._writer
    connection.executescript(LOG)
    for table, columns in TRACKED.items():
        for how, side in (("insert", "NEW"), ("update", "NEW"), ("delete", "OLD")):
            values = ", ".join(_value(side, table, column) for column in columns)
            connection.execute(
                f"CREATE TRIGGER sim_{table}_{how} AFTER {how} ON {table} BEGIN "
                f"INSERT INTO sim_log (what, how, row) "
                f"VALUES ('{table}', '{how}', json_array({values})); END"
            )
    return connection


def _value(side: str, table: str, column: str) -> str:
    """A column; of schedules perhaps an option that is stored among the others."""
    if table == "_rota_schedules" and column in JSON_OPTIONS:
        default = to_json_value(OPTIONS[column].default)
        literal = "NULL" if default is None else f"'{default}'"
        return f"coalesce({side}.options ->> '{column}', {literal})"
    return f"{side}.{column}"


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of storage: the verb, and what it was given."""

    verb: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.options[name]

    @property
    def claimant(self) -> ClaimRequest | None:
        """Who claims by it: a claim, or a fire that is one as well."""
        match self.verb:
            case "claim":
                return ClaimRequest(worker_id=self.args[0], **self.options)
            case "fire" if len(self.args) > 2:
                found: ClaimRequest | None = self.args[2]
                return found
            case _:
                return None


WATCHED = (
    "due_schedules", "disable_broken_schedules", "fire", "fire_group", "enqueue", "promote",
    "admit", "claim", "release_forgotten_runs", "renew", "settle", "expired_runs", "sweep",
    "prune_runs", "fold_ledger", "put_jobs", "put_schedule", "register_schedule",
    "pause_schedule", "resume_schedule", "drop_schedule", "cancel_run", "redo_run", "pause_run",
    "resume_run", "delete_run", "pause_queue", "resume_queue", "set_dispatch", "ensure_queues",
)  # fmt: skip


VERBS = {"fire_known": "fire"}  # one verb by two operations


class WatchedStore(Store):
    """Remembers what the actor who has the baton is asking for."""

    def __init__(self, engine: SimulatedEngine) -> None:
        super().__init__(engine)
        self.world = engine.world

    def write(self, operation: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self.asking(
            operation,
            lambda: super(WatchedStore, self).write(operation, *args, **options),
            *args,
            **options,
        )

    def read(self, operation: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self.asking(
            operation,
            lambda: super(WatchedStore, self).read(operation, *args, **options),
            *args,
            **options,
        )

    def peek(self, operation: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self.asking(
            operation,
            lambda: super(WatchedStore, self).peek(operation, *args, **options),
            *args,
            **options,
        )

    def asking(
        self, operation: Callable[..., Any], call: Callable[[], Any], *args: Any, **options: Any
    ) -> Any:
        """The answer to `call`, with a note of what was asked and answered."""
        verb = VERBS.get(operation.__name__, operation.__name__)
        if verb not in WATCHED:
            return call()
        actor = self.world.current
        outer, actor.asked = actor.asked, Asked(verb, args, options)
        actor.did.add(verb)
        try:
            answer = call()
            self.world.answered(answer)
            return answer
        finally:
            actor.asked = outer
