"""Connections to the databases that jobs work on."""

from __future__ import annotations

import sqlite3
from typing import Any

from rota.errors import Invalid, MissingExtra


def connect(url: str) -> Any:
    """An autocommit connection to a target, by its URL."""
    scheme, _, rest = url.partition("://")
    match scheme:
        case "sqlite":
            return sqlite3.connect(rest.removeprefix("/") or ":memory:", isolation_level=None)
        case "postgresql" | "postgres":
            try:
                import psycopg
            except ImportError:
                raise MissingExtra(
                    "this target is PostgreSQL; install it with: pip install 'rota[postgres]'"
                ) from None
            return psycopg.connect(url, autocommit=True)
        case _:
            raise Invalid(f"target {scheme or url!r} is unknown; use sqlite:// or postgresql://")
