"""The databases that jobs work on, by name, and connections to them.

`store` is the reserved name of the database that holds Rota's own rows. It is the default. A target
with the same address is the store too: steps commit there together with their record.
"""

from __future__ import annotations

import os
import os.path
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rota.duckdb_instances import open_instance, path_from_url
from rota.errors import Invalid, MissingExtra, Unknown
from rota.extras import how_to_install, missing, missing_for
from rota.model.job import Job
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
        """sqlite, postgres or duckdb; also the dialect of its SQL."""
        return kind_of(self.url, f"target {self.name!r}")

    @property
    def path(self) -> str:
        """The file of a SQLite or DuckDB database."""
        if self.kind == "duckdb":
            return path_from_url(self.url)
        return self.url.partition("://")[2].removeprefix("/") or ":memory:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The targets of an installation.

    `store` is a URL, `named` are URLs by name, `default` is a name or `store`."""

    store: str = ""
    named: Mapping[str, str] = field(default_factory=dict)
    default: str = STORE

    def find(self, name: str | None = None) -> Target:
        """The target of this name, or the default."""
        name = name or self.default
        if name == STORE:
            return Target(STORE, self.store, is_store=True)
        if name not in self.named:
            known = ", ".join(sorted({STORE, *self.named}))
            raise Unknown(
                f"target {name!r} is unknown; known are {known}: add it to [targets] in rota.toml"
            )
        url = self.named[name]
        return Target(name, url, is_store=_same(url, self.store))


def missing_extras(targets: Targets, jobs: Iterable[Job]) -> dict[str, list[str]]:
    """What jobs of SQL need and this installation does not have, each with the names of the jobs
    and the command that adds it."""
    found: dict[str, list[str]] = {}
    for job in jobs:
        if job.executor != "sql":
            continue
        try:
            target = targets.find(job.spec.get("target"))
        except Unknown:  # the job's own check says so
            continue
        if (extra := missing_for(target.url)) is not None:
            absent = " and ".join(missing(extra))
            message = f"target {target.name} needs {absent}, not installed here; "
            found.setdefault(message + how_to_install(extra), []).append(job.name)
    return found


def kind_of(url: str, what: str = "target") -> str:
    scheme = url.partition("://")[0]
    if scheme not in KINDS:
        # The message shows only the scheme: the rest may hold a password.
        label = f" {scheme!r}" if "://" in url else ""
        raise Invalid(
            f"{what}{label} is unknown; use sqlite://, postgresql:// or duckdb://"
            f"{leave_out(scheme)}"
        )
    return KINDS[scheme]


def _same(url: str, store: str) -> bool:
    if url == store:
        return True
    target, other = Target("", url), Target("", store)
    if not store or target.kind != other.kind or target.kind == "postgres":
        return False
    return ":memory:" not in url and os.path.realpath(target.path) == os.path.realpath(other.path)


def connect(url: str) -> Any:
    """An autocommit connection to the target at this URL."""
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
        params = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        # Without the driver's message, which may repeat the password.
        raise Invalid(f"the URL of this target cannot be understood; {ENCODE}") from None
    return psycopg.connect(**with_timeouts(params, os.environ), autocommit=True)


class DuckConnection:
    """A cursor of this process's instance of a DuckDB file; closing it closes both."""

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
