"""The DuckDB databases that this process has open, one instance for each file.

DuckDB lets one process open a file, and that process only once: whoever needs it takes cursors
from the same instance. It is closed when the last one who opened it has closed its handle.
A file is opened without settings, so that a handler's own `duckdb.connect` finds the same instance.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import Any

from rota.errors import Invalid, MissingExtra, RotaError, StorageError, Unavailable
from rota.extras import how_to_install

MEMORY = ":memory:"

_HOLDER = re.compile(r"lock is held in (.+?) \(PID (\d+)\)")


class _Shared:
    """What all handles of one database have in common."""

    def __init__(self, path: str, root: Any) -> None:
        self.path, self.root, self.handles = path, root, 0
        self.write_lock = threading.RLock()
        self.run_lock = threading.Lock()
        self.runner = ""
        self.listeners: list[Callable[[], None]] = []


class Instance:
    """A handle of an open database. `:memory:` is a world of its own, `:memory:name` is shared.

    `write_lock`: every write to Rota's own tables begins and ends its transaction inside it.
    `run_lock`: runs that write this database go one at a time; `runner` is the one that does.
    """

    def __init__(self, shared: _Shared) -> None:
        self._shared, self._closed, self._process = shared, False, os.getpid()
        self.path = shared.path
        self.write_lock, self.run_lock = shared.write_lock, shared.run_lock

    @property
    def runner(self) -> str:
        return self._shared.runner

    @runner.setter
    def runner(self, run: str) -> None:
        self._shared.runner = run

    def cursor(self) -> Any:
        """A connection of its own to the shared instance; whoever took it closes it."""
        if self._process != os.getpid():
            raise Unavailable(
                f"{self.path} was opened before this process was forked; a DuckDB file belongs to "
                "one process: start others with spawn, or use a SQLite or PostgreSQL database"
            )
        if self._closed:
            raise Unavailable(f"{self.path} was closed in this process; open it again")
        return self._shared.root.cursor()

    def listen(self, wake: Callable[[], None]) -> None:
        """Have `wake` among those whom a commit to Rota's tables concerns."""
        self._shared.listeners.append(wake)

    def stop_listening(self, wake: Callable[[], None]) -> None:
        if wake in self._shared.listeners:
            self._shared.listeners.remove(wake)

    def listeners(self) -> tuple[Callable[[], None], ...]:
        """Everybody who listens to this database, by any handle."""
        return tuple(self._shared.listeners)

    def close(self) -> None:
        """Give the handle back. May be called again."""
        with _registry_lock:
            if self._closed or self._process != os.getpid():
                return
            self._closed = True
            self._shared.handles -= 1
            if self._shared.handles == 0:
                _registry.pop(self.path, None)
                self._shared.root.close()


_registry: dict[str, _Shared] = {}
_registry_lock = threading.Lock()


def open_instance(path: str) -> Instance:
    """The database at `path`; made if it is not there. Unavailable if another process has it."""
    where = path if path.startswith(MEMORY) else os.path.realpath(path)
    with _registry_lock:
        shared = _registry.get(where)
        if shared is None:
            shared = _Shared(where, _connect(where))
            if where != MEMORY:
                _registry[where] = shared
        shared.handles += 1
        return Instance(shared)


def is_open(path: str) -> bool:
    """Whether this process has the database open."""
    where = path if path.startswith(MEMORY) else os.path.realpath(path)
    return where in _registry


def path_from_url(url: str) -> str:
    """duckdb:///relative.duckdb, duckdb:////absolute.duckdb or duckdb:///:memory:."""
    path = url.removeprefix("duckdb://").removeprefix("/")
    if not path or "?" in path:
        raise Invalid(f"database {url!r} names no file; use duckdb:///warehouse.duckdb")
    return path


def _connect(path: str) -> Any:
    try:
        import duckdb
        import pytz  # type: ignore[import-untyped]  # noqa: F401  # DuckDB returns instants with it
    except ImportError as fault:
        raise MissingExtra(
            f"{path} is a DuckDB database and {fault.name} is not installed; "
            f"{how_to_install('duckdb')}"
        ) from fault
    try:
        return duckdb.connect(path)
    except duckdb.Error as fault:
        raise cannot_open(path, str(fault)) from fault


def cannot_open(path: str, said: str) -> RotaError:
    """DuckDB's refusal to open a file, with the way out."""
    holder = _HOLDER.search(said)
    if holder:
        program, process = holder.groups()
        if int(process) == os.getppid():
            return Unavailable(
                f"{path} cannot be used here: the process that started this one has it open, and "
                "DuckDB lets one process open a file; use ctx.db, which asks that process, or give "
                'the job isolation = "thread"'
            )
        return _in_use(
            f"{path} is in use by process {process} ({program}), and DuckDB lets one process open "
            f"a file; ask that process, or stop it (kill {process})"
        )
    if "Could not set lock" in said:
        return _in_use(f"{path} is in use by another process; stop that process first")
    if "not a valid DuckDB database" in said:
        return StorageError(f"{path} is not a DuckDB database; point the URL at another file")
    if "different configuration" in said:
        return Unavailable(
            f"this process has {path} open with other settings; open it without any, as Rota does"
        )
    if "replaying WAL" in said:
        return StorageError(
            f"{path} cannot be opened: its log {path}.wal cannot be replayed ({said}); keep a copy "
            "of both files, and try the newest DuckDB"
        )
    return Unavailable(
        f"{path} cannot be opened ({said.splitlines()[0]}); check that its folder exists and that "
        "both may be written"
    )


def _in_use(message: str) -> Unavailable:
    fault = Unavailable(message)
    fault.in_use = True
    return fault


def _forget() -> None:
    """After a fork the parent's instances are forgotten, not closed: their threads are not here."""
    global _registry_lock
    _abandoned.extend(_registry.values())
    _registry.clear()
    _registry_lock = threading.Lock()


_abandoned: list[_Shared] = []
os.register_at_fork(after_in_child=_forget)
