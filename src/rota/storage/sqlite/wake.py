"""Notice commits of other processes: SQLite counts them in `data_version`.

On Linux the kernel tells when to look (inotify on the file beside the database): nothing runs
while nothing happens. Elsewhere the counter is read a few times a second. Either is only a hint,
but a lost one would cost a scheduler its whole sleep: after the last one the counter is read a few
times more.
"""

from __future__ import annotations

import ctypes
import os
import select
import sqlite3
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

POLL_SECONDS = 0.05
# The file is written before the commit is synced and can be read: look until it can.
LOOK_SECONDS = 0.001
LOOKS = 500
# After a commit of ours the pauses grow to this: a busy process has other things to do.
LONGER_SECONDS = 0.004
LOOKS_AFTER_OURS = 6
# One hint may stand for two commits of which only the first can be read yet, and a slow disk takes
# its time: after each of these pauses there is one more look, unless there is a hint before.
LATER_SECONDS = (0.02, 0.2, 2.0, 10.0)

_IN_MODIFY, _IN_CREATE = 0x2, 0x100
_EVENT = struct.Struct("iIII")


class Hints(Protocol):
    def wait(self, seconds: float | None) -> int | None:
        """Until there may have been a commit, `seconds` have passed, or `stop` was called; how many
        looks to take: one is enough after that time, None are left after the stop."""

    def stop(self) -> None: ...

    def close(self) -> None: ...


class FileWatch:
    """Calls `wake` after commits of other processes, from a thread of its own.

    `foreign` is a number that such a commit changes and one of this process does not. It is asked
    for when there was a commit of either kind: it waits for a write that is under way here.
    """

    def __init__(
        self, path: str, connect: Callable[[], sqlite3.Connection], foreign: Callable[[], int]
    ) -> None:
        self._foreign = foreign
        with ExitStack() as opened:
            self._connection = connect()
            opened.callback(self._connection.close)
            self._hints = _hints(Path(path))
            opened.callback(self._hints.close)
            self._seen, self._seen_foreign = self._version(), foreign()
            self._opened = opened.pop_all()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, wake: Callable[[], None]) -> None:
        self._thread = threading.Thread(
            target=self._watch, args=(wake,), name="rota-wake", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._hints.stop()
        if self._thread is not None:
            self._thread.join()
        self._opened.close()

    def _watch(self, wake: Callable[[], None]) -> None:
        later: Iterator[float] = iter(())
        while not self._stopping.is_set():
            try:
                looks = self._hints.wait(next(later, None))
                if looks is None:
                    continue
                if looks > 1:
                    later = iter(LATER_SECONDS)
                if self._committed(looks):
                    wake()
            except BaseException:  # a watch that ends would not be missed
                self._stopping.wait(POLL_SECONDS)

    def _committed(self, left: int) -> bool:
        """True after a commit of another process. One hint may stand for a commit of ours and one
        of theirs that cannot be read yet, so after ours the looking goes on for a while."""
        pause = LOOK_SECONDS
        while left > 0:
            left -= 1
            version = self._version()
            if version != self._seen:
                self._seen = version
                foreign = self._foreign()
                if foreign != self._seen_foreign:
                    self._seen_foreign = foreign
                    return True
                left = min(left, LOOKS_AFTER_OURS)
            if self._stopping.wait(pause):
                return False
            if left < LOOKS_AFTER_OURS:
                pause = min(2 * pause, LONGER_SECONDS)
        return False

    def _version(self) -> int:
        try:
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error:
            return -1


def _hints(path: Path) -> Hints:
    if sys.platform == "linux":
        try:
            return KernelEvents(path)
        except OSError:
            pass  # no inotify left, or a file system without it
    return Ticks()


class KernelEvents:
    """inotify on the folder: the -wal file itself comes and goes."""

    def __init__(self, path: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._name = f"{path.name}-wal".encode()
        folder, mask = os.fsencode(path.resolve().parent), _IN_MODIFY | _IN_CREATE
        with ExitStack() as opened:
            self._descriptor = self._checked(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
            opened.callback(os.close, self._descriptor)
            self._checked(self._libc.inotify_add_watch(self._descriptor, folder, mask))
            self._stop_read, self._stop_write = os.pipe()
            for descriptor in (self._stop_read, self._stop_write):
                opened.callback(os.close, descriptor)
            self._opened = opened.pop_all()
        self._poll = select.poll()  # select() refuses descriptors above 1023
        for descriptor in (self._descriptor, self._stop_read):
            self._poll.register(descriptor, select.POLLIN)

    def _checked(self, answer: int) -> int:
        if answer < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        return answer

    def wait(self, seconds: float | None) -> int | None:
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if until is None else max(0.0, until - time.monotonic()) * 1000
            ready = {descriptor for descriptor, _ in self._poll.poll(left)}
            if not ready:
                return 1
            if self._stop_read in ready:
                return None
            if self._concerns_us(os.read(self._descriptor, 65_536)):
                return LOOKS

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
        os.write(self._stop_write, b"x")

    def close(self) -> None:
        self._opened.close()


class Ticks:
    """A look every POLL_SECONDS, where nothing tells when to."""

    def __init__(self) -> None:
        self._stopping = threading.Event()

    def wait(self, seconds: float | None) -> int | None:
        return None if self._stopping.wait(POLL_SECONDS) else 1

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        pass
