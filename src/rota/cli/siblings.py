"""`rota up --processes N`: more workers beside this one, for more cores.

Each is a `rota up --only worker` of its own and needs nobody: they meet in the database. This
process starts them, starts one again that has ended, and ends them when it ends. Their input is a
socket to here: if this process is killed they notice, and they tell it what they have counted, so
that its metrics are those of all of them.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from rota.errors import Invalid
from rota.flow.counters import Counters, Counts, since

log = logging.getLogger("rota.up")

MOST_PROCESSES = 256
# Before one that ended is started again, twice as long each time it does not last.
RESTART_SECONDS = 1.0
LONGEST_RESTART_SECONDS = 30.0
LASTING_SECONDS = 60.0
TELL_SECONDS = 1.0


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
        self,
        count: int,
        arguments: Sequence[str],
        settings: Mapping[str, str] | None = None,
        counters: Counters | None = None,
    ) -> None:
        self._counters = counters or Counters()
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
        """At once, so that they use their grace while this process uses its own. And once: who is
        asked a second time ends in the middle of it."""
        with self._guard:
            if self._stopping.is_set():
                return
            self._stopping.set()
            for process in self._running:
                with suppress(OSError):
                    process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()

    def _keep(self) -> None:
        delay = RESTART_SECONDS
        while not self._stopping.is_set():
            began = time.monotonic()
            ended = self._live()
            if self._stopping.is_set():
                return
            lasted = time.monotonic() - began > LASTING_SECONDS
            delay = RESTART_SECONDS if lasted else min(delay * 2, LONGEST_RESTART_SECONDS)
            log.warning("%s; it starts again", ended)
            if self._stopping.wait(delay):
                return

    def _live(self) -> str:
        """One process from its start to its end; what became of it."""
        try:
            process = self._begin()
        except (OSError, RuntimeError) as fault:  # no memory, no process, no thread left for now
            return f"a worker process could not be started ({fault})"
        if process is None:
            return "stopped"
        code = process.wait()
        with self._guard:
            self._running.discard(process)
        return f"worker process {process.pid} ended ({_told(code)})"

    def _begin(self) -> subprocess.Popen[bytes] | None:
        with self._guard:
            if self._stopping.is_set():
                return None
            ours, theirs = socket.socketpair()
            with theirs:  # if nobody gets it, who listens hears the end
                listening = threading.Thread(
                    target=self._listen, args=(ours,), name="rota-sibling-counts", daemon=True
                )
                try:
                    listening.start()
                except BaseException:
                    ours.close()
                    raise
                # Its own session: Ctrl-C in the terminal is for this process, which tells the
                # others.
                process = subprocess.Popen(
                    self._command,
                    stdin=theirs.fileno(),
                    start_new_session=True,
                    env=self._environment,
                )
            self._running.add(process)
            return process

    def _listen(self, ours: socket.socket) -> None:
        """Take over what one of them has counted, until it ends."""
        with ours, ours.makefile("rb") as lines, suppress(OSError):
            for line in lines:
                with suppress(msgspec.DecodeError, ValueError):  # half a line: it was killed
                    self._counters.add(_COUNTS.decode(line))


class Telling:
    """In a sibling: says once a second what was counted, and the rest at the end."""

    def __init__(self, counters: Counters) -> None:
        self._counters, self._told = counters, counters.counts()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rota-counts", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()
        self._tell()

    def _run(self) -> None:
        while not self._ending.wait(TELL_SECONDS):
            self._tell()

    def _tell(self) -> None:
        now = self._counters.counts()
        more, self._told = since(now, self._told), now
        if more != Counts():
            with suppress(OSError), socket.socket(fileno=os.dup(0)) as channel:
                channel.sendall(msgspec.json.encode(more) + b"\n")


def end_with_parent() -> None:
    """In a sibling: stop like after a signal when whoever started it is gone."""

    def watch() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="rota-parent", daemon=True).start()


_COUNTS = msgspec.json.Decoder(Counts)


def _told(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
