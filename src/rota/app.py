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
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, overload

from rota import config
from rota.config import Settings, Switch, load_settings
from rota.errors import Conflict, Invalid, LockNotHeld, Unavailable
from rota.executors.loading import in_script_of_child
from rota.executors.protocol import Executor, TerminationHook
from rota.executors.python import PythonExecutor, Texts
from rota.executors.registry import Registry, off_message
from rota.executors.scripts import Script, Scripts
from rota.executors.signatures import handler_of
from rota.executors.targets import Targets
from rota.flow.answer import MakePlan
from rota.flow.control import Control
from rota.flow.counters import Counters
from rota.flow.enqueue import NO_OPTIONS, Enqueue, Options, encode_args, find_job
from rota.flow.events import Events, Listener, Sources, ended_event
from rota.flow.home import check_home
from rota.flow.service import PARTS, WEB, Service, ServiceOptions
from rota.flow.worker import Worker
from rota.jobs_folder import JobsFolder
from rota.life import LocalSocket, Web, live, make_web, open_local_socket, start_anew
from rota.model.duration import parse_duration
from rota.model.job import DEFAULT_QUEUE, Job
from rota.model.limits import check_key
from rota.model.options import (
    SCHEDULE_OPTIONS,
    make_schedule,
    named,
    refuse_unknown,
    retry_of,
    retry_policy_of,
    split_retry,
    timing_of,
    without_effect,
)
from rota.model.policies import DEFAULT_OVERLAP, DEFAULT_RETRY, PYTHON
from rota.model.redact import secret_values
from rota.model.retention import Retention
from rota.model.run import Enqueued, Run
from rota.model.schedule import Schedule
from rota.model.secrets import know
from rota.storage import operations
from rota.storage.operations.audit import Actor
from rota.storage.store import Store, open_when_free
from rota.task import ENQUEUE_OPTIONS, ContextTask, HeldLock, JobDecorator, P, R, Task, _Nothing

if TYPE_CHECKING:
    from typing import Unpack

    from rota.executors.context import Context
    from rota.option_types import Duration, EnqueueOptions, Instant, JobOptions, ScheduleOptions

log = logging.getLogger("rota")

# One for each handler and some for the loops, so that renewals never wait for handlers.
MOST_CONNECTIONS = 100
OWN_CONNECTIONS = 16  # of the loops, and of the HTTP API
STOP_SECONDS = 10.0  # how long a stop waits for whoever saves something at that moment


class Rota:
    """An application: its jobs, its store, and, once started, its scheduler and worker."""

    def __init__(
        self, database: str | None = None, *, storage: Store | None = None, **settings: Any
    ) -> None:
        self.settings: Settings = load_settings({"database": database, **settings})
        # Where the scheduler is switched while it runs; None where the program says it itself.
        self.settings_file = None if "scheduler" in settings else Path(config.FILE).absolute()
        self.events = Events()
        self.counters = Counters()
        self.executors = Registry(
            {
                "sql": self._sql_executor,
                "shell": self._shell_executor,
                "http": self._http_executor,
            }
        )
        self._functions: dict[str, Callable[..., Any]] = {}
        self._given: dict[str, Executor] = {}
        self._texts: Texts = {}
        self._scripts = Scripts()
        self._equip()
        self._jobs: dict[str, Job] = {}
        self.events.sources = Sources(
            self._jobs,
            lambda number: self.storage.read(operations.schedule_words, [number]).get(number),
        )
        self._schedules: dict[str, Schedule] = {}
        self._tries: dict[str, Mapping[str, Any]] = {}
        self._storage = storage
        self._saved: set[str] = set()
        self._filed: set[str] = set()  # jobs that the folder or a statement registers, not `_save`
        self._guard = threading.RLock()
        self._service: Service | None = None
        self._folder: JobsFolder | None = None
        self._local_socket: LocalSocket | None = None
        self._web: Web | None = None

    # Defining

    @overload
    def job(self, name: Callable[Concatenate[_Nothing, ...], R], /) -> Task[..., R]: ...
    @overload
    def job(self, name: Callable[Concatenate[Context, P], R], /) -> ContextTask[P, R]: ...
    @overload
    def job(self, name: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def job(self, name: str | None = None, **options: Unpack[JobOptions]) -> JobDecorator: ...

    def job(
        self,
        name: str | Callable[..., Any] | None = None,
        *,
        schedule: str | Literal[False] | None = None,
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
        if name is not None and not isinstance(name, str):
            raise Invalid(f"job name {name!r} must be text, and a job a function")

        def define(function: Callable[..., Any]) -> Task[..., Any]:
            if not hasattr(function, "__qualname__"):  # a partial, or an object that can be called
                raise Invalid(f"{function!r} has no name; define a function that calls it")
            called = name or function.__name__
            handler = handler_of(function)
            with named(f"job {called!r}"):
                tries = {
                    "max_attempts": max_attempts, "backoff": backoff, "delay": delay,
                    "max_delay": max_delay, "retry_jitter": retry_jitter,
                }  # fmt: skip
                retry = retry_of(tries, DEFAULT_RETRY[PYTHON])
                span = None if timeout is None else parse_duration(timeout, "timeout")
                timing = timing_of(schedule, every, at)
                refuse_unknown(when, SCHEDULE_OPTIONS, _JOB_OPTIONS)
                if timing is None and when:
                    raise Invalid(
                        f"{', '.join(when)} belongs to a schedule; add schedule=, every= or at="
                    )
            made = Job(
                name=called,
                executor="python",
                source="code",
                origin=self.settings.origin,
                spec=self.python.spec_of(function),
                signature=handler.signature,
                description=description or (function.__doc__ or "").strip().partition("\n")[0],
                queue=queue,
                priority=priority,
                timeout=span,
                retry=retry,
                isolation=isolation or _default_isolation(function, span),
                concurrency_key=concurrency_key,
                concurrency_limit=concurrency_limit,
            )
            # Everything is checked before anything is kept.
            own = {"overlap": DEFAULT_OVERLAP[PYTHON], "overlap_key": made.overlap_key, **when}
            planned = timing and self._make_schedule(called, made, timing, own)
            self.add_job(made, function)
            if planned:
                try:
                    self._add_schedule(planned)
                except BaseException:  # of the store of a running app: it may be tried again
                    self._jobs.pop(called, None)
                    self._saved.discard(f"job {called}")
                    raise
            kind = ContextTask if handler.context_first else Task
            return kind(self, made, function, handler.positional)

        return define

    def add_job(self, job: Job, function: Callable[..., Any] | None = None) -> None:
        """Register a definition; its executor may refuse it."""
        with self._guard:
            if job.name in self._jobs:
                raise Conflict(f"job {job.name!r} is defined twice; give one of them another name")
            if function is not None:
                self.python.register(job.name, function)
            self.executors.get(job.executor).check(job)
            if function is not None:
                self._functions[job.name] = function
            self._jobs[job.name] = job

    def schedule(
        self,
        name: str,
        job: str,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        at: Instant | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """A schedule of a job, saved when the app starts (at once if it runs)."""
        with named(f"schedule {name!r}"):
            timing = timing_of(cron, every, at)
            if timing is None:
                raise Invalid("say when: add cron=, every= or at=")
        made = self._make_schedule(name, self._jobs.get(job, job), timing, options)
        self._add_schedule(made, split_retry(options)[1])
        return made

    def _make_schedule(
        self, name: str, job: Job | str, timing: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Schedule:
        """Checked as far as this process can: another one may have the job."""
        told = {"timezone": self.settings.timezone, **options}
        if isinstance(job, Job):
            made = make_schedule(name, job.name, timing, told, job.retry)
            with named(f"schedule {name!r}"):
                encode_args(job, made.args)
        else:
            made = make_schedule(name, job, timing, told)
        for idle in without_effect(made):
            log.warning("schedule %s: %s", name, idle)
        return made

    def _add_schedule(self, made: Schedule, retry: Mapping[str, Any] | None = None) -> None:
        """`retry` are parts of a policy whose others are those of the job, as it is when saved."""
        with self._guard:
            before = dict(self._schedules), dict(self._tries)
            self._schedules[made.name] = made
            self._tries[made.name] = retry or {}
            self._saved.discard(f"schedule {made.name}")
            if self._service is None:
                return
            try:
                self._save()
            except BaseException:
                self._schedules, self._tries = before
                # Nobody knows what the store has: the next save puts the one before again.
                self._saved.discard(f"schedule {made.name}")
                raise
        self._changed()

    # Jobs of files: what a folder asks of its app

    def serve_folder(self) -> JobsFolder:
        """Serve the folder of jobs too; what `rota up` does, and `jobs_dir` where it is set."""
        if self._folder is None:
            # By name: the room of jobs.d is a surface above this module, loaded when it is used.
            self._folder = import_module("rota.jobsd.folder").Folder(self)
        return self._folder

    def serve_web(self) -> Web:
        """Serve the HTTP API too; what the part `web` of `rota up` does."""
        if self._web is None:
            self._web = make_web(self)
        return self._web

    def forget_web(self) -> None:
        """Do not serve it after all: what it needs is not installed."""
        self._web = None

    def set_file_job(self, job: Job, source: bytes = b"", scripts: Sequence[Script] = ()) -> None:
        """Add or replace a job of a file in this process, with the texts that its runs have:
        `source` of a Python one, `scripts` of one of SQL."""
        with self._guard:
            self.check_file_job(job.name)
            if source:
                self.python.keep(job, source)
            if scripts:
                self._scripts.keep(job, scripts)
            self._jobs[job.name] = job
            self._filed.add(job.name)

    def check_file_job(self, name: str) -> None:
        """Refuse a name that a job of the program, or of a statement, has in this process."""
        own = self._jobs.get(name)
        if own is not None and own.source != "file":
            who = "a statement made" if own.source == "api" else "the app has"
            raise Conflict(f"{who} a job {name!r} as well; rename one of them")

    def file_scripts(self, name: str) -> tuple[Job | None, Sequence[Script]]:
        """The job of a file as this process has it, with the texts that its runs have."""
        with self._guard:
            own = self._jobs.get(name)
            if own is None or own.source != "file":
                return None, ()
            return own, self._scripts.of(own)

    def drop_file_job(self, name: str) -> None:
        """Forget a job of a file in this process, if there is one of this name; what runs ends."""
        with self._guard:
            own = self._jobs.get(name)
            if own is not None and own.source == "file":
                self._filed.discard(name)
                del self._jobs[name]
                self.python.forget(name)
                self._scripts.forget(name)

    def tell_jobs(self) -> str | None:
        """Say in the store which jobs this worker has; its id, None if no worker runs here."""
        worker = self._worker
        if worker is None:
            return None
        worker.beat()
        return worker.worker_id

    def woken(self) -> None:
        """Definitions have changed: the loops here and elsewhere look at once."""
        self._changed()

    def executor(self, name: str, executor: Executor) -> None:
        """Register an executor in this process (others are found by entry point)."""
        self._given[name] = executor
        self.executors.register(name, executor)

    def on(self, event: str) -> Callable[[Listener], Listener]:
        """Listen to `job.started`, `job.completed`, `job.failed` and `attempt.*`."""

        def listen(listener: Listener) -> Listener:
            self.events.on(event, listener)
            return listener

        return listen

    # Using

    @property
    def storage(self) -> Store:
        """The store, opened and brought up to date on first use."""
        # Without the guard: whoever asks may have the store's turn to write, and whoever has the
        # guard may wait for that.
        if (opened := self._storage) is not None:
            return opened
        with self._guard:
            if self._storage is None:
                store = open_when_free(
                    self.settings.database,
                    schema=self.settings.schema,
                    pool_size=min(MOST_CONNECTIONS, self.settings.slots + OWN_CONNECTIONS),
                )
                try:
                    store.migrate()
                    store.check_schema()
                except BaseException:
                    store.close()
                    raise
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
            termination_hook_of=self._termination_hook_of,
            changed=self._changed,
            retention=self._retention(),
            ended=self._tell_cancelled,
        )

    def _tell_cancelled(self, run: Run) -> None:
        self.counters.cancelled(run.job)
        if self.events.wants("job.cancelled"):
            self.events.emit("job.cancelled", ended_event(run), run.schedule_id)

    def enqueue(
        self,
        job: str,
        args: Mapping[str, Any] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Enqueued:
        """Enqueue any job by name, also one that only another process knows."""
        return self._enqueue_with(job, [args or {}], options)[0]

    def _enqueue_with(
        self, name: str, payloads: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> list[Enqueued]:
        """`connection` and `notify` are among the options here, and None is as if not given."""
        of_run = {option: value for option, value in options.items() if value is not None}
        connection, notify = of_run.pop("connection", None), of_run.pop("notify", True)
        return self._enqueue(name, payloads, of_run, connection, notify)

    def _enqueue(
        self,
        name: str,
        payloads: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
        connection: Any,
        notify: bool,
    ) -> list[Enqueued]:
        if in_script_of_child():
            raise Conflict(
                f"job {name!r} is enqueued by the top level of a script that a child process runs "
                "again to find its handler; put it under `if __name__ == '__main__':`"
            )
        try:
            self._save()
        except Unavailable as fault:
            if connection is None:
                raise
            raise Unavailable(
                "the jobs of this app are not saved yet, and your open transaction may be what "
                f"keeps the store locked; call app.load() before you begin it ({fault})"
            ) from fault
        job = self._jobs.get(name) or find_job(self.storage, name)
        chosen = NO_OPTIONS
        if options:
            with named(f"job {name!r}"):
                refuse_unknown(options, ENQUEUE_OPTIONS)
                chosen = Options(**options)
        made = self._enqueuer.many(job, payloads, chosen, connection=connection, notify=notify)
        if chosen.delay is not None or chosen.at is not None:
            self._wake_all()  # the loop that promotes sleeps until what it knows is due
        return made

    @functools.cached_property
    def _enqueuer(self) -> Enqueue:
        return Enqueue(self.storage, enqueued=self._enqueued, created_by=_user())

    @contextmanager
    def lock(self, name: str, ttl: object = "30s") -> Iterator[HeldLock]:
        """Hold a lock across all processes; LockNotHeld if somebody else has it."""
        check_key(name, "lock")
        seconds = parse_duration(ttl, "ttl").total_seconds()
        owner = f"{socket.gethostname()}:{os.getpid()}"
        token = self.storage.write(operations.acquire_lock, name, owner, seconds)
        if token is None:
            raise LockNotHeld(f"lock {name!r} is already held")
        try:
            yield HeldLock(self.storage, name, token)
        finally:
            self.storage.write(operations.release_lock, name, token)

    def jobs(self) -> list[Job]:
        """The jobs this process knows."""
        return list(self._jobs.values())

    def runs(self, job: str, *, limit: int = 50) -> list[Run]:
        """The latest runs of a job, newest first."""
        return self.control.runs(job=job, limit=limit)

    # Living

    def load(self, *, patient: bool = True) -> None:
        """Save what was defined: jobs and schedules, also those of files. `start` does it too, and
        is not `patient`: a Python file whose import is slow keeps nobody, and follows later."""
        self._load(patient=patient)

    def _load(self, *, again: bool = False, patient: bool = True) -> None:
        self._save()
        if (folder := self._files()) is not None:
            folder.load(again=again, patient=patient)

    def _files(self) -> JobsFolder | None:
        """The folder of jobs, if this app serves one."""
        asked = self._folder is None and self.settings.jobs_dir is not None
        return self.serve_folder() if asked else self._folder

    def reload(self) -> None:
        """Save again everything that was defined, and look at the files anew."""
        with self._guard:
            self._saved.clear()
        self._load(again=True)

    def start(
        self, only: Iterable[str] = PARTS, *, on_stuck: Callable[[], None] = lambda: None
    ) -> None:
        """Start scheduler and worker in threads, and with the part `web` the HTTP API; `stop` ends
        them."""
        only = tuple(only)
        if WEB in only:
            self.serve_web().prepare()  # says what is wrong with its address before anything runs
        only = tuple(part for part in only if part != WEB)
        know(secret_values(os.environ))  # once more: the app may have set some of it
        if self._service is None:  # before the guard: to look at files may take its time
            if "worker" in only and (folder := self._files()) is not None:
                folder.prepare()
            self.load(patient=False)
        with self._guard:
            if self._service is not None:
                raise Conflict("this app is running already")
            moved = check_home(self.storage, self.settings.cluster)
            if moved is not None:
                log.error("all schedules are paused: %s", moved)
            self._service = Service(
                self.storage,
                self._service_options(only),
                jobs=self._jobs,
                executors=self.executors,
                events=self.events,
                termination_hook_of=self._termination_hook_of,
                foreign=self._filed,
                on_stuck=on_stuck,
                counters=self.counters,
                planner=self._planner,
            )
            self._service.start()
        self._local_socket = open_local_socket(self)
        if self._folder is not None and "worker" in only:
            self._folder.start()
        if self._web is not None:
            self._web.start()

    def _planner(self) -> MakePlan:
        """By name: the room of statements is a surface above this module."""
        plan: MakePlan = import_module("rota.sql.control_rows").ControlRows(self).plan
        return plan

    def stop(self, grace: object = ...) -> None:
        """Stop claiming, give handlers their grace, release the rest, close the store."""
        if self._web is not None:
            self._web.drain()
        if self._folder is not None:
            self._folder.stop()
        with self._guarded_for(STOP_SECONDS):
            service, self._service = self._service, None
        span = self.settings.grace if grace is ... else _grace(grace)
        if service is not None:
            service.stop(None if span is None else span.total_seconds())
        self.close()

    def close(self) -> None:
        """Close the store and the executors; the next use opens them again."""
        web, self._web = self._web, None
        if web is not None:
            web.stop()
        local_socket, self._local_socket = self._local_socket, None
        if local_socket is not None:  # before the guard: what it does for others may need it
            local_socket.stop()
        self.executors.close()
        self._equip()
        with self._guarded_for(STOP_SECONDS):
            opened, self._storage = self._storage, None
            self._saved.clear()
            self.__dict__.pop("_enqueuer", None)
        if opened is not None:
            opened.close()

    @contextmanager
    def _guarded_for(self, seconds: float) -> Iterator[None]:
        """Whoever has the guard may wait for a store that neither answers nor fails: a stop waits
        for him for a while, and then does without it."""
        held = self._guard.acquire(timeout=seconds)
        try:
            yield
        finally:
            if held:
                self._guard.release()

    def run(
        self, only: Iterable[str] = PARTS, *, stopping: Callable[[], None] = lambda: None
    ) -> None:
        """Start, and stop gracefully at SIGINT or SIGTERM; a second signal exits now. `stopping`
        is told when the stop begins.

        When half of the slots are stuck in threads that nothing can end, the process drains
        and executes itself anew.
        """
        # In a child the script is only searched for a handler.
        if not in_script_of_child() and live(self, only, stopping):
            start_anew()

    @property
    def health(self) -> dict[str, str | None]:
        """The last error of each loop, None where it works; empty while nothing runs."""
        own = {} if self._folder is None else self._folder.status()
        own |= {} if self._local_socket is None else {"door": self._local_socket.error}
        own |= {} if self._web is None else {"web": self._web.error}
        service = self._service
        return {} if service is None else {**service.health(), **own}

    def problems(self) -> list[str]:
        """What is wrong with the files of jobs, in a line each."""
        return [] if self._folder is None else self._folder.faults()

    @property
    def _worker(self) -> Worker | None:
        service = self._service  # read once: a stop in another thread takes it away
        return None if service is None else service.worker

    @property
    def worker_id(self) -> str | None:
        """The worker of this process, as `rota workers` names it; None if none runs here."""
        worker = self._worker
        return None if worker is None else worker.worker_id

    def under_way(self) -> list[str]:
        """The jobs of the runs that this process works on now."""
        worker = self._worker
        return [] if worker is None else [one.run.job for one in worker.executions()]

    # Wiring

    def _equip(self) -> None:
        """Executors of this process. A closed one does not run again, so each life has its own."""
        self.python = PythonExecutor(texts=self._texts)
        for name, function in self._functions.items():
            self.python.register(name, function)
        for name, executor in {"python": self.python, **self._given}.items():
            self.executors.register(name, executor)

    def _sql_executor(self) -> Executor:
        from rota.executors.sql import SqlExecutor

        return SqlExecutor(self._scripts)

    def _shell_executor(self) -> Executor:
        if not self.settings.executors.shell:
            raise Invalid(off_message("shell"))
        from rota.executors.shell import ShellExecutor

        return ShellExecutor()

    def _http_executor(self) -> Executor:
        if not self.settings.executors.http:
            raise Invalid(off_message("http"))
        from rota.executors.http import HttpExecutor

        return HttpExecutor(allow=self.settings.executors.http_allow)

    def _save(self) -> None:
        """Put definitions into the store, once; the same definition changes nothing there."""
        if len(self._saved) == len(self._jobs) - len(self._filed) + len(self._schedules):
            return
        with self._guard:
            new = [
                job
                for name, job in list(self._jobs.items())  # `Learn` adds its own meanwhile
                if name not in self._filed and f"job {name}" not in self._saved
            ]
            if new:
                self.storage.write(operations.put_jobs, new)
                self._saved |= {f"job {job.name}" for job in new}
            self._save_schedules()

    def _save_schedules(self) -> None:
        new = [one for one in self._schedules.values() if f"schedule {one.name}" not in self._saved]
        actor = Actor(by=_user(), via="code")
        try:
            for schedule in new:
                with named(f"schedule {schedule.name!r}"):
                    job = find_job(self.storage, schedule.job)
                    encode_args(job, schedule.args)
                    if tries := self._tries.get(schedule.name):
                        schedule = replace(schedule, retry=retry_policy_of(tries, job.retry))
                self.storage.write(operations.register_schedule, schedule, actor)
                self._saved.add(f"schedule {schedule.name}")
        finally:
            if new:  # who fires may be another process, and asleep
                self.storage.notify()

    @contextmanager
    def _using(self, storage: Store) -> Iterator[None]:
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

    def _termination_hook_of(self, name: str) -> TerminationHook | None:
        """The executor of a job, if it adds to the end of its runs; Unknown if not installed."""
        job = self._jobs.get(name) or self.storage.read(operations.jobs_named, [name]).get(name)
        if job is None or self.executors.is_builtin(job.executor):
            return None
        executor = self.executors.get(job.executor)
        return executor if isinstance(executor, TerminationHook) else None

    def _retention(self) -> Retention:
        return Retention(ages=self.settings.retention, keep_last=self.settings.keep_last)

    @property
    def targets(self) -> Targets:
        """The databases that jobs work on."""
        settings = self.settings
        return Targets(
            store=settings.database, named=settings.targets, default=settings.default_target
        )

    def _service_options(self, parts: tuple[str, ...]) -> ServiceOptions:
        settings = self.settings
        return ServiceOptions(
            parts=parts,
            slots=settings.slots,
            queues=settings.queues,
            lease=settings.lease,
            max_lost=settings.max_lost,
            origin=settings.origin if self._folder is None else settings.file_origin,
            target=self.targets,
            retention=self._retention(),
            enabled=Switch(settings.scheduler.enabled, self.settings_file),
            pace=settings.scheduler.pace,
            max_fires_per_tick=settings.scheduler.max_fires_per_tick,
            start_delay=settings.scheduler.start_delay,
        )

    # `_service` is read once: a stop in another thread takes it away.

    def _enqueued(self) -> None:
        if (service := self._service) is not None:
            service.wake_worker()

    def _wake_all(self) -> None:
        if (service := self._service) is not None:
            service.wake_all()

    def _changed(self) -> None:
        self._wake_all()
        self.storage.notify()


def _default_isolation(function: Callable[..., Any], timeout: timedelta | None) -> str:
    """A sync handler with a timeout runs in a child: nothing can end a thread."""
    is_async = inspect.iscoroutinefunction(function)
    return "process" if timeout is not None and not is_async else "thread"


def _grace(value: object) -> timedelta | None:
    return None if value in (None, "none") else parse_duration(value, "grace", zero=True)


_JOB_OPTIONS = frozenset(inspect.signature(Rota.job).parameters) - {"self", "name", "when"}


@functools.cache
def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
