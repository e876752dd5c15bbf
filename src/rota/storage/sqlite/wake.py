"""Notice commits of other processes: each one writes to the file beside the database.

On Linux the kernel tells (inotify): nothing runs while nothing happens, and an enqueue from
another process is seen within a millisecond. Elsewhere SQLite's own counter of commits is read a
few times a second. Either is only a hint: loops look each second anyway.
"""

from __future__ import annotations

import ctypes
import os
import select
import sqlite3
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

POLL_SECONDS = 0.05
# A burst of commits is one wake-up.
QUIET_SECONDS = 0.002

_IN_MODIFY, _IN_CREATE = 0x2, 0x100
_EVENT = struct.Struct("iIII")


class Changes(Protocol):
    def wait(self) -> bool:
        """Until the file changed (True) or `stop` was called (False)."""

    def stop(self) -> None: ...

    def close(self) -> None: ...


class FileWatch:
    """Calls `wake` after commits, from a thread of its own."""

    def __init__(self, path: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._changes = _changes(path, connect)
        self._thread: threading.Thread | None = None

    def start(self, wake: Callable[[], None]) -> None:
        self._thread = threading.Thread(
            target=self._watch, args=(wake,), name="rota-wake", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._changes.stop()
        if self._thread is not None:
            self._thread.join()
        self._changes.close()

    def _watch(self, wake: Callable[[], None]) -> None:
        while self._changes.wait():
            wake()


def _changes(path: str, connect: Callable[[], sqlite3.Connection]) -> Changes:
    if sys.platform == "linux":
        try:
            return KernelEvents(Path(path))
        except OSError:
            pass  # no inotify left, or a file system without it
    return CommitCounter(connect)


class KernelEvents:
    """inotify on the folder: the -wal file itself comes and goes."""

    def __init__(self, path: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._name = f"{path.name}-wal".encode()
        self._descriptor = self._checked(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        self._stop_read, self._stop_write = os.pipe()
        folder = os.fsencode(path.resolve().parent)
        mask = _IN_MODIFY | _IN_CREATE
        self._checked(self._libc.inotify_add_watch(self._descriptor, folder, mask))
        self._quiet = threading.Event()

    def _checked(self, answer: int) -> int:
        if answer < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        return answer

    def wait(self) -> bool:
        while True:
            ready, _, _ = select.select([self._descriptor, self._stop_read], [], [])
            if self._stop_read in ready:
                return False
            self._quiet.wait(QUIET_SECONDS)
            if self._concerns_us(os.read(self._descriptor, 65_536)):
                return True

    def _concerns_us(self, events: bytes) -> bool:
        place = 0
        while place < len(events):
            _, _, _, length = _EVENT.unpack_from(events, place)
            place += _EVENT.size
            if events[place : place + length].rstrip(b"\0") == self._name:
                return True
            place += length
        return False

    def stop(self) -> None:
        self._quiet.set()
        os.write(self._stop_write, b"x")

    def close(self) -> None:
        for descriptor in (self._descriptor, self._stop_read, self._stop_write):
            os.close(descriptor)


class CommitCounter:
    """`PRAGMA data_version` changes when another connection has committed."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connection = connect()
        self._stopping = threading.Event()
        self._seen = -1

    def wait(self) -> bool:
        while not self._stopping.wait(POLL_SECONDS):
            try:
                version = self._connection.execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.Error:
                continue
            if version != self._seen:
                self._seen = version
                return True
        return False

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        self._connection.close()
