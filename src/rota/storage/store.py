"""The store: runs operations over one engine. An operation is a function over a transaction, in
`storage/operations`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from rota.errors import Invalid, Unavailable
from rota.model.limits import check_schema_name
from rota.model.run import BulkRuns, Enqueued, NewRun
from rota.model.url import leave_out
from rota.storage.engine import Clock, Engine, Probe, Row, Transaction
from rota.storage.inside import StoreInside
from rota.storage.operation import is_single, point_name, precheck_of
from rota.storage.operations.enqueueing import ensure_queues, insert_runs
from rota.storage.operations.installation import read_clock, store_facts
from rota.storage.steps import StepInStore, open_step

if TYPE_CHECKING:
    from rota.model.result import Result
    from rota.storage.operations.steps import StepKey

P = ParamSpec("P")
R = TypeVar("R")


class Store:
    """Rows of one installation. `fast_paths` do what some operations do in one statement, where
    that is quicker: each takes what they take, and leaves to them what it cannot do."""

    def __init__(
        self,
        engine: Engine,
        fast_paths: Callable[[Store], Mapping[Callable[..., object], Callable[..., Any]]]
        | None = None,
    ) -> None:
        self.engine = engine
        self._fast = {} if fast_paths is None else fast_paths(self)

    # Operations

    def write(
        self, operation: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run it in one transaction. It may run again after a rollback."""
        fast = self._fast.get(operation)
        if fast is not None:
            answer: R = fast(*args, **kwargs)
            return answer
        return self.plain(operation, *args, **kwargs)

    def plain(
        self, operation: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """The same without a fast path."""
        precheck = precheck_of(operation) if self.one_writer else None
        if precheck is not None and not self.read(precheck.find, *args, **kwargs):
            nothing: R = precheck.nothing  # type: ignore[assignment]
            return nothing
        run = self.engine.write_single if is_single(operation) else self.engine.write
        return run(point_name(operation), lambda tx: operation(tx, *args, **kwargs))

    def read(
        self, operation: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run it on one consistent snapshot."""
        return self.engine.read(lambda tx: operation(tx, *args, **kwargs))

    def peek(
        self, operation: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """The same where its statements need not agree, which costs fewer round trips."""
        return self.engine.peek(point_name(operation), lambda tx: operation(tx, *args, **kwargs))

    def inside(self, tx: Transaction) -> StoreInside:
        """The same calls, each a part of a transaction that is open."""
        return StoreInside(self, tx)

    def enqueue_on(
        self, connection: Any, new_runs: Sequence[NewRun], *, notify: bool = True
    ) -> list[Enqueued]:
        """Insert runs in the caller's own transaction."""
        # Those of a bulk are alike, and have no key.
        named = [new_runs.template] if isinstance(new_runs, BulkRuns) else new_runs
        keyed = next((run for run in named if run.key is not None), None)
        if keyed is not None and self.dialect == "duckdb":
            raise Invalid(
                f"job {keyed.job!r}: key= cannot be used with connection= on a DuckDB store, "
                "because a transaction there does not see what others insert; leave out one of them"
            )
        queues = [run.queue for run in named]

        def work(tx: Transaction) -> list[Enqueued]:
            if self.engine.caller_holds_writes:
                ensure_queues(tx, queues)
            return insert_runs(tx, new_runs)

        # The queue's row is ours, not the caller's: until he commits, everybody else who names the
        # same new queue would have to wait for him.
        if not self.engine.caller_holds_writes:
            self.write(ensure_queues, queues)
        return self.engine.on_connection(connection, work, notify=notify)

    def step(
        self, key: StepKey, lease: timedelta, stopped: Callable[[], bool] = lambda: False
    ) -> AbstractContextManager[StepInStore]:
        """A transaction on this database for the work of a step and its mark."""
        return open_step(self, key, lease, stopped)

    # The database

    def now(self) -> datetime:
        """The instant by the clock that decides: the database's on server engines."""
        return self.peek(read_clock)

    def home(self, cluster: str | None) -> dict[str, str]:
        """What tells this place apart from another one that holds a copy."""
        here = dict(self.engine.home())
        if cluster is not None:
            here["cluster"] = cluster
        return here

    def facts(self) -> Row:
        """What `rota doctor` looks at. Nothing is changed by asking."""
        return {
            **self.engine.facts(),
            **self.read(store_facts),
            "engine": self.dialect,
        }

    def migrate(self) -> list[str]:
        """Bring the schema up to date; what was applied."""
        return self.engine.migrate()

    def pending_migrations(self) -> list[tuple[str, str]]:
        """(name, SQL) of what `migrate` would apply."""
        return self.engine.pending_migrations()

    def grant_roles(self) -> None:
        """Make the roles of viewers, operators and workers, or renew what they may."""
        self.engine.grant_roles()

    @property
    def roles_sql(self) -> str:
        """What `grant_roles` would run."""
        return self.engine.roles_sql

    def check_schema(self) -> None:
        """Refuse a store that this version of Rota does not understand."""
        self.engine.check_schema()

    def blocked_within(self, seconds: float) -> bool:
        """True if a write waits, or waited within this time, for one that holds the whole store:
        nobody could renew a lease meanwhile, and nobody could take one over."""
        return self.engine.blocked_within(seconds)

    @property
    def dialect(self) -> str:
        """Whose SQL it speaks: sqlite, postgres or duckdb."""
        return self.engine.name

    def select(self, sql: str, *, limit: int, seconds: float) -> Result:
        """The first rows of one SELECT over the views."""
        try:
            return self.engine.select(sql, limit=limit, seconds=seconds)
        except Invalid as fault:
            from rota.model.views import VIEWS_LISTED, names_no_view

            if names_no_view(str(fault)):
                raise Invalid(f"{fault}; query the views: {VIEWS_LISTED}") from fault
            if (close := self._close_column(sql, str(fault), seconds)) is not None:
                raise Invalid(f"{fault}; did you mean {close}?") from fault
            raise

    def _close_column(self, sql: str, error: str, seconds: float) -> str | None:
        """Asked for only after a mistake."""
        from rota.model.views import unknown_column, views_in

        if (name := unknown_column(error)) is None:
            return None
        known: list[str] = []
        with suppress(Invalid):
            for view in views_in(sql):
                found = self.engine.select(
                    f"SELECT * FROM {view} WHERE 1 = 0", limit=1, seconds=seconds
                )
                known += [column.name for column in found.columns]
        return next(iter(get_close_matches(name.lower(), known, n=1)), None)

    @property
    def one_writer(self) -> bool:
        return self.engine.one_writer

    @property
    def has_wake_channel(self) -> bool:
        return self.engine.has_wake_channel

    def notify(self) -> None:
        """Tell other processes that there may be work."""
        self.engine.notify()

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Be told of work that other processes made; returns the way to stop."""
        return self.engine.listen(wake)

    def close(self) -> None:
        self.engine.close()


# What an operator's calls work on: they may be inside a transaction.
AnyStore = Store | StoreInside

# A command has a DuckDB file open for a moment; one that starts or stops lets go of it soon.
BUSY_SECONDS = 2.0
BUSY_LOOK_SECONDS = 0.05


def open_when_free(url: str, *, schema: str, pool_size: int) -> Store:
    """Like `open_store`, but a DuckDB file that is in use may become free for a while."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return open_store(url, schema=schema, pool_size=pool_size)
        except Unavailable as fault:
            if not fault.in_use or time.monotonic() > until:
                raise
        time.sleep(BUSY_LOOK_SECONDS)


def open_store(
    url: str,
    *,
    schema: str = "rota",
    clock: Clock | None = None,
    probe: Probe | None = None,
    pool_size: int = 8,
    fast_paths: bool = True,
) -> Store:
    """Connect to a store by URL. Nothing is created or changed; `migrate` does that. Without
    `fast_paths` PostgreSQL runs the plain operations alone, as the other engines do: for tests and
    measurements."""
    check_schema_name(schema)  # it becomes a part of every statement
    scheme = url.partition("://")[0]
    match scheme:
        case "sqlite":
            from rota.storage.sqlite.connect import path_from_url
            from rota.storage.sqlite.engine import SqliteEngine

            engine: Engine = SqliteEngine(
                path_from_url(url), schema=schema, clock=clock, probe=probe
            )
            return Store(engine)
        case "postgresql" | "postgres":
            from rota.storage.postgres.store import open_postgres

            return open_postgres(
                url,
                schema=schema,
                clock=clock,
                probe=probe,
                pool_size=pool_size,
                fast_paths=fast_paths,
            )
        case "duckdb":
            from rota.storage.duckdb.store import open_duckdb

            return open_duckdb(url, schema=schema, clock=clock, probe=probe)
        case _:
            shown = scheme if "://" in url else url
            # As SQLAlchemy and JDBC write it; the engine is the same.
            plain = scheme.lower().removeprefix("jdbc:").partition("+")[0]
            if plain in ("sqlite", "postgresql", "postgres", "duckdb"):
                raise Invalid(
                    f"database {shown!r} is unknown; begin its URL with {plain}://"
                    f"{leave_out(scheme)}"
                )
            raise Invalid(
                f"database {shown!r} is unknown; use sqlite:///rota.db or "
                "postgresql://user@host/name or duckdb:///warehouse.duckdb"
            )
