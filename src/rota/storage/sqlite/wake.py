"""Notice commits of other processes: SQLite counts them in `data_version`."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable

# Reading the counter takes a few microseconds; a hundred looks a second cost well under 1 % of a
# core and keep an enqueue from another process within about ten milliseconds.
LOOK_SECONDS = 0.01


class FileWatch:
    def __init__(self, connect: Callable[[], sqlite3.Connection], wake: Callable[[], None]) -> None:
        self._connect, self._wake = connect, wake
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rota-wake", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _watch(self) -> None:
        connection, seen = self._connect(), -1
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                version = connection.execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.Error:
                continue  # polling alone is correct: this is only a hint
            if version != seen:
                seen = version
                self._wake()
        connection.close()
