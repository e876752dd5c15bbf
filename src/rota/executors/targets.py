"""The databases that jobs work on, by name, and connections to them.

`store` is the reserved name of the database that holds Rota's own rows. It is the default, and a
target with the same address is the store, too: steps commit there together with their record.
"""

from __future__ import annotations

import os
import os.path
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rota.duckdb_instances import open_instance, path_from_url
from rota.errors import Invalid, MissingExtra, Unknown
from rota.extras import how_to_install
from rota.model.url import ENCODE, leave_out, with_timeouts

STORE = "store"
KINDS = {
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
    "duckdb": "duckdb",
}


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    url: str
    is_store: bool = False

    @property
    def kind(self) -> str:
        """sqlite, postgres or duckdb: also the dialect of its SQL."""
        return kind_of(self.url, f"target {self.name!r}")

    @property
    def path(self) -> str:
        """The file of a file engine."""
        if self.kind == "duckdb":
            return path_from_url(self.url)
        return self.url.partition("://")[2].removeprefix("/") or ":memory:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """`store` is a URL, `named` are URLs by name, `default` is one of the names or `store`."""

    store: str = ""
    named: Mapping[str, str] = field(default_factory=dict)
    default: str = STORE

    def find(self, name: str | None = None) -> Target:
        """A target by its name; without one the default."""
        wanted = name or self.default
        if wanted == STORE:
            return Target(STORE, self.store, is_store=True)
        if wanted not in self.named:
            known = ", ".join(sorted({STORE, *self.named}))
            raise Unknown(
                f"target {wanted!r} is unknown; known are {known}: add it to [targets] in rota.toml"
            )
        url = self.named[wanted]
        return Target(wanted, url, is_store=_same(url, self.store))


def kind_of(url: str, what: str = "target") -> str:
    scheme = url.partition("://")[0]
    if scheme not in KINDS:
        # Only the scheme is repeated: the rest may hold a password.
        shown = f" {scheme!r}" if "://" in url else ""
        raise Invalid(
            f"{what}{shown} is unknown; use sqlite://, postgresql:// or duckdb://"
            f"{leave_out(scheme)}"
        )
    return KINDS[scheme]


def _same(url: str, store: str) -> bool:
    if url == store:
        return True
    one, other = Target("", url), Target("", store)
    if not store or one.kind != other.kind or one.kind == "postgres":
        return False
    return ":memory:" not in url and os.path.realpath(one.path) == os.path.realpath(other.path)


def connect(url: str) -> Any:
    """An autocommit connection to a target, by its URL."""
    target = Target("", url)
    match target.kind:
        case "sqlite":
            import sqlite3

            return sqlite3.connect(target.path, isolation_level=None, check_same_thread=False)
        case "postgres":
            return connect_postgres(url)
        case _:
            return DuckConnection(target.path)


def connect_postgres(url: str) -> Any:
    try:
        import psycopg
    except ImportError:
        raise MissingExtra(
            f"this target is PostgreSQL, and psycopg is missing; {how_to_install('postgres')}"
        ) from None
    try:
        given = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        # Without the driver's words: they may repeat the password.
        raise Invalid(f"the URL of this target cannot be understood; {ENCODE}") from None
    return psycopg.connect(**with_timeouts(given, os.environ), autocommit=True)


class DuckConnection:
    """A cursor of the one instance that this process has of a DuckDB file; closes both."""

    def __init__(self, path: str) -> None:
        self._instance = open_instance(path)
        try:
            self._cursor = self._instance.cursor()
        except BaseException:
            self._instance.close()
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __enter__(self) -> DuckConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        try:
            self._cursor.close()
        finally:
            self._instance.close()
