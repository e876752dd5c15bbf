"""Cancel, in every state a run can be in, and in every place a handler can run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import rota
from rota.storage import operations
from tests.api import handlers
from tests.api.support import PATIENCE, SHORT_LEASE, Driven, Gate, Watch, wait_until


def outcomes(app: rota.Rota, run_id: str) -> list[str]:
    return [one["outcome"] for one in app.control.attempts(run_id)]


def test_a_waiting_run_is_cancelled_at_once(driven: Driven) -> None:
    @driven.app.job()
    def note() -> None: ...

    made = note.enqueue(delay="1h")
    told = driven.control.cancel(made.id, "not needed")
    assert (told.state, told.reason, told.attempt) == ("cancelled", "not needed", 0)
    assert told.finished_at == driven.clock.now
    driven.advance("2 hours")
    assert driven.states(made.id) == ["cancelled"]
    assert outcomes(driven.app, made.id) == []


@pytest.mark.each_engine
def test_a_held_run_is_cancelled_and_the_line_moves_on(driven: Driven) -> None:
    @driven.app.job(concurrency_key="tenant")
    def note() -> None: ...

    first, second, third = (note.enqueue() for _ in range(3))
    assert driven.states(first.id, second.id, third.id) == ["queued", "held", "held"]
    driven.control.cancel(second.id)
    driven.control.cancel(first.id)
    assert driven.states(first.id, second.id, third.id) == ["cancelled", "cancelled", "queued"]
    driven.drain()
    assert driven.states(third.id) == ["succeeded"]


def test_a_queued_run_is_cancelled_at_once(driven: Driven) -> None:
    @driven.app.job()
    def note() -> None: ...

    made = note.enqueue()
    assert driven.control.cancel(made.id).state == "cancelled"
    assert driven.drain() == []


def test_a_paused_run_and_one_between_attempts_are_cancelled_at_once(driven: Driven) -> None:
    @driven.app.job()
    def fail() -> None:
        raise ValueError("no")

    paused, failed = fail.enqueue(delay="1h"), fail.enqueue()
    driven.control.pause_run(paused.id)
    driven.drain()
    assert driven.states(paused.id, failed.id) == ["paused", "waiting"]
    for made in (paused, failed):
        assert driven.control.cancel(made.id).state == "cancelled"
    driven.advance("1 hour")
    assert driven.states(paused.id, failed.id) == ["cancelled", "cancelled"]


@pytest.mark.parametrize("end", ["succeeded", "cancelled"])
def test_what_has_ended_cannot_be_cancelled(driven: Driven, end: str) -> None:
    @driven.app.job()
    def note() -> Any:
        return rota.Cancel() if end == "cancelled" else None

    made = note.enqueue()
    driven.drain()
    with pytest.raises(rota.Conflict, match=f"is {end}; cancel is not possible then"):
        driven.control.cancel(made.id)


def test_a_thread_sees_that_it_should_end(app: rota.Rota, watch: Watch) -> None:
    begun = threading.Event()

    @app.job(max_attempts=1)
    def work(ctx: rota.Context) -> str:
        begun.set()
        assert ctx.wait(PATIENCE)
        assert ctx.cancelled
        return "stopped early"

    app.start()
    made = work.enqueue()
    assert begun.wait(PATIENCE)
    told = app.control.cancel(made.id, "wrong data")
    assert told.state == "running"
    assert told.cancel_requested_at is not None
    run = watch.end(made.id)
    assert (run.state, run.result, run.failures) == ("cancelled", None, 0)
    assert run.reason == "wrong data"
    assert outcomes(app, made.id) == ["cancelled"]


def test_a_thread_that_never_looks_keeps_its_result(app: rota.Rota, watch: Watch) -> None:
    gate = Gate()

    @app.job()
    def work() -> str:
        gate()
        return "done"

    app.start()
    made = work.enqueue()
    gate.wait()
    app.control.cancel(made.id)
    gate.open()
    assert watch.end(made.id).result == '"done"'


def test_a_thread_that_fails_after_a_cancel_is_not_tried_again(
    app: rota.Rota, watch: Watch
) -> None:
    gate = Gate()

    @app.job(max_attempts=5, backoff="none")
    def work() -> None:
        gate()
        raise ValueError("no")

    app.start()
    made = work.enqueue()
    gate.wait()
    app.control.cancel(made.id, "enough")
    gate.open()
    run = watch.end(made.id)
    assert (run.state, run.attempt, run.reason) == ("cancelled", 1, "enough")


def test_a_coroutine_is_cancelled(app: rota.Rota, watch: Watch) -> None:
    begun, cleaned = threading.Event(), threading.Event()

    @app.job()
    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            cleaned.set()

    app.start()
    made = work.enqueue()
    assert begun.wait(PATIENCE)
    app.control.cancel(made.id, "wrong data")
    run = watch.end(made.id)
    assert (run.state, run.reason) == ("cancelled", "wrong data")
    assert cleaned.is_set()


@pytest.mark.each_engine
def test_a_process_is_ended(app: rota.Rota, watch: Watch) -> None:
    app.job(isolation="process")(handlers.hang)
    app.start()
    made = app.enqueue("hang")
    wait_until(
        lambda: app.storage.read(operations.get_run, made.id).progress, "the handler's start"
    )
    app.control.cancel(made.id, "wrong data")
    run = watch.end(made.id)
    assert (run.state, run.reason) == ("cancelled", "wrong data")


def test_a_cancel_of_a_run_whose_worker_is_gone_is_done_by_rescue(
    make_app: Callable[..., rota.Rota],
) -> None:
    app = make_app(lease=SHORT_LEASE)
    watch = Watch(app)

    @app.job()
    def work() -> None: ...

    made = work.enqueue()
    app.storage.write(
        operations.claim,
        "gone",
        queues=(),
        jobs=["work"],
        limit=1,
        lease=timedelta(milliseconds=50),
    )
    app.control.cancel(made.id, "wrong data")
    app.start()
    run = watch.end(made.id)
    assert (run.state, run.reason, run.attempt) == ("cancelled", "wrong data", 1)
    assert outcomes(app, made.id) == ["lost"]
