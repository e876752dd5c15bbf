"""Spans of OpenTelemetry: enqueue, fire, attempt and step, from the enqueue to the run.

Only where the program has imported the API and configured a provider: without one everything here
is a look into `sys.modules`, and nothing is imported. What is carried from
one process to another is the `traceparent` of the W3C: in the row of the run, and in the call of a
child process.

A tracer that fails concerns no run: here it is as if there were none, and the log says so once.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from rota.model.outcome import Outcome, error_line
from rota.model.redact import redact_text
from rota.version import VERSION

log = logging.getLogger("rota.tracing")

_API = "opentelemetry.trace"
_HEADER = "traceparent"
# An exception is told by our own words: its text and traceback may hold secrets.
_QUIETLY: dict[str, Any] = {"record_exception": False, "set_status_on_exception": False}
_made: tuple[Any, Any] = (None, None)  # the last provider, and our tracer of it
_told = False  # that a tracer failed


def tracer() -> Any | None:
    """Our tracer; None unless somebody wants spans."""
    api = sys.modules.get(_API)
    return None if api is None else _tracer_of(api)


def _tracer_of(api: Any) -> Any | None:
    global _made
    try:
        provider = api.get_tracer_provider()
        if isinstance(provider, api.ProxyTracerProvider):
            return None  # nobody has configured one
        if _made[0] is not provider:
            _made = (provider, provider.get_tracer("rota", VERSION))
        return _made[1]
    except AttributeError:  # another thread is importing the API now
        return None
    except Exception as fault:
        _failed(fault)
        return None


def _failed(fault: Exception) -> None:
    global _told
    if not _told:
        _told = True
        told = redact_text(f"{type(fault).__name__}: {fault}")
        log.warning("a tracer failed, from now on spans may be missing: %s", told)


def _isolated(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What `call` answers; None if it fails."""
    try:
        return call(*args, **options)
    except Exception as fault:
        _failed(fault)
        return None


@contextmanager
def _current(own: Any, name: str, **options: Any) -> Iterator[Any | None]:
    """Inside a span, or without one if its tracer fails."""
    around = _isolated(own.start_as_current_span, name, **options, **_QUIETLY)
    span = None if around is None else _isolated(around.__enter__)
    try:
        yield span
    except BaseException as fault:
        if span is not None:
            _isolated(around.__exit__, type(fault), fault, fault.__traceback__)
        raise
    if span is not None:
        _isolated(around.__exit__, None, None, None)


@contextmanager
def _enqueueing(own: Any, job: str, queue: str, count: int) -> Iterator[str | None]:
    told = {"rota.job": job, "rota.queue": queue, "rota.runs": count}
    with _current(own, f"enqueue {job}", kind=_kind("PRODUCER"), attributes=told) as span:
        try:
            yield traceparent(span)
        except Exception as fault:
            _fail(span, redact_text(str(fault)))
            raise


_NOTHING: AbstractContextManager[None] = nullcontext()


def enqueueing(job: str, queue: str, count: int) -> AbstractContextManager[str | None]:
    """Around an insert; gives what its runs carry along."""
    own = tracer()
    return _NOTHING if own is None else _enqueueing(own, job, queue, count)


def begin_fire(schedule: str, job: str) -> Any | None:
    """The span of one schedule that fires."""
    own = tracer()
    if own is None:
        return None
    told = {"rota.schedule": schedule, "rota.job": job}
    # A trace of its own: whatever else this thread does has nothing to do with it.
    return _isolated(own.start_span, f"fire {schedule}", _root(), _kind("PRODUCER"), told)


def end_fire(span: Any, *, ours: bool) -> None:
    if not ours:
        _isolated(span.set_attribute, "rota.fired", False)
    _isolated(span.end)


def begin_attempt(own: Any, run: Any) -> Any | None:
    """The span of an attempt, by our tracer: the child of whatever made the run."""
    told = {
        "rota.job": run.job, "rota.queue": run.queue, "rota.run_id": run.id,
        "rota.attempt": run.attempt,
    }  # fmt: skip
    context = _isolated(_context_of, run.trace)
    return _isolated(own.start_span, f"run {run.job}", context, _kind("CONSUMER"), told)


def end_attempt(span: Any, outcome: Outcome) -> None:
    _isolated(span.set_attribute, "rota.outcome", outcome.kind)
    if outcome.kind in ("failed", "timed_out", "lost"):
        _fail(span, outcome.error)
    _isolated(span.end)


def _fail(span: Any | None, error: str | None) -> None:
    if span is not None:
        api: Any = sys.modules[_API]
        status = api.Status(api.StatusCode.ERROR, error_line(error, limit=300))
        _isolated(span.set_status, status)


class Step:
    """One step of an attempt while it runs. `failed` is told its error, which is redacted."""

    def __init__(self, span: Any | None) -> None:
        self._span = span

    def failed(self, error: str | None) -> None:
        _fail(self._span, error)


_NO_STEP = nullcontext(Step(None))


def step(span: Any | None, name: str) -> AbstractContextManager[Step]:
    """Around a step of the attempt whose span this is."""
    own = None if span is None else tracer()
    return _NO_STEP if own is None else _stepping(own, span, name)


@contextmanager
def _stepping(own: Any, parent: Any, name: str) -> Iterator[Step]:
    api: Any = sys.modules[_API]
    context = api.set_span_in_context(parent, _root())
    told = {"rota.step": name}
    with _current(own, f"step {name}", context=context, attributes=told) as span:
        yield Step(span)


def within(span: Any | None, trace: str | None) -> AbstractContextManager[None]:
    """Around a handler: what it traces becomes a child of its attempt. In a child process the span
    is not there, and `trace` stands for it."""
    return _NOTHING if span is None and trace is None else _within(span, trace)


@contextmanager
def _within(span: Any | None, trace: str | None) -> Iterator[None]:
    # Also where the handler has not imported it yet: somebody wants traces.
    from opentelemetry import context
    from opentelemetry import trace as api

    own = _context_of(trace) if span is None else api.set_span_in_context(span)
    token = context.attach(own)
    try:
        yield
    finally:
        context.detach(token)


def traceparent(span: Any | None) -> str | None:
    """A span as text; None if there is nothing to refer to."""
    told = None if span is None else _isolated(span.get_span_context)
    if told is None or not told.is_valid:
        return None
    return f"00-{told.trace_id:032x}-{told.span_id:016x}-{int(told.trace_flags):02x}"


def _context_of(trace: str | None) -> Any:
    """The context that a stored `traceparent` tells of; one of its own if there is none, or if
    somebody wrote something else into the row."""
    if trace is None:
        return _root()
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({_HEADER: trace}, _root())


def _root() -> Any:
    from opentelemetry.context import Context

    return Context()


def _kind(name: str) -> Any:
    api: Any = sys.modules[_API]
    return api.SpanKind[name]
