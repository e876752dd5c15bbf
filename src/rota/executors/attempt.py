"""Calls a Python handler and makes an outcome of its result or exception.

It works the same in a thread, on the event loop and in a child process. No exception of a handler
passes this file, not even SystemExit or KeyboardInterrupt.

A handler that has seen that it should end (`ctx.cancelled`, a cancelled await) and then returns or
raises has not finished: the stop reason decides the outcome. The result of a handler that never
checked counts, unless its time or its lease is over.
"""

from __future__ import annotations

import inspect
import logging
import os.path
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec

from rota.executors.context import Context
from rota.executors.signatures import Handler
from rota.model.duration import format_duration
from rota.model.limits import ERROR_LENGTH, RESULT_BYTES, SECRET_LENGTH
from rota.model.outcome import SUCCESS, Outcome
from rota.model.redact import secret_values, shorten
from rota.model.secrets import Secrets
from rota.model.verdicts import Cancel, Retry, Snooze
from rota.tracing import within

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
LOGGER = logging.getLogger(__name__)
FRAMES, LOCALS = 100, 100  # searched for secrets


class Stopped(BaseException):
    """Raised by SIGTERM in a child's main thread, so that `finally` blocks run."""


def perform(handler: Handler, context: Context) -> Outcome | None:
    """Call the handler; None if it ended because it was stopped."""
    try:
        if context.span is None and context.trace is None:
            value = handler.call(context)
        else:
            with within(context.span, context.trace):
                value = handler.call(context)
        if value is not None and inspect.iscoroutine(value):
            import asyncio  # not at the top: it would double the start time of every child

            return asyncio.run(perform_async(lambda: value, context))
        return outcome_of_value(value, context.heard_stop)
    except BaseException as error:
        return outcome_of_error(error, context.heard_stop)
    finally:
        context.close()


def find_and_perform(find: Callable[[], Handler], context: Context) -> Outcome | None:
    """Import a handler and call it; an error of the import fails the attempt too."""
    try:
        handler = find()
    except BaseException as error:
        context.close()
        return outcome_of_error(error, context.heard_stop)
    return perform(handler, context)


async def perform_async(call: Callable[[], Awaitable[Any]], context: Context) -> Outcome | None:
    """Await the handler on the running loop, where a stop cancels its task."""
    import asyncio

    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def cancel(reason: str) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(task.cancel)

    context.on_stop(cancel)
    try:
        with within(context.span, context.trace):
            value = await call()
        return outcome_of_value(value, context.heard_stop or task.cancelling() > 0)
    except BaseException as error:
        return outcome_of_error(error, context.heard_stop or task.cancelling() > 0)
    finally:
        context.close()


def outcome_of_value(value: Any, stopped: bool) -> Outcome | None:
    """The outcome of a returned value."""
    if value is None:
        return None if stopped else SUCCESS
    match value:
        case Snooze():
            return Outcome(kind="snoozed", after=value.after)
        case Cancel():
            return Outcome(kind="cancelled", reason=value.reason or None)
        case Retry():
            return outcome_of_error(value, stopped)
        case _ if stopped:
            return None
        case _:
            return Outcome(kind="succeeded", result=encode_result(value))


def outcome_of_error(error: BaseException, stopped: bool) -> Outcome | None:
    """The outcome of a raised exception."""
    match error:
        case Retry():
            text = f"retry: {error.reason}" if error.reason else "retry"
            if error.__cause__ is not None:
                text = f"{error_text(error.__cause__)}\n\n{text}"
            return Outcome(
                kind="failed", error=text, reason=error.reason or None, after=error.after
            )
        case Stopped():
            return None
        case _ if stopped:
            return None
        case _:
            return Outcome(kind="failed", error=error_text(error))


def conclude(outcome: Outcome | None, context: Context) -> Outcome:
    """The final outcome: the attempt's own, or that of its stop reason."""
    if outcome is not None and context.stop_reason is None:
        return outcome
    match context.stop_reason:
        case "timed_out":
            after = f" after {format_duration(context.timeout)}" if context.timeout else ""
            return Outcome(kind="timed_out", error=f"timed out{after}")
        case "lost":
            return Outcome(kind="lost", error="the lease was lost")
        case _ if outcome is not None:
            return outcome
        case "cancelled":
            return Outcome(kind="cancelled", reason="cancelled while running")
        case "stopping":
            return Outcome(kind="released", reason="the worker stopped")
        case _:
            return Outcome(kind="failed", error="ended by SIGTERM, which was not sent by Rota")


def encode_result(value: Any) -> str:
    """A result as JSON text; `{"not_stored": why}` if it cannot be stored.

    The attempt succeeds all the same: to repeat its work would give the same result."""
    try:
        text = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _not_stored(f"a {type(value).__name__} that JSON cannot carry")
    if len(text) > RESULT_BYTES:
        return _not_stored(f"{len(text):,} bytes as JSON; the limit is {RESULT_BYTES:,}")
    return text.decode()


def error_text(error: BaseException) -> str:
    """A traceback of the user's frames only, without the values of secret variables."""
    summary = traceback.TracebackException.from_exception(error)
    _trim(summary, set())
    text = "".join(summary.format()).rstrip("\n")
    return shorten(text, ERROR_LENGTH, Secrets(_secrets_in(error)))


def _secrets_in(error: BaseException) -> Iterator[str]:
    """Values of secret variables in the frames of an error, which its text may quote."""
    faults: list[BaseException | None] = [error, error.__cause__, error.__context__]
    for fault in faults:
        if fault is None:
            continue
        for frame, _ in islice(traceback.walk_tb(fault.__traceback__), FRAMES):
            if not _is_ours(frame.f_code.co_filename):
                variables = dict(islice(frame.f_locals.items(), LOCALS))
                yield from secret_values(_texts(variables))
                for value in variables.values():
                    if type(value) is dict and len(value) <= LOCALS:  # arguments, headers
                        yield from secret_values(_texts(value))


def _texts(values: dict[Any, Any]) -> dict[Any, str]:
    return {
        name: value
        for name, value in values.items()
        if type(value) is str and len(value) <= SECRET_LENGTH
    }


def _not_stored(why: str) -> str:
    return msgspec.json.encode({"not_stored": why}).decode()


def _trim(summary: traceback.TracebackException, seen: set[int]) -> None:
    if id(summary) in seen:
        return
    seen.add(id(summary))
    frames = [frame for frame in summary.stack if not _is_ours(frame.filename)]
    # None, not an empty list, which would print the headline of an empty traceback.
    summary.stack = traceback.StackSummary.from_list(frames) if frames else None  # type: ignore[assignment]
    for other in (summary.__cause__, summary.__context__, *(summary.exceptions or ())):
        if other is not None:
            _trim(other, seen)


def _is_ours(filename: str) -> bool:
    return filename.startswith((SOURCE, "<frozen importlib", "<frozen runpy"))
