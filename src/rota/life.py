"""The life of a process that is Rota's own: start, say what happens, stop at a signal."""

from __future__ import annotations

import functools
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NoReturn, Protocol

from rota.flow.events import RunEvent
from rota.model.outcome import error_line
from rota.model.redact import redact_text
from rota.storage import operations

if TYPE_CHECKING:
    from rota.app import Rota

log = logging.getLogger("rota")

# A terminal or a supervisor may deliver one request to stop twice.
SAME_SIGNAL_SECONDS = 0.3
SIGNAL_LOOK_SECONDS = 0.5
# Whoever asks twice waits no longer than this for us to say goodbye.
GOODBYE_SECONDS = 0.3
# The process is ours: loops that come back from the database wait less for handlers.
SWITCH_SECONDS = 0.0005
# Runs leave no cycles behind, and a worker holds thousands of them at a time: it collects rarely.
COLLECT_AFTER = (20_000, 20, 20)
ERROR_LINE = 300


class LocalSocket(Protocol):
    """How commands reach a process whose store no other process can open."""

    error: str | None

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Web(Protocol):
    """How browsers and programs reach a process, by HTTP."""

    error: str | None
    note: str | None

    @property
    def url(self) -> str: ...

    @property
    def token_file(self) -> object: ...

    def refuse_others(self) -> None: ...

    def prepare(self) -> None: ...

    def start(self) -> None: ...

    def drain(self) -> None: ...

    def stop(self) -> None: ...


def make_web(app: Rota) -> Web:
    """MissingExtra, when it is prepared, where its packages are not installed."""
    # By name, like the local socket.
    web: Web = import_module("rota.web.server").Web(app)
    return web


def open_local_socket(app: Rota) -> LocalSocket | None:
    """For an app on a DuckDB store; commands open any other store themselves."""
    if not app.settings.database.startswith("duckdb:"):
        return None
    # By name: the local socket is a surface above the app, loaded when it is used.
    server: LocalSocket = import_module("rota.door.server").SocketServer(app)
    server.start()
    return server


def live(app: Rota, only: Iterable[str], stopping: Callable[[], None]) -> bool:
    """What `Rota.run` promises; true if the process should start anew, once its caller has ended
    what it began itself."""
    # No Event: a handler may interrupt this thread while it holds the lock of its own wait, and
    # would wait for that one for ever.
    ending: SimpleQueue[None] = SimpleQueue()
    stuck = False

    def renew() -> None:
        nonlocal stuck
        stuck = True
        ending.put(None)

    asked_at = 0.0
    worker_id: str | None = None

    def ask(number: int, frame: object) -> None:
        nonlocal asked_at
        if not asked_at:
            asked_at = time.monotonic()
            ending.put(None)
        elif time.monotonic() - asked_at > SAME_SIGNAL_SECONDS:
            say_goodbye(app, worker_id)
            os._exit(130)

    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()  # what is loaded stays: no collection need look at it again
    gc.set_threshold(*COLLECT_AFTER)
    speak_unless_told(app)
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        app.start(only, on_stuck=renew)
        worker_id = app.worker_id
        _wait_for(ending)
        log.info("stopping")
        stopping()
        app.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    anew = stuck and not asked_at  # whoever asks for an end wants no new beginning
    if anew:
        log.warning("starting anew: threads that ignore their timeout hold half of the slots")
    return anew


def _wait_for(ending: SimpleQueue[None]) -> None:
    """The kernel may hand a signal to any thread, and then no wait of this one ends early: the
    handler runs when this one wakes by itself."""
    while True:
        with suppress(Empty):
            ending.get(timeout=SIGNAL_LOOK_SECONDS)
            return


def start_anew() -> NoReturn:
    """The same process, begun once more. It knows nothing of the children it had."""
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def say_goodbye(app: Rota, worker_id: str | None) -> None:
    """Take the worker's row away, so that nobody looks for a crash; its runs are rescued when their
    leases end. In a thread: this one may have been interrupted while it held the store's lock."""
    if worker_id is None:
        return

    def forget() -> None:
        with suppress(Exception):  # the row says then what a crash would
            app.storage.write(operations.forget_worker, worker_id)

    goodbye = threading.Thread(target=forget, daemon=True)
    goodbye.start()
    goodbye.join(GOODBYE_SECONDS)


def speak_unless_told(app: Rota) -> None:
    """A program that set up no logging would seem to hang: say what happens, on stderr."""
    if log.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(asctime)s  %(message)s", "%H:%M:%S"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    names, store = sorted(job.name for job in app.jobs()), redact_text(app.settings.database)
    log.info("rota runs on %s; jobs: %s; Ctrl-C stops it", store, ", ".join(names) or "none")
    words = ("started", "completed", "failed", "cancelled")
    lines = {f"job.{word}": functools.partial(_say, word) for word in words}
    app.events.write_lines(lines, say_more)


class _Lines(logging.Formatter):
    """Whoever logs, secrets are taken out."""

    def format(self, record: logging.LogRecord) -> str:
        return redact_text(super().format(record))


def say_more(count: int) -> None:
    log.info("… and %s more runs ended in the last second", f"{count:,}")


def _say(word: str, event: RunEvent) -> None:
    error = f": {error_line(event.error, limit=ERROR_LINE)}" if event.error else ""
    log.info("%s %s (run %s)%s", event.name, word, event.run_id, error)
