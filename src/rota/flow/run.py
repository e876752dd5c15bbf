"""Run one claimed run: the handler, its context, and the one outcome it gets.

The first outcome stands. A timeout, a lost lease or a stopping worker may give it before the
handler returns; what comes later is dropped.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn

import msgspec

from rota import tracing
from rota.errors import Conflict, Unknown
from rota.executors.protocol import Context, StopReason, Targets
from rota.flow.files import answer
from rota.flow.notes import Notes
from rota.flow.steps import AttemptSteps
from rota.model.duration import format_duration
from rota.model.job import Job
from rota.model.limits import check_key
from rota.model.outcome import SUCCESS, Outcome
from rota.model.run import ClaimedRun
from rota.storage import operations
from rota.storage.store import Store

# After a stop an executor that can end its handler has this long to do so.
STOP_SECONDS = 10.0

_decode = msgspec.json.Decoder(dict[str, Any]).decode

# How many forks this process is away from the one that imported this: cheaper to ask than its id.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """What an execution asks of the worker it belongs to. `done` is told its one outcome, `freed`
    that its handler is gone as well, `turned` that it no longer waits for other runs."""

    store: Store
    notes: Notes
    lease: timedelta
    target: str | Targets
    done: Callable[[Execution, Outcome], None]
    freed: Callable[[Execution], None] = lambda execution: None
    begun: Callable[[], object] = lambda: None
    turned: Callable[[Execution], None] = lambda execution: None
    forks: int = field(default_factory=lambda: _forks)
    guard: threading.Lock = field(default_factory=threading.Lock)


class Execution:
    """A run in this process, from its claim to its outcome."""

    started_at: float | None = None  # monotonic, from the handler's start
    span: Any = None  # while somebody wants traces
    announced = False  # listeners know that it begins
    has_slot = False
    threadless = False  # its executor runs it without one of the worker's threads
    finished = False  # its outcome is known
    returned = False  # its handler no longer runs

    def __init__(
        self, run: ClaimedRun, job: Job, owner: Owner, claimed_at: float | None = None
    ) -> None:
        self.run, self.job, self.owner = run, job, owner
        self.timeout = run.timeout or job.timeout
        self.claimed_at = time.monotonic() if claimed_at is None else claimed_at
        self.leased_at = self.claimed_at  # its lease is at least this young
        self.context = Context(
            definition=job,
            run_id=run.id,
            attempt=run.attempt,
            args=_decode(run.args) if run.args != "{}" else {},
            scheduled_at=run.occurrence or run.due_at,
            queue=run.queue,
            port=self._port,
            target=owner.target,
            timeout=self.timeout,
            missed_count=run.missed_count,
            correlation_id=run.correlation_id,
        )

    @property
    def deadline(self) -> float | None:
        """Monotonic instant at which the timeout ends it; none while it waits for its turn."""
        if self.started_at is None or self.timeout is None:
            return None
        if self.context.waiting_since is not None:
            return None
        return self.started_at + self.context.waited + self.timeout.total_seconds()

    @property
    def is_stuck(self) -> bool:
        late = self.context.stop_reason == "timed_out"
        return late and self.finished and not self.returned

    def begin(self) -> None:
        self.started_at = time.monotonic()
        if self.span is None and (own := tracing.tracer()) is not None:
            self.span = self.context.span = span = tracing.begin_attempt(own, self.run)
            self.context.trace = None if span is None else tracing.traceparent(span)

    def finish(self, outcome: Outcome) -> None:
        """The first outcome is written; every later one is dropped."""
        with self.owner.guard:
            if self.finished:
                return
            self.finished = True
        self._tell(outcome)

    def _tell(self, outcome: Outcome) -> None:
        if outcome is not SUCCESS and outcome.has_text:
            outcome = self._shown(outcome)
        if self.span is not None:
            tracing.end_attempt(self.span, outcome)
        self.owner.done(self, outcome)

    def _shown(self, outcome: Outcome) -> Outcome:
        if outcome.kind == "cancelled" and self.context.stop_reason == "cancelled":
            # The row has the reason of who asked for it.
            outcome = msgspec.structs.replace(outcome, reason=None)
        try:
            return outcome.redacted(self.context.secrets)
        except Exception as fault:  # an executor's answer that is no text
            return Outcome(kind="failed", error=f"the outcome could not be stored: {fault}")

    def handler_returned(self, outcome: Outcome) -> None:
        """The slot is free when the handler is gone *and* the outcome is known."""
        owner, context = self.owner, self.context
        if owner.forks != _forks:
            end_fork(outcome)
        context.close()
        context.port = _gone  # else each would hold the other until a collection
        with owner.guard:
            self.returned = True
            first, self.finished = not self.finished, True
        try:
            if first:
                self._tell(outcome)
        finally:
            owner.freed(self)

    def stop(self, reason: StopReason) -> None:
        """Ask the handler to end, by force where the executor can."""
        self.context.stop(reason)

    def stopped_outcome(self) -> Outcome:
        """What a stop makes of the attempt when the handler does not say it itself."""
        match self.context.stop_reason:
            case "timed_out":
                assert self.timeout is not None
                limit = format_duration(self.timeout)
                return Outcome(kind="timed_out", error=f"timed out after {limit}")
            case "cancelled":
                return Outcome(kind="cancelled", reason="cancelled while running")
            case "lost" if self.started_at is None:
                return Outcome(kind="released", reason="its lease ran out before it began")
            case "lost":
                return Outcome(kind="lost", error="the lease was lost")
            case _:
                return Outcome(kind="released", reason="the worker stopped")

    def _port(self, request: str, params: dict[str, Any]) -> Any:
        """What a handler may ask of this process, through its context."""
        match request:
            case "log" | "progress" if self.finished:
                pass  # a handler that goes on past its outcome
            case "log":
                self.owner.notes.log(self.run, params, self.context.secrets)
            case "progress":
                self.owner.notes.progress(self.run, params)
            case "extend_lease":
                asked_at, ours = time.monotonic(), (self.run.seq, self.run.attempt)
                kept = self.owner.store.write(operations.renew, [ours], self.owner.lease)
                if not kept:
                    self.stop("lost")
                    raise Conflict(f"the lease of run {self.run.id} was lost")
                if kept[0].renewed:  # of two answers the later may be old
                    self.leased_at = max(self.leased_at, asked_at)
            case "lock":
                name = check_key(params["name"], "lock")
                return self.owner.store.write(
                    operations.acquire_lock, name, f"run {self.run.id}", params["ttl"]
                )
            case "extend_lock":
                return self.owner.store.write(
                    operations.extend_lock, params["name"], params["token"], params["ttl"]
                )
            case "unlock":
                return self.owner.store.write(
                    operations.release_lock, params["name"], params["token"]
                )
            case "put_file" | "get_file" | "read_file" | "delete_file" | "list_files":
                return answer(self.owner.store, self.run, request, params)
            case "turn":
                self.owner.turned(self)
            case "steps":
                return AttemptSteps(
                    self.owner.store,
                    self.run,
                    self.context,
                    self.owner.lease,
                    restart=bool(self.job.spec.get("restart")),
                )
            case _:
                raise Unknown(f"a context cannot ask for {request!r}")
        return None


def _gone(request: str, params: dict[str, Any]) -> None:
    """The port of a context whose handler has returned."""
    if request not in ("log", "progress"):
        raise Conflict(f"the handler has returned: its context can no longer ask for {request!r}")


def end_fork(outcome: Outcome) -> NoReturn:
    """A handler forked this process, and a copy of it has come to its end. The copy has no worker
    around it: it must not settle what the original settles, nor go on to the next run."""
    if outcome.error is not None:
        with suppress(OSError):
            # Not by print: another thread of the original may have held the stream's lock.
            os.write(2, f"{outcome.error}\n".encode("utf-8", "replace"))
    os._exit(1 if outcome.error is not None else 0)


def execute(execution: Execution, body: Callable[[Context], Outcome]) -> None:
    """Call the executor in this thread. Whatever it raises is a failed attempt."""
    if execution.started_at is None:  # else it began when its executor was asked to start it
        execution.begin()
    execution.owner.begun()
    try:
        outcome = body(execution.context)
        if not isinstance(outcome, Outcome):
            told = f"its executor answered with a {type(outcome).__name__}, not an Outcome"
            outcome = Outcome(kind="failed", error=told)
    except BaseException as fault:  # also SystemExit: a handler must not end the worker
        outcome = Outcome(kind="failed", error="".join(traceback.format_exception(fault)))
    execution.handler_returned(outcome)
