"""Spans of OpenTelemetry: enqueue, fire, attempt and step, from the enqueue to the run.

Only where the program has imported the API and configured a provider: without one everything here
is a look into `sys.modules`, and nothing is imported. What is carried from
one process to another is the `traceparent` of the W3C: in the row of the run, and in the call of a
child process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from rota.model.outcome import Outcome, error_line
from rota.model.redact import redact_text
from rota.version import VERSION

_API = "opentelemetry.trace"
_HEADER = "traceparent"
# An exception is told by our own words: its text and traceback may hold secrets.
_QUIETLY: dict[str, Any] = {"record_exception": False, "set_status_on_exception": False}
_made: tuple[Any, Any] = (None, None)  # the last provider, and our tracer of it


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


@contextmanager
def _enqueueing(own: Any, job: str, queue: str, count: int) -> Iterator[str | None]:
    told = {"rota.job": job, "rota.queue": queue, "rota.runs": count}
    kind = _kind("PRODUCER")
    with own.start_as_current_span(
        f"enqueue {job}", kind=kind, attributes=told, **_QUIETLY
    ) as span:
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
    """The span of one schedule that fires; `end` it if it did."""
    own = tracer()
    if own is None:
        return None
    told = {"rota.schedule": schedule, "rota.job": job}
    # A trace of its own: whatever else this thread does has nothing to do with it.
    return own.start_span(f"fire {schedule}", _root(), _kind("PRODUCER"), told)


def begin_attempt(run: Any) -> Any | None:
    """The span of an attempt, the child of whatever made the run."""
    own = tracer()
    if own is None:
        return None
    told = {
        "rota.job": run.job, "rota.queue": run.queue, "rota.run_id": run.id,
        "rota.attempt": run.attempt,
    }  # fmt: skip
    return own.start_span(f"run {run.job}", _context_of(run.trace), _kind("CONSUMER"), told)


def end_attempt(span: Any, outcome: Outcome) -> None:
    span.set_attribute("rota.outcome", outcome.kind)
    if outcome.kind in ("failed", "timed_out", "lost"):
        _fail(span, outcome.error)
    span.end()


def _fail(span: Any, error: str | None) -> None:
    api: Any = sys.modules[_API]
    span.set_status(api.Status(api.StatusCode.ERROR, error_line(error, limit=300)))


class Step:
    """One step of an attempt while it runs. `failed` is told its error, which is redacted."""

    def __init__(self, span: Any | None) -> None:
        self._span = span

    def failed(self, error: str | None) -> None:
        if self._span is not None:
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
    with own.start_as_current_span(f"step {name}", context, attributes=told, **_QUIETLY) as span:
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


def traceparent(span: Any) -> str | None:
    """A span as text; None if there is nothing to refer to."""
    told = span.get_span_context()
    if not told.is_valid:
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
