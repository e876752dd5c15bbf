"""`rota up --processes N`: more workers beside this one, for more cores.

Each is a `rota up --only worker` of its own and needs nobody: they meet in the database. This
process starts them, starts one again that has ended, and ends them when it ends. If it is killed
they notice, because their input is a pipe from here.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rota.errors import Invalid

log = logging.getLogger("rota.up")

MOST_PROCESSES = 256
# Before one that ended is started again, twice as long each time it does not last.
RESTART_SECONDS = 1.0
LONGEST_RESTART_SECONDS = 30.0
LASTING_SECONDS = 60.0


def check_processes(count: int, database: str) -> None:
    """Refuse what cannot be: no process at all, or several on a store that takes one."""
    if not 1 <= count <= MOST_PROCESSES:
        raise Invalid(f"--processes {count} must be a whole number from 1 to {MOST_PROCESSES}")
    if count > 1 and database.startswith("duckdb:"):
        raise Invalid(
            "--processes: a DuckDB store is opened by one process; use SQLite or PostgreSQL as "
            "`database` and keep DuckDB as a target, or raise --slots"
        )
    if count > 1 and database.endswith(":memory:"):
        raise Invalid("--processes: a store in memory belongs to one process; give it a file")


class Siblings:
    """Started and stopped with this process. `settings` are added to their environment."""

    def __init__(
        self, count: int, arguments: Sequence[str], settings: Mapping[str, str] | None = None
    ) -> None:
        self._command = [sys.executable, "-m", "rota.cli", "up", *arguments]
        self._environment = {**os.environ, **(settings or {})}
        self._stopping = threading.Event()
        self._guard = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._threads = [
            threading.Thread(target=self._keep, name=f"rota-sibling-{number}", daemon=True)
            for number in range(count)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def ask_to_stop(self) -> None:
        """At once, so that they use their grace while this process uses its own."""
        with self._guard:
            self._stopping.set()
            for process in self._running:
                with suppress(OSError):
                    process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()

    def _keep(self) -> None:
        delay = RESTART_SECONDS
        while (process := self._begin()) is not None:
            began = time.monotonic()
            code = process.wait()
            with self._guard:
                self._running.discard(process)
            if process.stdin is not None:
                process.stdin.close()
            if self._stopping.is_set():
                return
            lasted = time.monotonic() - began > LASTING_SECONDS
            delay = RESTART_SECONDS if lasted else min(delay * 2, LONGEST_RESTART_SECONDS)
            log.warning("worker process %d ended (%s); it starts again", process.pid, _told(code))
            if self._stopping.wait(delay):
                return

    def _begin(self) -> subprocess.Popen[bytes] | None:
        with self._guard:
            if self._stopping.is_set():
                return None
            # Its own session: Ctrl-C in the terminal is for this process, which tells the others.
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                start_new_session=True,
                env=self._environment,
            )
            self._running.add(process)
            return process


def end_with_parent() -> None:
    """In a sibling: stop like after a signal when whoever started it is gone."""

    def watch() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="rota-parent", daemon=True).start()


def _told(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
