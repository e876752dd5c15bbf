"""Timeouts: threads that cannot be ended, coroutines and processes that can."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

import rota
from rota.storage import operations
from tests.api import handlers
from tests.api.support import PATIENCE, Gate, Watch, execution_of, run_out, wait_until

SHORT = timedelta(milliseconds=100)


def stuck(app: rota.Rota) -> int:
    workers = app.control.workers()
    return workers[0]["stuck"] if workers else -1


@pytest.mark.each_engine
def test_a_thread_past_its_timeout_is_settled_and_its_late_result_dropped(
    make_app: Callable[..., rota.Rota],
) -> None:
    app, gate = make_app(slots=1), Gate()
    watch = Watch(app)
    heard: list[bool] = []

    @app.job(timeout="1h", isolation="thread", max_attempts=1)
    def slow(ctx: rota.Context) -> str:
        gate()
        heard.append(ctx.cancelled)
        return "too late"

    @app.job()
    def other() -> None: ...

    app.start()
    made = slow.enqueue()
    gate.wait()
    run_out(execution_of(app, made.id), SHORT)
    run = watch.end(made.id)
    assert (run.state, run.error, run.result) == ("dead", "timed out after 100ms", None)
    assert [one["outcome"] for one in app.control.attempts(made.id)] == ["timed_out"]
    # The thread still has the only slot, and that is shown.
    wait_until(lambda: stuck(app) == 1, "the slot shown as stuck")
    waiting = other.enqueue()
    assert app.storage.read(operations.get_run, waiting.id).state == "queued"
    gate.open()
    assert watch.end(waiting.id).state == "succeeded"
    wait_until(lambda: stuck(app) == 0, "the slot shown as free")
    late = app.storage.read(operations.get_run, made.id)
    assert (late.state, late.result, late.attempt) == ("dead", None, 1)
    assert heard == [True]


def test_a_timed_out_attempt_is_a_failure_that_is_retried(app: rota.Rota, watch: Watch) -> None:
    begun = threading.Event()

    @app.job(timeout="1h", max_attempts=2, backoff="none")
    async def slow(ctx: rota.Context) -> str:
        if ctx.attempt == 1:
            begun.set()
            await asyncio.sleep(600)
        return "in time"

    app.start()
    made = slow.enqueue()
    assert begun.wait(PATIENCE)
    run_out(execution_of(app, made.id), SHORT)
    run = watch.end(made.id)
    assert (run.state, run.result, run.failures) == ("succeeded", '"in time"', 1)
    outcomes = [one["outcome"] for one in app.control.attempts(made.id)]
    assert outcomes == ["timed_out", "succeeded"]


def test_a_coroutine_past_its_timeout_is_cancelled(app: rota.Rota, watch: Watch) -> None:
    begun, ended = threading.Event(), threading.Event()

    @app.job(timeout="1h", max_attempts=1)
    async def slow() -> None:
        try:
            begun.set()
            await asyncio.sleep(600)
        finally:
            ended.set()

    app.start()
    made = slow.enqueue()
    assert begun.wait(PATIENCE)
    run_out(execution_of(app, made.id), SHORT)
    run = watch.end(made.id)
    assert (run.state, run.error) == ("dead", "timed out after 100ms")
    assert ended.wait(PATIENCE)
    wait_until(lambda: stuck(app) == 0)


def test_a_process_past_its_timeout_is_ended(app: rota.Rota, watch: Watch) -> None:
    app.job(timeout="300ms", max_attempts=1)(handlers.hang)
    assert app.jobs()[0].isolation == "process"
    app.start()
    run = watch.end(app.enqueue("hang").id)
    assert (run.state, run.error) == ("dead", "timed out after 300ms")


def test_a_run_may_have_a_timeout_of_its_own(app: rota.Rota, watch: Watch) -> None:
    @app.job(max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(600)

    app.start()
    run = watch.end(app.enqueue("slow", timeout="50ms").id)
    assert (run.state, run.error) == ("dead", "timed out after 50ms")


def test_what_is_done_in_time_is_not_touched(app: rota.Rota, watch: Watch) -> None:
    @app.job(timeout="1m", isolation="thread")
    def quick() -> str:
        return "done"

    app.start()
    assert watch.end(quick.enqueue().id).result == '"done"'


def test_a_stop_without_end_waits_for_no_thread_that_has_timed_out(
    make_app: Callable[..., rota.Rota],
) -> None:
    app, gate = make_app(slots=2), Gate()

    @app.job(timeout="1h", isolation="thread", max_attempts=1)
    def slow() -> None:
        gate()

    app.start()
    made = slow.enqueue()
    gate.wait()
    execution = execution_of(app, made.id)
    stopper = threading.Thread(target=lambda: app.stop(grace="none"), daemon=True)
    stopper.start()
    run_out(execution, SHORT)
    stopper.join(PATIENCE)
    gate_was_closed = not stopper.is_alive()
    gate.open()
    assert gate_was_closed
    assert app.control.run(made.id).state == "dead"
