"""Enqueue runs of a job: check the arguments, choose the id, insert.

The id is made here, before the insert, so that an insert whose answer was lost can be sent again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from rota import tracing
from rota.errors import Invalid, Unavailable, Unknown
from rota.model.duration import parse_duration, parse_instant
from rota.model.job import Job
from rota.model.limits import (
    BULK_RUNS,
    CONCURRENCY,
    KEY_LENGTH,
    PRIORITY,
    check_key,
    check_name,
    check_payload,
    check_payload_size,
    check_whole,
)
from rota.model.redact import shorten
from rota.model.retry import MAX_ATTEMPTS
from rota.model.run import BulkRuns, Enqueued, NewRun
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.store import AnyStore, Store

_encode = msgspec.json.Encoder().encode

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an enqueue may say beside the arguments; everything has the job's own default."""

    delay: object = None
    at: object = None
    key: str | None = None
    key_ttl: object = None
    priority: int | None = None
    queue: str | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    max_attempts: int | None = None
    timeout: object = None
    correlation_id: str | None = None

    def __post_init__(self) -> None:
        if self.delay is not None and self.at is not None:
            raise Invalid("give delay or at, not both")


NO_OPTIONS = Options()


class Enqueue:
    """`enqueued` is told when runs were made, so that a worker in this process wakes at once; the
    storage wakes those of the others."""

    def __init__(
        self, store: AnyStore, *, enqueued: Callable[[], None], created_by: str | None = None
    ) -> None:
        self.store, self.enqueued, self.created_by = store, enqueued, created_by
        self._queues: set[str] = set()
        self._plain: dict[str, tuple[Job, NewRun]] = {}  # of the last definition of each job

    def one(
        self,
        job: Job,
        args: Mapping[str, Any],
        options: Options,
        *,
        connection: Any = None,
        notify: bool = True,
    ) -> Enqueued:
        return self.many(job, [args], options, connection=connection, notify=notify)[0]

    def many(
        self,
        job: Job,
        payloads: Sequence[Mapping[str, Any]],
        options: Options,
        *,
        connection: Any = None,
        notify: bool = True,
    ) -> list[Enqueued]:
        """All or none, in one transaction."""
        check_whole(len(payloads), "number of runs in one call", 0, BULK_RUNS)
        if options.key is not None and len(payloads) > 1:
            raise Invalid(f"job {job.name!r}: a key with more than one payload names one run only")
        template = self._template(job, options)
        if not payloads:
            return []
        args = [encode_args(job, args) for args in payloads]
        if tracing.tracer() is None:
            return self._make(template, args, connection, notify)
        with tracing.enqueueing(job.name, template.queue, len(args)) as trace:
            if trace is not None:
                template = replace(template, trace=trace)
            return self._make(template, args, connection, notify)

    def _make(
        self, template: NewRun, args: Sequence[str], connection: Any, notify: bool
    ) -> list[Enqueued]:
        ids = new_run_ids(len(args))
        new_runs: Sequence[NewRun]
        if template.key is None:
            new_runs = BulkRuns(template, ids, args)
        else:
            new_runs = [replace(template, id=ids[0], args=args[0])]
        if template.queue not in self._queues and connection is None:
            self.store.write(operations.ensure_queues, [template.queue])
            self._queues.add(template.queue)
        if connection is not None:
            assert isinstance(self.store, Store), "not within a transaction"
            return self.store.enqueue_on(connection, new_runs, notify=notify)
        answers = self._insert(new_runs, notify)
        if notify:
            self.enqueued()
        return answers

    def triggered(
        self,
        job: Job,
        args: Mapping[str, Any],
        *,
        overlap_key: str | None,
        schedule: Schedule | None = None,
    ) -> Enqueued:
        """A run that an operator asked for. It stands for no occurrence, and takes its turn in
        the overlap line like one that does."""
        run = replace(
            self._template(job, _own_options(schedule)),
            id=new_run_ids(1)[0],
            args=encode_args(job, args),
            overlap_key=overlap_key,
            schedule_id=None if schedule is None else schedule.id,
            backoff=_own_backoff(schedule),
        )
        self.store.write(operations.ensure_queues, [run.queue])
        with tracing.enqueueing(job.name, run.queue, 1) as trace:
            answer = self._insert([run if trace is None else replace(run, trace=trace)])[0]
        self.enqueued()
        return answer

    def _insert(self, new_runs: Sequence[NewRun], notify: bool = True) -> list[Enqueued]:
        try:
            return self.store.write(operations.enqueue, new_runs, notify=notify)
        except Unavailable as fault:
            if not fault.maybe_committed:
                raise
        # The commit got no answer. The ids are ours: the rows tell, and if they are not there
        # the same insert can be sent once more.
        try:
            return self.store.write(operations.enqueue, new_runs, notify=notify)
        except Unavailable as fault:
            fault.maybe_committed = True  # as far as anybody knows, by the first one
            raise

    def _template(self, job: Job, options: Options) -> NewRun:
        """What all runs of one call share; made once for calls without options."""
        if options is not NO_OPTIONS:
            return self._make_template(job, options)
        known, template = self._plain.get(job.name, (None, None))
        if known is not job or template is None:
            template = self._make_template(job, options)
            self._plain[job.name] = (job, template)
        return template

    def _make_template(self, job: Job, options: Options) -> NewRun:
        what = f"job {job.name!r}"
        priority = _chosen(options.priority, job.priority)
        limit = _chosen(options.concurrency_limit, job.concurrency_limit)
        attempts = _chosen(options.max_attempts, job.retry.max_attempts)
        return NewRun(
            id="",
            job=job.name,
            queue=check_name(_chosen(options.queue, job.queue), f"{what}: queue"),
            args="",
            priority=check_whole(priority, f"{what}: priority", -PRIORITY, PRIORITY),
            delay=_duration(options.delay, f"{what}: delay", zero=True),
            due_at=None if options.at is None else parse_instant(options.at, f"{what}: at"),
            max_attempts=check_whole(attempts, f"{what}: max_attempts", 1, MAX_ATTEMPTS),
            timeout=_duration(options.timeout, f"{what}: timeout"),
            key=_key(options.key, f"{what}: key"),
            key_ttl=_duration(options.key_ttl, f"{what}: key_ttl"),
            concurrency_key=_key(
                _chosen(options.concurrency_key, job.concurrency_key), f"{what}: concurrency_key"
            ),
            concurrency_limit=check_whole(limit, f"{what}: concurrency_limit", 1, CONCURRENCY),
            created_by=self.created_by,
            correlation_id=_shown_key(options.correlation_id, f"{what}: correlation_id"),
        )


def encode_args(job: Job, args: Mapping[str, Any]) -> str:
    """The payload as JSON text, after every check that can be made before it is stored."""
    if not args and not job.signature.parameters:
        return "{}"
    try:
        builtin = msgspec.to_builtins(dict(args))
    except RecursionError:
        builtin = args  # deeper than anything allowed: the check below says so
    except (TypeError, ValueError) as fault:
        raise Invalid(f"job {job.name!r}: args are not JSON: {fault}") from None
    check_payload(builtin, f"job {job.name!r}: args")
    job.signature.check(job.name, builtin)
    text = _encode(builtin)
    check_payload_size(len(text), f"job {job.name!r}: args")
    return text.decode()


def new_run_ids(count: int) -> list[str]:
    """Random ids (UUID 7) whose first bits are the time, so that new rows lie together in the
    index. Written as text by hand: a bulk enqueue makes thousands. They rise, so that each goes to
    the end of the index: PostgreSQL then fills its pages rather than split them in the middle."""
    stamp = f"{int(time.time() * 1000):012x}"
    begin = f"{stamp[:8]}-{stamp[8:]}-7"
    digits = os.urandom(10 * count).hex()
    ids = [
        f"{begin}{digits[at : at + 3]}-{_VARIANT[digits[at + 3]]}{digits[at + 4 : at + 7]}"
        f"-{digits[at + 7 : at + 19]}"
        for at in range(0, 20 * count, 20)
    ]
    ids.sort()
    return ids


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def find_job(store: AnyStore, name: str) -> Job:
    """A job by name, also one that only another process knows."""
    check_name(name, "job name")
    found = store.read(operations.jobs_named, [name]).get(name)
    if found is None:
        raise Unknown(f"job {name!r} does not exist; `rota jobs` lists them")
    return found


def _own_options(schedule: Schedule | None) -> Options:
    """A schedule's own priority and attempts; the job's where it says nothing."""
    if schedule is None:
        return Options()
    attempts = None if schedule.retry is None else schedule.retry.max_attempts
    return Options(priority=schedule.priority, max_attempts=attempts)


def _own_backoff(schedule: Schedule | None) -> str | None:
    if schedule is None or schedule.retry is None:
        return None
    return _encode(schedule.retry.to_dict()).decode()


def _duration(value: object, field: str, *, zero: bool = False) -> timedelta | None:
    return None if value is None else parse_duration(value, field, zero=zero)


def _key(value: str | None, field: str) -> str | None:
    return None if value is None else check_key(value, field)


def _shown_key(value: str | None, field: str) -> str | None:
    """One that the views show."""
    return None if value is None else shorten(check_key(value, field), KEY_LENGTH)


def _chosen(option: T | None, otherwise: T) -> T:
    return otherwise if option is None else option
