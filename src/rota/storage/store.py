"""The store: every script over one engine. What flow sees of it is `protocol.Storage`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING

from rota.errors import Invalid, Unavailable
from rota.model.limits import check_schema_name
from rota.model.url import leave_out
from rota.storage.engine import Clock, Engine, Probe
from rota.storage.scripts.answer import AnswerScript
from rota.storage.scripts.bench import BenchScript
from rota.storage.scripts.catalog import CatalogScript
from rota.storage.scripts.charts import ChartsScript
from rota.storage.scripts.claim import ClaimScript
from rota.storage.scripts.control import ControlScript
from rota.storage.scripts.enqueue import EnqueueScript
from rota.storage.scripts.facts import FactsScript
from rota.storage.scripts.figures import FiguresScript
from rota.storage.scripts.files import FilesScript
from rota.storage.scripts.folder import FolderScript
from rota.storage.scripts.herd import HerdScript
from rota.storage.scripts.ledger import LedgerScript
from rota.storage.scripts.lists import ListsScript
from rota.storage.scripts.look import LookScript
from rota.storage.scripts.shared import SharedScript
from rota.storage.scripts.steps import StepsScript
from rota.storage.scripts.tokens import TokenScript

if TYPE_CHECKING:
    from rota.model.result import Result


class Store(
    FolderScript,
    SharedScript,
    HerdScript,
    FactsScript,
    EnqueueScript,
    ClaimScript,
    StepsScript,
    FilesScript,
    BenchScript,
    FiguresScript,
    ControlScript,
    LedgerScript,
    AnswerScript,
    CatalogScript,
    LookScript,
    ChartsScript,
    ListsScript,
    TokenScript,
):
    """Rows of one installation."""

    def migrate(self) -> list[str]:
        """Bring the schema up to date; what was applied."""
        return self.engine.migrate()

    def pending_migrations(self) -> list[tuple[str, str]]:
        """(name, SQL) of what `migrate` would apply."""
        return self.engine.pending_migrations()

    def grant_roles(self) -> None:
        """Make the roles of viewers, operators and workers, or renew what they may."""
        raise Invalid("a file has no roles: who may write to it may do everything")

    @property
    def roles_sql(self) -> str:
        """What `grant_roles` would run."""
        raise Invalid("a file has no roles: who may write to it may do everything")

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
) -> Store:
    """Connect to a store by URL. Nothing is created or changed; `migrate` does that."""
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

            return open_postgres(url, schema=schema, clock=clock, probe=probe, pool_size=pool_size)
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
