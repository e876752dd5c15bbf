"""Open a store over DuckDB."""

from __future__ import annotations

from rota.duckdb_instances import path_from_url
from rota.errors import MissingExtra
from rota.extras import how_to_install
from rota.storage.engine import Clock, Probe
from rota.storage.store import Store


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
    return Store(DuckdbEngine(path, schema=schema, clock=clock, probe=probe))
