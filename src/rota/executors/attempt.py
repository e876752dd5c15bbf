"""One attempt of a Python handler: call it, and make an outcome of whatever comes back.

The same in a thread, on the event loop and in a child process. Nothing a handler raises gets past
this file, SystemExit and KeyboardInterrupt included.

A handler that saw that it should end (`ctx.cancelled`, a cancelled await) and then returned or
raised has not finished: it has no outcome of its own, and the stop reason decides. One that never
looked has finished, and its result stands; unless its time or its lease is over.
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
FRAMES, LOCALS = 100, 100  # that are looked at for secrets


class Stopped(BaseException):
    """Raised in a child's main thread by SIGTERM, so that `finally` blocks run before the end."""


def perform(handler: Handler, context: Context) -> Outcome | None:
    """Call the handler here; None if it ended because it was asked to."""
    try:
        if context.span is None and context.trace is None:
            value = handler.call(context)
        else:
            with within(context.span, context.trace):
                value = handler.call(context)
        if value is not None and inspect.iscoroutine(value):
            import asyncio  # not above: it would double the start of every child

            return asyncio.run(perform_async(lambda: value, context))
        return judge(value, context.heard_stop)
    except BaseException as error:
        return judge_error(error, context.heard_stop)
    finally:
        context.close()


def find_and_perform(find: Callable[[], Handler], context: Context) -> Outcome | None:
    """The same for a handler that is still to be found: to import it may fail as a call may."""
    try:
        handler = find()
    except BaseException as error:
        context.close()
        return judge_error(error, context.heard_stop)
    return perform(handler, context)


async def perform_async(call: Callable[[], Awaitable[Any]], context: Context) -> Outcome | None:
    """The same on a running loop, where a stop cancels the task."""
    import asyncio

    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def cancel(reason: str) -> None:
        with suppress(RuntimeError):  # the loop has closed, and the task with it
            loop.call_soon_threadsafe(task.cancel)

    context.on_stop(cancel)
    try:
        with within(context.span, context.trace):
            value = await call()
        return judge(value, context.heard_stop or task.cancelling() > 0)
    except BaseException as error:
        return judge_error(error, context.heard_stop or task.cancelling() > 0)
    finally:
        context.close()


def judge(value: Any, stopped: bool) -> Outcome | None:
    """What a returned value means."""
    if value is None:
        return None if stopped else SUCCESS
    match value:
        case Snooze():
            return Outcome(kind="snoozed", after=value.after)
        case Cancel():
            return Outcome(kind="cancelled", reason=value.reason or None)
        case Retry():
            return judge_error(value, stopped)
        case _ if stopped:
            return None
        case _:
            return Outcome(kind="succeeded", result=encode_result(value))


def judge_error(error: BaseException, stopped: bool) -> Outcome | None:
    """What a raised exception means."""
    match error:
        case Retry():
            told = f"retry: {error.reason}" if error.reason else "retry"
            if error.__cause__ is not None:
                told = f"{error_text(error.__cause__)}\n\n{told}"
            return Outcome(
                kind="failed", error=told, reason=error.reason or None, after=error.after
            )
        case Stopped():
            return None
        case _ if stopped:
            return None
        case _:
            return Outcome(kind="failed", error=error_text(error))


def conclude(outcome: Outcome | None, context: Context) -> Outcome:
    """The outcome, once the reason to stop has had its say."""
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
    """A result as JSON text. One that cannot be stored becomes `{"not_stored": why}`: the work is
    done, and doing it again would not make its result smaller."""
    try:
        text = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _not_stored(f"a {type(value).__name__} that JSON cannot carry")
    if len(text) > RESULT_BYTES:
        return _not_stored(f"{len(text):,} bytes as JSON; the limit is {RESULT_BYTES:,}")
    return text.decode()


def error_text(error: BaseException) -> str:
    """A traceback of the user's frames only, without the values of secret names in them."""
    told = traceback.TracebackException.from_exception(error)
    _trim(told, set())
    text = "".join(told.format()).rstrip("\n")
    return shorten(text, ERROR_LENGTH, Secrets(_secrets_in(error)))


def _secrets_in(error: BaseException) -> Iterator[str]:
    """What secret names stand for where an error was raised and passed: it may be quoted in it."""
    faults: list[BaseException | None] = [error, error.__cause__, error.__context__]
    for fault in faults:
        if fault is None:
            continue
        for frame, _ in islice(traceback.walk_tb(fault.__traceback__), FRAMES):
            if not _is_ours(frame.f_code.co_filename):
                own = dict(islice(frame.f_locals.items(), LOCALS))
                yield from secret_values(_texts(own))
                for value in own.values():
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


def _trim(told: traceback.TracebackException, seen: set[int]) -> None:
    if id(told) in seen:
        return
    seen.add(id(told))
    frames = [frame for frame in told.stack if not _is_ours(frame.filename)]
    # None, not an empty list: then no line announces a traceback that is not there.
    told.stack = traceback.StackSummary.from_list(frames) if frames else None  # type: ignore[assignment]
    for other in (told.__cause__, told.__context__, *(told.exceptions or ())):
        if other is not None:
            _trim(other, seen)


def _is_ours(filename: str) -> bool:
    return filename.startswith((SOURCE, "<frozen importlib", "<frozen runpy"))
