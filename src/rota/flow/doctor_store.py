"""Checks of the database itself, from the facts that its engine tells. Absent facts are no check:
a server says nothing of files, a file nothing of connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Protocol

from rota.flow.findings import Finding, ok, problem, warning
from rota.model.duration import format_duration

WAL_BYTES = 256 * 1024 * 1024  # the file is cut back at 4 MB unless somebody reads all the time
FREE_BYTES = 1024 * 1024 * 1024
FREE_SHARE = 0.05
CONNECTIONS_SHARE = 0.9
DEAD_ROWS = 50_000
LONG_TRANSACTION = timedelta(minutes=10)
PRODUCTS = {"sqlite": "SQLite", "postgres": "PostgreSQL", "duckdb": "DuckDB"}

OTHERS_WRITE, OTHERS_READ, OTHERS_ENTER = 0o022, 0o044, 0o011


class Seen(Protocol):
    @property
    def facts(self) -> dict[str, Any]: ...


def check_database(seen: Seen) -> Iterator[Finding]:
    facts = seen.facts
    told = f"{PRODUCTS[facts['engine']]} {facts['version']}, schema {facts['schema_version']}"
    if facts.get("read_only"):
        yield problem(
            "database",
            f"{told}: it cannot be written",
            "point `database` at the primary server, not at a standby",
        )
    else:
        yield ok("database", told)


def check_connections(seen: Seen) -> Iterator[Finding]:
    used, most = seen.facts.get("connections"), seen.facts.get("max_connections")
    if used is None or most is None:
        return
    told = f"{used} of {most} connections are taken"
    if used > most * CONNECTIONS_SHARE:
        yield problem("connections", told, "raise max_connections, or put PgBouncer in front")
    else:
        yield ok("connections", told)


def check_dead_rows(seen: Seen) -> Iterator[Finding]:
    if "dead_rows" not in seen.facts:
        return
    bad = [
        table
        for table in seen.facts["dead_rows"]
        if table["dead"] > DEAD_ROWS and table["dead"] > table["live"]
    ]
    for table in bad:
        yield problem(
            "vacuum",
            f"table {table['name']} holds {table['dead']:,} dead rows and {table['live']:,} live",
            f"VACUUM {table['name']}; look for a long transaction and at autovacuum's settings",
        )
    if not bad:
        yield ok("vacuum", f"{sum(table['dead'] for table in seen.facts['dead_rows']):,} dead rows")


def check_long_transactions(seen: Seen) -> Iterator[Finding]:
    if "long_transactions" not in seen.facts:
        return
    old = [
        one
        for one in seen.facts["long_transactions"]
        if timedelta(seconds=one["seconds"]) > LONG_TRANSACTION
    ]
    for one in old:
        who = f"{one['program'] or 'a program'} of {one['owner']}"
        yield problem(
            "transactions",
            f"process {one['pid']} ({who}) is {one['state']} in a transaction since "
            f"{_span(one['seconds'])}: nothing dead can be removed meanwhile",
            f"end it, or SELECT pg_terminate_backend({one['pid']})",
        )
    if not old:
        yield ok("transactions", f"none is older than {format_duration(LONG_TRANSACTION)}")


def check_wal(seen: Seen) -> Iterator[Finding]:
    size = seen.facts.get("wal_bytes")
    if size is None:
        return
    if size > WAL_BYTES:
        yield problem(
            "wal",
            f"the write-ahead log holds {_size(size)}: somebody reads all the time, so that it "
            "cannot be cut back",
            "look for a long read of another program; it is cut back when that one ends",
        )
    else:
        yield ok("wal", _size(size))


def check_disk(seen: Seen) -> Iterator[Finding]:
    free, total = seen.facts.get("disk_free_bytes"), seen.facts.get("disk_total_bytes")
    if free is None or not total:
        return
    told = f"{_size(free)} of {_size(total)} are free"
    if free < FREE_BYTES or free < total * FREE_SHARE:
        yield problem("disk", told, "free some space, or keep less: retention in rota.toml")
    else:
        yield ok("disk", told)


def check_modes(seen: Seen) -> Iterator[Finding]:
    """Whoever can write the file of a store is its admin."""
    facts = seen.facts
    if "mode" not in facts:
        return
    file, mode, folder = facts["file"], facts["mode"], facts["folder_mode"]
    if mode & OTHERS_WRITE or folder & OTHERS_WRITE & ~_sticky(folder):
        yield problem(
            "modes",
            f"others on this machine can write {file} (mode {mode:04o}, folder {folder:04o})",
            f"chmod go-w {file} and its folder",
        )
    elif mode & OTHERS_READ and folder & OTHERS_ENTER:
        yield warning(
            "modes",
            f"others on this machine can read {file} (mode {mode:04o}), with all arguments",
            f"chmod 600 {file}, or chmod 700 its folder",
        )
    else:
        yield ok("modes", f"{file} is private (mode {mode:04o})")


STORE_CHECKS: tuple[Callable[[Seen], Iterator[Finding]], ...] = (
    check_database,
    check_connections,
    check_dead_rows,
    check_long_transactions,
    check_wal,
    check_disk,
    check_modes,
)


def _sticky(folder: int) -> int:
    """In a folder like /tmp nobody can replace the file of another."""
    return OTHERS_WRITE if folder & 0o1000 else 0


def _size(count: int) -> str:
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"


def _span(seconds: float) -> str:
    return format_duration(timedelta(seconds=round(seconds)))
