"""Open a store over PostgreSQL."""

from __future__ import annotations

from rota.errors import MissingExtra
from rota.extras import how_to_install
from rota.storage.engine import Clock, Probe
from rota.storage.store import Store


def open_postgres(
    url: str,
    *,
    schema: str = "rota",
    clock: Clock | None = None,
    probe: Probe | None = None,
    pool_size: int = 8,
    prepare: bool = True,
    fast_paths: bool = True,
) -> Store:
    """A store by URL; nothing is sent yet. `prepare=False` is as behind a pooler. Without
    `fast_paths` every operation is the plain one: for tests and measurements."""
    try:
        from rota.storage.postgres.engine import PostgresEngine
        from rota.storage.postgres.fast_paths import FastPaths
    except ImportError as fault:
        if (fault.name or "").partition(".")[0] not in ("", "psycopg", "psycopg_binary"):
            raise
        raise MissingExtra(
            f"a PostgreSQL store needs psycopg ({fault}); {how_to_install('postgres')}"
        ) from fault
    engine = PostgresEngine(
        url,
        schema=schema,
        clock=clock,
        probe=probe,
        pool_size=pool_size,
        prepare=prepare,
        fast_paths=fast_paths,
    )
    return Store(engine, (lambda store: FastPaths(store, engine).table()) if fast_paths else None)
