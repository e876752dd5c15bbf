"""The store over DuckDB: the scripts, with what a caller's transaction must not do here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.duckdb_instances import path_from_url
from rota.errors import Invalid, MissingExtra
from rota.extras import how_to_install
from rota.model.run import Enqueued, NewRun
from rota.storage.engine import Clock, Probe
from rota.storage.store import Store


class DuckdbStore(Store):
    def enqueue_on(
        self, connection: Any, new_runs: Sequence[NewRun], *, notify: bool = True
    ) -> list[Enqueued]:
        """The caller's snapshot may be old: it may insert runs, and cannot tell what exists."""
        keyed = next((run for run in new_runs if run.key is not None), None)
        if keyed is not None:
            raise Invalid(
                f"job {keyed.job!r}: key= cannot be used with connection= on a DuckDB store, "
                "because a transaction there does not see what others insert; leave out one of them"
            )
        self.ensure_queues([run.queue for run in new_runs])
        return self.engine.on_connection(
            connection, lambda tx: self._insert(tx, new_runs), notify=notify
        )


def open_duckdb(
    url: str, *, schema: str = "rota", clock: Clock | None = None, probe: Probe | None = None
) -> Store:
    """A store by URL. The file is made if it is not there; nothing is written to it yet."""
    path = path_from_url(url)
    try:
        from rota.storage.duckdb.engine import DuckdbEngine
    except ImportError as fault:
        if fault.name != "duckdb":
            raise
        raise MissingExtra(
            f"a DuckDB store needs duckdb ({fault}); {how_to_install('duckdb')}"
        ) from fault
    return DuckdbStore(DuckdbEngine(path, schema=schema, clock=clock, probe=probe))
