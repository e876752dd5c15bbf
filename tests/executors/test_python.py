"""Handlers in threads and on the event loop; what values and exceptions mean."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.errors import Invalid
from rota.executors.context import Context
from rota.executors.python import PythonExecutor
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.verdicts import Cancel, Retry, Snooze
from tests.executors.conftest import Port, make_context


def raises(error: BaseException) -> Callable[[], None]:
    def handler() -> None:
        raise error

    return handler


def run(executor: PythonExecutor, function: Callable[..., Any], **args: Any) -> Outcome:
    executor.register("job", function)
    return executor.run(make_context(args=args, isolation="thread"))


def run_async(executor: PythonExecutor, function: Callable[..., Any]) -> tuple[Context, Any]:
    """Start on the loop; the second value waits for the outcome."""
    executor.register("job", function)
    context, ended, outcomes = make_context(isolation="thread"), threading.Event(), []

    def done(outcome: Outcome) -> None:
        outcomes.append(outcome)
        ended.set()

    assert executor.start(context, done)

    def outcome() -> Outcome:
        assert ended.wait(20)
        return outcomes[0]  # type: ignore[no-any-return]

    return context, outcome


def test_nothing_returned_is_success(executor: PythonExecutor) -> None:
    assert run(executor, lambda: None) == Outcome(kind="succeeded")


@pytest.mark.parametrize("value", [0, False, "", "text", [1, {"a": None}], {"rows": 3}])
def test_a_result_is_kept_as_json(executor: PythonExecutor, value: object) -> None:
    outcome = run(executor, lambda: value)
    assert outcome.kind == "succeeded"
    assert json.loads(str(outcome.result)) == value


@pytest.mark.parametrize("value", [object(), "\ud800", lambda: None, {1: object()}])
def test_a_result_that_is_not_json_is_named(executor: PythonExecutor, value: object) -> None:
    outcome = run(executor, lambda: value)
    assert outcome.kind == "succeeded"
    note = json.loads(str(outcome.result))["not_stored"]
    assert note == f"a {type(value).__name__} that JSON cannot carry"


def test_verdicts(executor: PythonExecutor) -> None:
    assert run(executor, lambda: Snooze(90)).after == timedelta(seconds=90)
    assert run(executor, lambda: Cancel()) == Outcome(kind="cancelled")
    retried = run(executor, raises(Retry(reason="busy")))
    assert (retried.kind, retried.error, retried.after) == ("failed", "retry: busy", None)
    assert run(executor, lambda: Retry(after=0)).after == timedelta(0)


def test_a_retry_tells_its_cause(executor: PythonExecutor) -> None:
    def handler() -> None:
        try:
            1 / 0  # noqa: B018
        except ZeroDivisionError as error:
            raise Retry("1m") from error

    error = str(run(executor, handler).error)
    assert "ZeroDivisionError: division by zero\n\nretry" in error


@pytest.mark.parametrize("after", ["soon", 0, -1, "11000d"])
def test_a_snooze_is_a_duration(after: object) -> None:
    with pytest.raises(Invalid, match="Snooze"):
        Snooze(after)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_no_exception_ends_the_worker(executor: PythonExecutor, error: BaseException) -> None:
    outcome = run(executor, raises(error))
    assert outcome.kind == "failed"
    assert type(error).__name__ in str(outcome.error)


def test_exception_groups_are_trimmed_too(executor: PythonExecutor) -> None:
    error = str(run(executor, raises(ExceptionGroup("two", [ValueError("a"), OSError("b")]))).error)
    assert "ValueError: a" in error
    assert "OSError: b" in error
    assert "rota/executors" not in error


def test_a_long_error_is_clipped(executor: PythonExecutor) -> None:
    assert len(str(run(executor, raises(ValueError("x" * 100_000))).error)) <= 16_000


def test_bad_arguments_fail_without_a_traceback(executor: PythonExecutor) -> None:
    outcome = run(executor, lambda number: number, numbr=1)
    assert outcome.error == (
        "rota.errors.BadArguments: job 'job': 'number' is missing; 'numbr' is unknown, "
        "did you mean 'number'? (it takes number)"
    )


def test_a_thread_handler_that_saw_the_stop_has_ended_early(executor: PythonExecutor) -> None:
    def handler(ctx: Context) -> str:
        ctx.stop("stopping")
        return "early" if ctx.cancelled else ""

    assert run(executor, handler) == Outcome(kind="released", reason="the worker stopped")


def test_a_thread_handler_that_never_looked_has_finished(executor: PythonExecutor) -> None:
    def handler(ctx: Context) -> str:
        ctx.stop("stopping")
        return "whole"

    assert run(executor, handler).result == '"whole"'


def test_a_verdict_stands_after_a_stop(executor: PythonExecutor) -> None:
    def handler(ctx: Context) -> Snooze:
        ctx.stop("stopping")
        assert ctx.cancelled
        return Snooze("1m")

    assert run(executor, handler).kind == "snoozed"


def test_the_connection_is_closed_by_the_thread_that_opened_it(executor: PythonExecutor) -> None:
    opened: list[Any] = []

    def handler(ctx: Context) -> None:
        ctx._targets = "sqlite://"
        opened.append(ctx.db)

    assert run(executor, handler).kind == "succeeded"
    with pytest.raises(Exception, match="closed"):
        opened[0].execute("select 1")


# The loop


def test_async_handlers_share_one_thread(executor: PythonExecutor) -> None:
    async def handler() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    waiting = [run_async(executor, handler)[1] for _ in range(500)]
    assert {outcome().result for outcome in waiting} == {'"rota-loop"'}
    assert executor.run(make_context(isolation="thread")).result == '"rota-loop"'


def test_sync_handlers_are_not_taken_by_the_loop(executor: PythonExecutor) -> None:
    executor.register("job", lambda: None)
    assert not executor.start(make_context(isolation="thread"), lambda outcome: None)
    assert not executor.start(make_context("later"), lambda outcome: None)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("cancelled", "cancelled"),
        ("timed_out", "timed_out"),
        ("stopping", "released"),
        ("lost", "lost"),
    ],
)
def test_a_stop_cancels_the_task(executor: PythonExecutor, reason: str, kind: str) -> None:
    started = threading.Event()

    async def handler() -> None:
        started.set()
        await asyncio.sleep(1000)

    context, outcome = run_async(executor, handler)
    assert started.wait(20)
    context.stop(reason)
    assert outcome().kind == kind


def test_a_swallowed_cancel_is_still_an_early_end(executor: PythonExecutor) -> None:
    started = threading.Event()

    async def handler() -> str:
        started.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(1000)
        return "partial"

    context, outcome = run_async(executor, handler)
    assert started.wait(20)
    context.stop("stopping")
    assert outcome().kind == "released"


def test_a_cancel_of_the_handlers_own_is_a_failure(executor: PythonExecutor) -> None:
    async def handler() -> None:
        raise asyncio.CancelledError

    _, outcome = run_async(executor, handler)
    assert outcome().kind == "failed"


@pytest.mark.parametrize("in_task", [False, True])
def test_system_exit_does_not_end_the_loop(executor: PythonExecutor, in_task: bool) -> None:
    async def leave() -> None:
        sys.exit(3)

    async def handler() -> None:
        await (asyncio.create_task(leave()) if in_task else leave())

    async def after() -> str:
        return "alive"

    assert run_async(executor, handler)[1]().kind == "failed"
    assert run_async(executor, after)[1]().result == '"alive"'


def test_bad_arguments_fail_on_the_loop_too(executor: PythonExecutor) -> None:
    async def handler(number: int) -> None:
        pass

    assert "'number' is missing" in str(run_async(executor, handler)[1]().error)


def test_a_lock_does_not_block_the_loop(executor: PythonExecutor) -> None:
    asked_in: list[str] = []

    class Slow(Port):
        def __call__(self, request: str, params: dict[str, Any]) -> Any:
            asked_in.append(threading.current_thread().name)
            return super().__call__(request, params)

    async def handler(ctx: Context) -> int:
        async with ctx.lock("shop") as lock:
            return lock.token

    executor.register("job", handler)
    port = Slow()
    port.answers = {"lock": 5}
    assert executor.run(make_context(isolation="thread", port=port)).result == "5"
    assert len(asked_in) == 2
    assert "rota-loop" not in asked_in


def test_closing_releases_what_runs_on_the_loop() -> None:
    executor, started = PythonExecutor(), threading.Event()

    async def handler() -> None:
        started.set()
        await asyncio.sleep(1000)

    _, outcome = run_async(executor, handler)
    assert started.wait(20)
    executor.close()
    assert outcome().kind == "released"
    assert executor.run(make_context(isolation="thread")).kind == "released"


# Definitions


@pytest.mark.parametrize(
    ("spec", "isolation", "words"),
    [
        ({}, "thread", "not an address"),
        ({"function": "run"}, "thread", "use 'package.module:name'"),
        ({"function": 3}, "thread", "not an address"),
        ({"file": "a.py", "function": "a:b"}, "thread", "use a name in that file"),
        ({"function": "m:f", "fnuction": 1}, "thread", "no 'fnuction'"),
        ({"function": "m:f.<locals>.g"}, "process", "isolation='thread'"),
        ({"function": "__main__:f"}, "process", "isolation='thread'"),
    ],
)
def test_a_spec_nobody_could_follow_is_refused(
    spec: dict[str, Any], isolation: str, words: str
) -> None:
    with pytest.raises(Invalid, match="job 'x'") as caught:
        PythonExecutor().check(Job(name="x", spec=spec, isolation=isolation))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "spec", [{"function": "m:C.f"}, {"file": "a.py"}, {"main": "/a.py", "function": "f"}]
)
def test_good_specs_pass(spec: dict[str, Any]) -> None:
    PythonExecutor().check(Job(name="x", spec=spec, isolation="process"))


def test_a_registered_function_needs_no_address() -> None:
    executor = PythonExecutor()
    executor.register("x", lambda: None)
    executor.check(Job(name="x"))


def test_a_job_that_is_not_registered_is_loaded_here(executor: PythonExecutor) -> None:
    context = make_context("later", isolation="thread")
    assert not executor.start(context, lambda outcome: None)
    assert executor.run(context).result == '"later"'
    assert executor.run(make_context("no_such", isolation="thread")).kind == "failed"


def test_a_file_runs_here_too_and_an_edit_is_seen(executor: PythonExecutor, tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    for number in ("1", "2"):
        path.write_text(f"async def run(): return {number}\n")
        spec = {"file": str(path), "version": number}
        for _ in range(2):
            context = make_context(isolation="thread", job="file", spec=spec)
            assert executor.run(context).result == number
        assert executor.start(context, lambda outcome: None)


def test_the_address_of_a_function() -> None:
    executor = PythonExecutor()
    assert executor.spec_of(run) == {"function": f"{__name__}:run"}
    assert executor.spec_of(raises(OSError())) == {
        "function": f"{__name__}:raises.<locals>.handler"
    }
