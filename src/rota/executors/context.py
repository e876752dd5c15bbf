"""The context of an attempt, passed to its handler.

A context has no access to the storage. All its requests go through `port`, a single function, so
that it works the same in a thread, on the event loop and in a child process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rota.errors import LockNotHeld
from rota.executors.targets import Target, Targets
from rota.model.duration import parse_duration
from rota.model.job import Job
from rota.model.limits import LOGGED_LENGTH
from rota.model.redact import secrets_of, shorten
from rota.model.secrets import Secrets
from rota.model.steps import Steps

if TYPE_CHECKING:
    from rota.executors.keeping import Storage

# (request, parameters) -> answer. Requests: log, progress, extend_lease, lock, extend_lock, unlock,
# put_file, get_file, read_file, delete_file, list_files. In the worker's process also steps, and
# turn: the time that counts for the timeout goes on.
Port = Callable[[str, dict[str, Any]], Any]
StopReason = str  # cancelled | timed_out | lost | stopping

FINAL_REASONS = ("timed_out", "lost")

DEFAULT_LOCK_TTL = timedelta(seconds=30)


# Shared by all contexts: it is held briefly and rarely.
_GUARD = threading.Lock()


class Context:
    """An attempt, as its handler sees it.

    Every run makes one, so rarely used parts (logger, event) are created on first use. Until then
    their value is the default on the class."""

    definition: Job
    job: str
    queue: str
    run_id: str
    attempt: int
    args: dict[str, Any]
    scheduled_at: datetime
    timeout: timedelta | None
    missed_count: int
    correlation_id: str | None
    port: Port
    trace: str | None  # the span of this attempt, as text
    span: Any = None  # the span itself, only in the worker's process
    stop_reason: StopReason | None = None  # set by `stop` alone
    # True once the handler has seen that it should end. Rota's own code checks `stop_reason`.
    heard_stop = False
    in_child = False  # true in a child process
    stoppable = False  # true once something can end the handler by force
    stopped_at = 0.0
    waited = 0.0  # seconds in `waiting`, which do not count for the timeout
    waiting_since: float | None = None
    _steps: Steps | None = None
    _storage: Storage | None = None
    _logger: logging.Logger | None = None
    _stopped: threading.Event | None = None
    _on_stop: list[Callable[[StopReason], None]] | None = None
    _secrets: Secrets | None = None
    _db: Any = None

    def __init__(
        self,
        *,
        definition: Job,
        run_id: str,
        attempt: int,
        args: dict[str, Any],
        scheduled_at: datetime,
        queue: str,
        port: Port,
        target: str | Targets = "",
        timeout: timedelta | None = None,
        missed_count: int = 1,
        correlation_id: str | None = None,
        trace: str | None = None,
    ) -> None:
        self.definition = definition
        self.job = definition.name
        self.queue = queue
        self.run_id = run_id
        self.attempt = attempt
        self.args = args
        self.scheduled_at = scheduled_at
        self.timeout = timeout
        self.missed_count = missed_count
        self.correlation_id = correlation_id
        self.trace = trace
        self._targets = target
        self.port = port

    # For handlers

    @property
    def logger(self) -> logging.Logger:
        """A logger whose lines are stored with the run."""
        if self._logger is None:
            self._logger = _logger(self)
        return self._logger

    @property
    def cancelled(self) -> bool:
        """True once this attempt should end.

        The reasons are a cancel, a timeout, a lost lease and a stopping worker. The result of a
        handler that returns after it has seen True is not stored. If the worker was stopping, the
        run starts again elsewhere.
        """
        if self.stop_reason is not None:
            self.heard_stop = True
        return self.heard_stop

    def wait(self, seconds: float) -> bool:
        """Sleep, but wake at once when this attempt should end. True if it should."""
        with _GUARD:
            if self._stopped is None:
                self._stopped = threading.Event()
                if self.stop_reason is not None:
                    self._stopped.set()
        self._stopped.wait(seconds)
        return self.cancelled

    def progress(self, done: float, total: float | None = None) -> None:
        """Report how far this run is."""
        self.port("progress", {"done": done, "total": total})

    def extend_lease(self) -> None:
        """Renew the lease now, before work that cannot be interrupted."""
        self.port("extend_lease", {})

    def lock(self, name: str, ttl: object = DEFAULT_LOCK_TTL) -> Locking:
        """Hold a named lock across all processes; raises LockNotHeld if it is held.

        `with ctx.lock("name"):`, or `async with`, which does not block the event loop.
        """
        seconds = parse_duration(ttl, "ttl").total_seconds()
        return Locking(name=name, seconds=seconds, port=self.port)

    @property
    def db(self) -> Any:
        """A connection to the job's target, in autocommit, closed when the attempt ends."""
        if self._db is None:
            self._db = self._connect()
        return self._db

    def _connect(self) -> Any:
        target = self.target
        if self.in_child and target.kind == "duckdb":
            from rota.executors.remote import RemoteConnection

            return RemoteConnection(self.port)
        from rota.executors.targets import connect

        return connect(target.url)

    @property
    def storage(self) -> Storage:
        """Files that outlive this run, shared by all runs: put, get, read, delete, list."""
        if self._storage is None:
            from rota.executors.keeping import Storage

            self._storage = Storage(self.port)
        return self._storage

    # For executors and workers

    @property
    def target(self) -> Target:
        """The database of this job. A child process knows only its URL."""
        if isinstance(self._targets, str):
            return Target("", self._targets)
        return self._targets.find(self.definition.spec.get("target"))

    @property
    def secrets(self) -> Secrets:
        """Secrets in the run's arguments and its job, which must be redacted everywhere."""
        if self._secrets is None:
            self._secrets = secrets_of(self.args, self.definition.spec)
        return self._secrets

    def add_secrets(self, values: Iterable[str]) -> None:
        """Redact these values too, whatever their names are."""
        self._secrets = secrets_of(self.args, self.definition.spec, {"secret": list(values)})

    @property
    def steps(self) -> Steps:
        """The record of this attempt's steps, for executors in the worker's own process."""
        if self._steps is None:
            steps: Steps = self.port("steps", {})
            self._steps = steps
        return self._steps

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for other runs in this block; its time does not count for the timeout."""
        self.waiting_since = time.monotonic()
        try:
            yield
        finally:
            self.waited += time.monotonic() - self.waiting_since
            self.waiting_since = None
            self.port("turn", {})

    def on_stop(self, callback: Callable[[StopReason], None]) -> None:
        """Call `callback` with the reason when this attempt should end.

        If it should end already, the call is made at once."""
        with _GUARD:
            self.stoppable = True
            if self.stop_reason is None:
                self._on_stop = [*(self._on_stop or ()), callback]
                return
        callback(self.stop_reason)

    def stop(self, reason: StopReason) -> None:
        """Ask the handler to end. The first reason counts, unless a final reason follows.

        A final reason ends the attempt whatever its handler does."""
        with _GUARD:
            if self.stop_reason is not None:
                if reason in FINAL_REASONS and self.stop_reason not in FINAL_REASONS:
                    self.stop_reason = reason
                return
            self.stopped_at = time.monotonic()
            self.stop_reason = reason
            if self._stopped is not None:
                self._stopped.set()
            callbacks, self._on_stop = self._on_stop, None
        for callback in callbacks or ():
            try:
                callback(reason)
            except Exception:  # the caller has other attempts to stop
                self.logger.exception("a stop callback failed")

    def close(self) -> None:
        """Close the connection of `db`. An error of that does not change the outcome."""
        if (db := self._db) is not None:
            self._db = None
            try:
                db.close()
            except Exception as fault:
                self.logger.warning("closing ctx.db failed: %s", fault)


@dataclass(frozen=True, slots=True)
class Lock:
    """A held lock. `token` rises with each holder; pass it on as a fencing token."""

    name: str
    token: int
    port: Port = field(repr=False)

    def extend(self, ttl: object = DEFAULT_LOCK_TTL) -> None:
        """Hold the lock for `ttl` from now; raises LockNotHeld if it was lost."""
        seconds = parse_duration(ttl, "ttl").total_seconds()
        if not self.port("extend_lock", {"name": self.name, "token": self.token, "ttl": seconds}):
            raise LockNotHeld(f"lock {self.name!r} was lost: its time ran out")


class Locking:
    """The context manager of `ctx.lock`: holds the lock while its block runs."""

    def __init__(self, *, name: str, seconds: float, port: Port) -> None:
        self._name, self._seconds, self._port = name, seconds, port
        self._token: int | None = None

    def __enter__(self) -> Lock:
        self._token = self._port("lock", {"name": self._name, "ttl": self._seconds})
        if self._token is None:
            raise LockNotHeld(f"lock {self._name!r} is already held")
        return Lock(name=self._name, token=self._token, port=self._port)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._port("unlock", {"name": self._name, "token": self._token})

    async def __aenter__(self) -> Lock:
        import asyncio

        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.__exit__, kind, error, trace)


class _PortHandler(logging.Handler):
    """Stores log lines with the run."""

    def __init__(self, port: Port) -> None:
        super().__init__()
        self.port = port

    def emit(self, record: logging.LogRecord) -> None:
        line = {"at": record.created, "level": record.levelname, "text": self.format(record)}
        self.port("log", line)


class _Redacting(logging.Filter):
    """Redacts lines before any logging handler sees them, the app's included."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context

    def filter(self, record: logging.LogRecord) -> bool:
        secrets = self.context.secrets
        record.__dict__.update(run_id=self.context.run_id, attempt=self.context.attempt)
        record.msg, record.args = shorten(record.getMessage(), LOGGED_LENGTH, secrets), None
        if record.exc_info:
            text = logging.Formatter().formatException(record.exc_info)
            record.exc_info, record.exc_text = None, shorten(text, LOGGED_LENGTH, secrets)
        return True


def _logger(context: Context) -> logging.Logger:
    # Not getLogger: its registry would hold the logger of every run for ever.
    logger = logging.Logger(f"rota.job.{context.job}", logging.DEBUG)
    logger.parent = logging.getLogger("rota.job")
    logger.addFilter(_Redacting(context))
    logger.addHandler(_PortHandler(context.port))
    return logger
