"""What a database product must offer: transactions that run named statements.

The operations in `storage/operations` are written once against this; an engine brings its own
queries.sql, schema and connections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rota.errors import Invalid

if TYPE_CHECKING:
    from rota.model.result import Result

Row = dict[str, Any]
T = TypeVar("T")

# Called with a point's name ("firing.fire.insert_fired_runs.before", "firing.fire.commit.after")
# wherever a process could die. The simulation and the fault tests put a crash here.
Probe = Callable[[str], None]
Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """The clock of engines without a server: they live on one machine."""
    return datetime.now(UTC)


class Transaction(Protocol):
    """One open transaction."""

    answers_request: bool  # it does what a control row asks for, and answers it

    @property
    def writes_alone(self) -> bool:
        """What is read stays true until it ends: no other transaction writes meanwhile."""

    def one(self, name: str, /, **params: object) -> Row | None:
        """The first row of a statement."""

    def all(self, name: str, /, **params: object) -> list[Row]:
        """Every row of a statement; each statement bounds itself."""

    def many(self, name: str, rows: Sequence[Mapping[str, object]]) -> list[Row]:
        """A statement over many parameter rows (one round trip where the engine can)."""

    def changed(self, name: str, rows: Sequence[Mapping[str, object]]) -> int:
        """The same; how many rows it changed, where nobody asks which."""

    def tuples(self, name: str, /, **params: object) -> list[tuple[Any, ...]]:
        """Every row as a plain tuple, in the order of the statement: the hot path."""

    def values(self, name: str, /, **params: object) -> list[Any]:
        """What the only column of a statement has, row by row."""

    def columns(
        self,
        name: str,
        shared: Mapping[str, object] | None = None,
        /,
        **columns: Sequence[object],
    ) -> list[tuple[Any, ...]]:
        """A statement over many parameter rows that are given column by column, with what all of
        them share."""

    def text(self, sql: str, params: Mapping[str, object]) -> None:
        """SQL that is not ours: an executor's addition to the settle of its run."""

    def savepoint(self) -> AbstractContextManager[None]:
        """Undo what is inside, and only that, when it raises."""

    def knows(self, name: str) -> bool:
        """Whether the engine brings a statement that not every engine has."""

    def notify(self) -> None:
        """Wake other processes once this is committed."""

    def wait_briefly(self) -> None:
        """Wait only a moment for rows that other transactions hold, where they can hold rows."""

    def blocked_within(self, seconds: float) -> bool:
        """See `Engine.blocked_within`."""


class EngineStep(Protocol):
    """An open transaction for SQL that is not ours, on a connection of its own."""

    connection: Any  # the driver's
    holds_writes: bool  # while it is open nobody else can write to the store

    @property
    def alone(self) -> bool:
        """False once other databases are part of it: they commit one after the other."""

    def commit(
        self, is_ours: Callable[[Transaction], bool], mark: Callable[[Transaction], None]
    ) -> bool:
        """Commit what was done together with `mark`, if `is_ours` says so by what is true then;
        else undo everything. False if it was undone."""

    def commit_plain(self) -> None:
        """Commit what was done, and nothing else."""


class Engine(Protocol):
    """A database product, opened."""

    name: str
    url: str
    probe: Probe | None
    one_writer: bool  # a write keeps every other one waiting
    caller_holds_writes: bool  # so does a caller's own transaction

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one consistent snapshot."""

    def peek(self, name: str, work: Callable[[Transaction], T]) -> T:
        """The same where the statements need not agree: no round trips to begin and to end."""

    def write(self, name: str, work: Callable[[Transaction], T]) -> T:
        """Run `work` in one transaction. It may be called again after a rollback."""

    def write_single(self, name: str, work: Callable[[Transaction], T]) -> T:
        """The same for work that is one statement: one round trip, where there are any."""

    def on_connection(
        self, connection: Any, work: Callable[[Transaction], T], *, notify: bool = True
    ) -> T:
        """Run `work` inside the caller's own open transaction, under a savepoint.

        `notify` wakes workers when the caller commits, where the engine can do that.
        """

    def step(self, name: str, stopped: Callable[[], bool]) -> AbstractContextManager[EngineStep]:
        """A transaction for a step; undone unless it was committed. Where steps exclude each other
        it waits for its turn until `stopped` is true, and then raises Unavailable."""

    def select(self, sql: str, *, limit: int, seconds: float) -> Result:
        """The first rows of one SELECT over the views, which are known by their bare names; on a
        connection that can change nothing and sees nothing else."""

    def grant_roles(self) -> None:
        """See `Store.grant_roles`; Invalid where there are none."""

    @property
    def roles_sql(self) -> str:
        """See `Store.roles_sql`; Invalid where there are no roles."""

    def migrate(self) -> list[str]:
        """Bring the schema up to date; the names of the migrations that were applied."""

    def pending_migrations(self) -> list[tuple[str, str]]:
        """(name, SQL) of what `migrate` would apply."""

    def home(self) -> dict[str, str]:
        """What tells this place apart from another one that holds a copy; empty for a file."""

    def facts(self) -> Row:
        """What the engine tells of itself: its version, and what can go wrong with it alone."""

    def check_schema(self) -> None:
        """WrongSchema if the store was made by another version of Rota."""

    def blocked_within(self, seconds: float) -> bool:
        """True if a write waits, or waited within this time, for one that holds the whole store:
        no lease could be renewed meanwhile, and none could be taken over. False where writers do
        not exclude each other."""

    def notify(self) -> None:
        """Tell other processes that there may be work. A hint: losing it costs only time."""

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when another process may have made work; returns the way to stop."""

    @property
    def has_wake_channel(self) -> bool:
        """Whether `listen` hears of work; without it the loops look more often."""

    def close(self) -> None: ...


def no_roles() -> Invalid:
    return Invalid("a file has no roles: who may write to it may do everything")


class Probed:
    """Statements by name, with the points where a process could die around each of them."""

    cursor: Any
    engine: Any
    answers_request = False
    wakes_others = False

    def __init__(self, name: str, probe: Probe | None) -> None:
        self._name, self._probe = name, probe

    @property
    def writes_alone(self) -> bool:
        alone: bool = self.engine.one_writer
        return alone

    def knows(self, name: str) -> bool:
        return name in self.engine.statements

    def notify(self) -> None:
        """Without a server a commit is seen as it is: there is nothing to send."""
        self.wakes_others = True

    def wait_briefly(self) -> None: ...

    def blocked_within(self, seconds: float) -> bool:
        blocked: bool = self.engine.blocked_within(seconds)
        return blocked

    def one(self, name: str, /, **params: object) -> Row | None:
        rows = self.all(name, **params)
        return rows[0] if rows else None

    def all(self, name: str, /, **params: object) -> list[Row]:
        self._at(name, "before")
        rows = self._execute(name, params)
        self._at(name, "after")
        return rows

    def many(self, name: str, rows: Sequence[Mapping[str, object]]) -> list[Row]:
        if not rows:
            return []
        self._at(name, "before")
        answer = self._execute_many(name, rows)
        self._at(name, "after")
        return answer

    def changed(self, name: str, rows: Sequence[Mapping[str, object]]) -> int:
        if not rows:
            return 0
        self._at(name, "before")
        self._execute_many(name, rows)
        changed = self._rowcount()
        self._at(name, "after")
        return changed

    def tuples(self, name: str, /, **params: object) -> list[tuple[Any, ...]]:
        self._at(name, "before")
        rows = self._execute_tuples(name, params)
        self._at(name, "after")
        return rows

    def values(self, name: str, /, **params: object) -> list[Any]:
        self._at(name, "before")
        values = self._execute_values(name, params)
        self._at(name, "after")
        return values

    def columns(
        self,
        name: str,
        shared: Mapping[str, object] | None = None,
        /,
        **columns: Sequence[object],
    ) -> list[tuple[Any, ...]]:
        self._at(name, "before")
        rows = self._execute_columns(name, columns, shared or {})
        self._at(name, "after")
        return rows

    def _rowcount(self) -> int:
        """How many rows the last statement changed."""
        changed: int = self.cursor.rowcount
        return changed

    def _at(self, statement: str, side: str) -> None:
        if self._probe is not None:
            self._probe(f"{self._name}.{statement}.{side}")

    def _execute_tuples(self, name: str, params: Mapping[str, object]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _execute_values(self, name: str, params: Mapping[str, object]) -> list[Any]:
        return [value for (value,) in self._execute_tuples(name, params)]

    def _execute_columns(
        self, name: str, columns: Mapping[str, Sequence[object]], shared: Mapping[str, object]
    ) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _execute(self, name: str, params: Mapping[str, object]) -> list[Row]:
        raise NotImplementedError

    def _execute_many(self, name: str, rows: Sequence[Mapping[str, object]]) -> list[Row]:
        raise NotImplementedError
