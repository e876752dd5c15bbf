"""The wiring: one object that has jobs, a store, and the loops that move runs along.

app = rota.Rota("sqlite:///rota.db")

@app.job(schedule="0 3 * * *")
def rollup(ctx: rota.Context) -> None: ...

app.run()
"""

from __future__ import annotations

import functools
import getpass
import inspect
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

from rota.config import Settings, load_settings
from rota.errors import Conflict, Invalid, LockNotHeld
from rota.executors.protocol import Executor, HearsTermination
from rota.executors.python import PythonExecutor
from rota.executors.registry import Registry
from rota.executors.signatures import signature_of
from rota.flow.control import Control
from rota.flow.enqueue import Enqueue, Options, find_job
from rota.flow.events import Events, Listener
from rota.flow.prune import Retention
from rota.flow.service import PARTS, Service, ServiceOptions
from rota.model.duration import format_duration, parse_duration, parse_instant
from rota.model.job import DEFAULT_QUEUE, Job
from rota.model.policies import DEFAULT_OVERLAP, PYTHON
from rota.model.retry import Retry
from rota.model.run import Enqueued, Run
from rota.model.schedule import Schedule
from rota.storage.protocol import Actor, Storage
from rota.storage.store import open_store
from rota.task import HeldLock, Task

log = logging.getLogger("rota")

P = ParamSpec("P")
R = TypeVar("R")


class Rota:
    """An application: its jobs, its store, and, once started, its scheduler and worker."""

    def __init__(
        self, database: str | None = None, *, storage: Storage | None = None, **settings: Any
    ) -> None:
        self.settings: Settings = load_settings({"database": database, **settings})
        self.events = Events()
        self.executors = Registry()
        self.python = PythonExecutor()
        self.executors.register("python", self.python)
        self._jobs: dict[str, Job] = {}
        self._schedules: dict[str, Schedule] = {}
        self._storage = storage
        self._saved: set[str] = set()
        self._guard = threading.RLock()
        self._service: Service | None = None

    # Defining

    def job(
        self,
        name: str | Callable[..., Any] | None = None,
        *,
        schedule: str | None = None,
        every: object = None,
        at: object = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        timeout: object = None,
        max_attempts: int | None = None,
        backoff: str | None = None,
        delay: object = None,
        max_delay: object = None,
        retry_jitter: object = None,
        isolation: str | None = None,
        concurrency_key: str | None = None,
        concurrency_limit: int = 1,
        description: str | None = None,
        **when: Any,
    ) -> Any:
        """Make a function a job; with `schedule`, `every` or `at` also a schedule of its name.

        Further options are those of a schedule: timezone, dst, overlap, catch_up and so on.
        """
        if callable(name):
            return self.job()(name)

        def define(function: Callable[P, R]) -> Task[P, R]:
            retry = _retry(max_attempts, backoff, delay, max_delay, retry_jitter)
            span = None if timeout is None else parse_duration(timeout, "timeout")
            made = Job(
                name=name or function.__name__,
                executor="python",
                source="code",
                origin=self.settings.origin,
                spec=self.python.spec_of(function),
                signature=signature_of(function),
                description=description or (function.__doc__ or "").strip().partition("\n")[0],
                queue=queue,
                priority=priority,
                timeout=span,
                retry=retry,
                isolation=isolation or _default_isolation(function, span),
                concurrency_key=concurrency_key,
                concurrency_limit=concurrency_limit,
            )
            self.add_job(made, function)
            timing = _timing(schedule, every, at)
            if timing is not None:
                when.setdefault("overlap", DEFAULT_OVERLAP[PYTHON])
                self.schedule(made.name, made.name, **timing, overlap_key=made.overlap_key, **when)
            elif when:
                raise Invalid(
                    f"job {made.name!r}: {', '.join(when)} belongs to a schedule; "
                    "add schedule=, every= or at="
                )
            return Task(self, made, function)

        return define

    def add_job(self, job: Job, function: Callable[..., Any] | None = None) -> None:
        """Register a definition; its executor may refuse it."""
        with self._guard:
            if job.name in self._jobs:
                raise Conflict(f"job {job.name!r} is defined twice; give one of them another name")
            if function is not None:
                self.python.register(job.name, function)
            self.executors.get(job.executor).check(job)
            self._jobs[job.name] = job

    def schedule(
        self,
        name: str,
        job: str,
        *,
        cron: str | None = None,
        every: object = None,
        at: object = None,
        **options: Any,
    ) -> Schedule:
        """A schedule of a job, saved when the app starts (at once if it runs)."""
        timing = _timing(cron, every, at)
        if timing is None:
            raise Invalid(f"schedule {name!r} needs cron=, every= or at=")
        kind, expr = _kind(**timing)
        options.setdefault("timezone", self.settings.timezone)
        if isinstance(options.get("retry"), Mapping):
            options["retry"] = Retry.from_dict(options["retry"])
        try:
            made = Schedule(name=name, job=job, kind=kind, expr=expr, **options)
        except TypeError as fault:
            raise Invalid(f"schedule {name!r}: {_unknown_option(fault)}") from None
        with self._guard:
            self._schedules[name] = made
            if self._service is not None:
                self._save()
        return made

    def executor(self, name: str, executor: Executor) -> None:
        """Register an executor in this process (others are found by entry point)."""
        self.executors.register(name, executor)

    def on(self, event: str) -> Callable[[Listener], Listener]:
        """Listen to `job.started`, `job.completed`, `job.failed` and `attempt.*`."""

        def listen(listener: Listener) -> Listener:
            self.events.on(event, listener)
            return listener

        return listen

    # Using

    @property
    def storage(self) -> Storage:
        """The store, opened and brought up to date on first use."""
        with self._guard:
            if self._storage is None:
                store = open_store(
                    self.settings.database,
                    schema=self.settings.schema,
                    pool_size=min(20, 6 + self.settings.slots // 4),
                )
                store.migrate()
                store.check_schema()
                self._storage = store
            return self._storage

    @property
    def control(self) -> Control:
        """What an operator may do; see `rota.flow.control`."""
        return self.control_as(Actor(by=_user(), via="python"))

    def control_as(self, actor: Actor) -> Control:
        self._save()
        return Control(
            self.storage,
            actor=actor,
            hearer_of=self._hearer_of,
            changed=self._changed,
            retention=self._retention(),
        )

    def enqueue(
        self,
        job: str,
        args: Mapping[str, Any] | None = None,
        *,
        connection: Any = None,
        notify: bool = True,
        **options: Any,
    ) -> Enqueued:
        """Enqueue any job by name, also one that only another process knows."""
        return self._enqueue(job, [args or {}], options, connection, notify)[0]

    def _enqueue(
        self,
        name: str,
        payloads: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
        connection: Any,
        notify: bool,
    ) -> list[Enqueued]:
        self._save()
        job = self._jobs.get(name) or find_job(self.storage, name)
        try:
            chosen = Options(**options)
        except TypeError as fault:
            raise Invalid(f"job {name!r}: {_unknown_option(fault)}") from None
        return self._enqueuer.many(job, payloads, chosen, connection=connection, notify=notify)

    @functools.cached_property
    def _enqueuer(self) -> Enqueue:
        return Enqueue(self.storage, enqueued=self._enqueued, created_by=_user())

    @contextmanager
    def lock(self, name: str, ttl: object = "30s") -> Iterator[HeldLock]:
        """Hold a lock across all processes; LockNotHeld if somebody else has it."""
        seconds = parse_duration(ttl, "ttl").total_seconds()
        owner = f"{socket.gethostname()}:{os.getpid()}"
        token = self.storage.acquire_lock(name, owner, seconds)
        if token is None:
            raise LockNotHeld(f"lock {name!r} is held by somebody else")
        try:
            yield HeldLock(self.storage, name, token)
        finally:
            self.storage.release_lock(name, token)

    def jobs(self) -> list[Job]:
        """The jobs this process knows."""
        return list(self._jobs.values())

    def runs(self, job: str, *, limit: int = 50) -> list[Run]:
        """The latest runs of a job, newest first."""
        return self.control.runs(job=job, limit=limit)

    # Living

    def load(self) -> None:
        """Save what was defined: jobs and schedules. `start` and the first enqueue do it too."""
        self._save()

    def reload(self) -> None:
        """Save again everything that was defined."""
        with self._guard:
            self._saved.clear()
        self._save()

    def start(
        self, only: Iterable[str] = PARTS, *, on_stuck: Callable[[], None] = lambda: None
    ) -> None:
        """Start scheduler and worker in threads; `stop` ends them."""
        with self._guard:
            if self._service is not None:
                raise Conflict("this app is running already")
            self._save()
            self._service = Service(
                self.storage,
                self._service_options(tuple(only)),
                jobs=self._jobs,
                executors=self.executors,
                events=self.events,
                hearer_of=self._hearer_of,
                on_stuck=on_stuck,
            )
            self._service.start()

    def stop(self, grace: object = ...) -> None:
        """Stop claiming, give handlers their grace, release the rest, close the store."""
        with self._guard:
            service, self._service = self._service, None
        span = self.settings.grace if grace is ... else _grace(grace)
        if service is not None:
            service.stop(None if span is None else span.total_seconds())
        self.close()

    def close(self) -> None:
        """Close the store and the executors."""
        self.executors.close()
        with self._guard:
            if self._storage is not None:
                self._storage.close()
                self._storage = None
                self._saved.clear()
                self.__dict__.pop("_enqueuer", None)

    def run(self, only: Iterable[str] = PARTS) -> None:
        """Start, and stop gracefully at SIGINT or SIGTERM; a second signal exits now.

        When half of the slots are stuck in threads that nothing can end, the process drains
        and executes itself anew.
        """
        stopping, stuck = threading.Event(), threading.Event()

        def renew() -> None:
            stuck.set()
            stopping.set()

        def ask(number: int, frame: object) -> None:
            if stopping.is_set():
                os._exit(130)
            stopping.set()

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self.start(only, on_stuck=renew)
            # A wait without a timeout would keep signal handlers from running on some platforms.
            while not stopping.wait(0.5 if sys.platform == "win32" else 60.0):
                pass
            log.info("stopping")
            self.stop()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if stuck.is_set():
            log.warning("starting anew: threads that ignore their timeout hold half of the slots")
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

    @property
    def health(self) -> dict[str, str | None]:
        """The last error of each loop, None where it works; empty while nothing runs."""
        return {} if self._service is None else self._service.health()

    # Wiring

    def _save(self) -> None:
        """Put definitions into the store, once; the same definition changes nothing there."""
        with self._guard:
            new = [job for name, job in self._jobs.items() if f"job {name}" not in self._saved]
            if new:
                self.storage.put_jobs(new)
            actor = Actor(by=_user(), via="code")
            for name, schedule in self._schedules.items():
                if f"schedule {name}" not in self._saved:
                    find_job(self.storage, schedule.job).signature.check(
                        schedule.job, schedule.args
                    )
                    self.storage.put_schedule(schedule, actor)
            self._saved |= {f"job {job.name}" for job in new}
            self._saved |= {f"schedule {name}" for name in self._schedules}

    @contextmanager
    def _using(self, storage: Storage) -> Iterator[None]:
        """Work on another store for a while: what `rota.testing` does."""
        with self._guard:
            before = (self._storage, self._saved, self.__dict__.pop("_enqueuer", None))
            self._storage, self._saved = storage, set()
        try:
            yield
        finally:
            with self._guard:
                self._storage, self._saved, _ = before
                self.__dict__.pop("_enqueuer", None)

    def _hearer_of(self, name: str) -> HearsTermination | None:
        """The executor of a job, if it adds to the end of its runs; Unknown if not installed."""
        job = self._jobs.get(name) or self.storage.jobs_named([name]).get(name)
        if job is None or self.executors.is_builtin(job.executor):
            return None
        executor = self.executors.get(job.executor)
        return executor if isinstance(executor, HearsTermination) else None

    def _retention(self) -> Retention:
        return Retention(ages=self.settings.retention, keep_last=self.settings.keep_last)

    def _service_options(self, parts: tuple[str, ...]) -> ServiceOptions:
        settings = self.settings
        if not settings.scheduler.enabled:
            parts = tuple(part for part in parts if part != "scheduler")
        return ServiceOptions(
            parts=parts,
            slots=settings.slots,
            queues=settings.queues,
            lease=settings.lease,
            max_lost=settings.max_lost,
            origin=settings.origin,
            target=settings.database,
            retention=self._retention(),
            pace=settings.scheduler.pace,
            max_fires_per_tick=settings.scheduler.max_fires_per_tick,
        )

    def _enqueued(self) -> None:
        """There is work: the worker here looks at once, others by the wake channel."""
        if self._service is not None:
            self._service.wake_workers()
        else:
            self.storage.notify()

    def _changed(self) -> None:
        if self._service is not None:
            self._service.wake_all()
        self.storage.notify()


def _timing(cron: str | None, every: object, at: object) -> dict[str, Any] | None:
    given = {"cron": cron, "every": every, "at": at}
    told = {name: value for name, value in given.items() if value is not None}
    if len(told) > 1:
        raise Invalid(f"give one of schedule, every and at, not {' and '.join(told)}")
    return told or None


def _kind(cron: str | None = None, every: object = None, at: object = None) -> tuple[str, str]:
    if cron is not None:
        return "cron", cron
    if every is not None:
        return "every", format_duration(parse_duration(every, "every"))
    return "once", parse_instant(at, "at").isoformat()


def _retry(
    max_attempts: int | None, backoff: str | None, delay: object, max_delay: object, jitter: object
) -> Retry:
    told = {
        "max_attempts": max_attempts, "backoff": backoff, "delay": delay,
        "max_delay": max_delay, "jitter": jitter,
    }  # fmt: skip
    return Retry(**{name: value for name, value in told.items() if value is not None})  # type: ignore[arg-type]


def _default_isolation(function: Callable[..., Any], timeout: timedelta | None) -> str:
    """A sync handler with a timeout runs in a child: nothing can end a thread."""
    is_async = inspect.iscoroutinefunction(function)
    return "process" if timeout is not None and not is_async else "thread"


def _grace(value: object) -> timedelta | None:
    return None if value in (None, "none") else parse_duration(value, "grace", zero=True)


def _unknown_option(fault: TypeError) -> str:
    return str(fault).partition("() ")[2] or str(fault)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
