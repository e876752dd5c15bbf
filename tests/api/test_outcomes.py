"""What handlers return and raise, and what becomes of their runs."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

import rota
from rota.model.limits import RESULT_BYTES
from rota.storage import operations
from tests.api import handlers
from tests.api.support import Driven, Gate, Watch, wait_until


def attempts(driven: Driven, run_id: str) -> list[str]:
    return [one["outcome"] for one in driven.control.attempts(run_id)]


# Retries


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        ("none", [0, 0, 0]),
        ("fixed", [10, 10, 10]),
        ("exponential", [10, 20, 40]),
        ("quadratic", [10, 40, 90]),
    ],
)
def test_each_backoff_retries_in_its_own_time(
    driven: Driven, backoff: str, waits: list[int]
) -> None:
    tried: list[Any] = []

    @driven.app.job(max_attempts=4, backoff=backoff, delay="10s")
    def fail() -> None:
        tried.append(driven.clock.now)
        raise ValueError("no")

    made = fail.enqueue()
    driven.advance("1 hour")
    run = driven.store.read(operations.get_run, made.id)
    assert [(late - early).total_seconds() for early, late in pairwise(tried)] == waits
    assert (run.state, run.attempt, run.failures) == ("dead", 4, 4)
    assert attempts(driven, made.id) == ["failed"] * 4


def test_max_delay_and_jitter_are_the_jobs_own(driven: Driven) -> None:
    tried: list[Any] = []

    @driven.app.job(
        max_attempts=4, backoff="exponential", delay="10s", max_delay="15s", retry_jitter="5s"
    )
    def fail() -> None:
        tried.append(driven.clock.now)
        raise ValueError("no")

    fail.enqueue()
    driven.advance("1 hour")
    assert [(late - early).total_seconds() for early, late in pairwise(tried)] == [10, 15, 15]


def test_a_run_that_fails_and_then_works_has_succeeded(driven: Driven) -> None:
    @driven.app.job()
    def flaky(ctx: rota.Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionError("away")
        return ctx.attempt

    made = flaky.enqueue()
    driven.advance("1 minute")
    run = driven.store.read(operations.get_run, made.id)
    assert (run.state, run.result, run.failures, run.error) == ("succeeded", "3", 2, None)
    assert attempts(driven, made.id) == ["failed", "failed", "succeeded"]


def test_the_error_is_the_users_own_traceback(driven: Driven) -> None:
    def inner() -> None:
        raise ValueError("the reason")

    @driven.app.job(max_attempts=1)
    def fail() -> None:
        inner()

    made = fail.enqueue()
    driven.drain()
    error = driven.control.run(made.id).error
    assert error is not None
    assert error.endswith("ValueError: the reason")
    assert "in inner" in error
    assert "rota/flow" not in error
    assert "rota/executors" not in error


def test_one_attempt_is_one_attempt(driven: Driven) -> None:
    @driven.app.job(max_attempts=1)
    def fail() -> None:
        raise SystemExit(3)

    made = fail.enqueue()
    driven.advance("1 hour")
    assert driven.states(made.id) == ["dead"]
    assert attempts(driven, made.id) == ["failed"]


@pytest.mark.each_engine
def test_arguments_are_checked_again_before_execution(driven: Driven) -> None:
    @driven.app.job(max_attempts=1)
    def note(n: int) -> None: ...

    made = note.enqueue(n=5)
    driven.store.engine.write(
        "test", lambda tx: tx.text(f"UPDATE {runs_table(driven)} SET args = '{{\"m\": 1}}'", {})
    )
    driven.drain()
    run = driven.store.read(operations.get_run, made.id)
    assert run.state == "dead"
    assert run.error is not None
    assert "'n' is missing; 'm' is unknown" in run.error


def runs_table(driven: Driven) -> str:
    engine: Any = driven.store.engine
    return f"{engine.prefix}runs"


# Outcomes as values


def test_a_snooze_is_no_failure(driven: Driven) -> None:
    @driven.app.job(max_attempts=1, concurrency_key="tenant")
    def later(ctx: rota.Context) -> Any:
        return rota.Snooze("30s") if ctx.attempt < 4 else "done"

    made = later.enqueue()
    driven.drain()
    run = driven.store.read(operations.get_run, made.id)
    assert (run.state, run.failures) == ("waiting", 0)
    assert run.due_at == driven.clock.now + timedelta(seconds=30)
    # Its slot is free meanwhile.
    other = later.enqueue()
    driven.drain()
    assert attempts(driven, other.id) == ["released"]
    driven.advance("2 minutes")
    assert driven.states(made.id, other.id) == ["succeeded", "succeeded"]
    assert driven.store.read(operations.get_run, made.id).failures == 0
    assert attempts(driven, made.id) == ["released"] * 3 + ["succeeded"]


def test_a_cancel_ends_the_run_with_its_reason(driven: Driven) -> None:
    @driven.app.job()
    def stop() -> Any:
        return rota.Cancel("sold out")

    made = stop.enqueue()
    driven.drain()
    run = driven.store.read(operations.get_run, made.id)
    assert (run.state, run.reason, run.failures) == ("cancelled", "sold out", 0)
    assert attempts(driven, made.id) == ["cancelled"]


@pytest.mark.parametrize(("after", "wait"), [("5m", 300), (0, 0), (None, 7)])
def test_a_retry_chooses_its_wait_and_counts_as_a_failure(
    driven: Driven, after: object, wait: int
) -> None:
    @driven.app.job(max_attempts=2, delay="7s")
    def again() -> None:
        raise rota.Retry(after=after, reason="the shop is closed")

    made = again.enqueue()
    driven.app.load()
    claimed_at = driven.clock.now
    if wait:
        driven.drain()
        run = driven.store.read(operations.get_run, made.id)
        assert (run.state, run.failures) == ("waiting", 1)
        assert run.due_at == claimed_at + timedelta(seconds=wait)
        assert run.reason == "the shop is closed"
    driven.advance("5 minutes")
    run = driven.store.read(operations.get_run, made.id)
    assert (run.state, run.failures) == ("dead", 2)
    assert run.error == "retry: the shop is closed"


def test_a_retry_leaves_nested_calls_and_keeps_its_cause(driven: Driven) -> None:
    @driven.app.job(max_attempts=2)
    def again() -> None:
        try:
            raise ConnectionError("refused")
        except ConnectionError as fault:
            raise rota.Retry(after="1m") from fault

    made = again.enqueue()
    driven.drain()
    error = driven.store.read(operations.get_run, made.id).error
    assert error is not None
    assert "ConnectionError: refused" in error
    assert error.endswith("retry")


# Dead and redo


def test_a_dead_run_can_be_done_again_with_fresh_counts(driven: Driven) -> None:
    broken = [True]

    @driven.app.job(max_attempts=2, backoff="none")
    def fail(n: int) -> int:
        if broken:
            raise ValueError("no")
        return n

    made = fail.enqueue(n=5)
    driven.drain()
    assert driven.states(made.id) == ["dead"]
    driven.control.redo(made.id, "the service is back")
    again = driven.store.read(operations.get_run, made.id)
    assert (again.state, again.failures, again.redo) == ("waiting", 0, 1)
    driven.drain()
    assert driven.states(made.id) == ["dead"]
    broken.clear()
    driven.control.redo(made.id)
    driven.drain()
    run = driven.store.read(operations.get_run, made.id)
    assert (run.state, run.result, run.attempt, run.redo) == ("succeeded", "5", 5, 2)
    assert attempts(driven, made.id) == ["failed"] * 4 + ["succeeded"]


@pytest.mark.parametrize("end", ["succeeded", "cancelled"])
def test_other_ends_can_be_done_again_too(driven: Driven, end: str) -> None:
    @driven.app.job()
    def note(ctx: rota.Context) -> Any:
        return rota.Cancel() if end == "cancelled" and ctx.attempt == 1 else ctx.attempt

    made = note.enqueue()
    driven.drain()
    assert driven.states(made.id) == [end]
    driven.control.redo(made.id)
    driven.drain()
    assert driven.store.read(operations.get_run, made.id).result == "2"


# Results


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (5, "5"),
        ({"a": [1, None, "☃"]}, '{"a":[1,null,"☃"]}'),
        (timedelta(seconds=90), '"PT90S"'),
        (object(), '{"not_stored":"a object that JSON cannot carry"}'),
    ],
)
def test_what_is_returned_is_kept_as_json(driven: Driven, value: object, stored: str) -> None:
    @driven.app.job()
    def give() -> object:
        return value

    made = give.enqueue()
    driven.drain()
    run = driven.store.read(operations.get_run, made.id)
    assert (run.state, run.result) == ("succeeded", stored)


def test_a_result_past_its_limit_says_so_and_the_work_counts(driven: Driven) -> None:
    @driven.app.job()
    def give() -> str:
        return "x" * RESULT_BYTES

    made = give.enqueue()
    driven.drain()
    run = driven.store.read(operations.get_run, made.id)
    assert run.state == "succeeded"
    assert json.loads(run.result or "") == {
        "not_stored": f"{RESULT_BYTES + 2:,} bytes as JSON; the limit is {RESULT_BYTES:,}"
    }


# The context


def test_a_handler_knows_its_run(driven: Driven) -> None:
    seen: list[Any] = []

    @driven.app.job(queue="mail")
    def note(ctx: rota.Context, to: str) -> None:
        seen.append((ctx.job, ctx.queue, ctx.run_id, ctx.attempt, ctx.args, ctx.correlation_id))
        seen.append((ctx.scheduled_at, ctx.cancelled, ctx.missed_count, ctx.timeout))

    due = driven.clock.now + timedelta(minutes=1)
    made = driven.app.enqueue("note", {"to": "a"}, at=due, correlation_id="c", timeout="5m")
    driven.advance("2 minutes")
    assert seen[0] == ("note", "mail", made.id, 1, {"to": "a"}, "c")
    assert seen[1][:2] == (due, False)
    assert seen[1][3] == timedelta(minutes=5)


def test_progress_is_shown_while_it_runs(app: rota.Rota, watch: Watch) -> None:
    gate = Gate()

    @app.job()
    def work(ctx: rota.Context) -> None:
        for done in range(5):
            ctx.progress(done, 5)
        gate()

    app.start()
    made = work.enqueue()
    gate.wait()
    told = {"done": 4, "total": 5}  # the last; one before it may be shown first
    wait_until(lambda: json.loads(app.control.run(made.id).progress or "0") == told, "progress")
    gate.open()
    assert watch.end(made.id).state == "succeeded"


def test_logs_are_captured_with_their_run(driven: Driven) -> None:
    @driven.app.job(max_attempts=2, backoff="none")
    def work(ctx: rota.Context) -> None:
        ctx.logger.info("attempt %d", ctx.attempt)
        ctx.logger.warning("naïve \0 ☃")
        try:
            raise ValueError("inner")
        except ValueError:
            ctx.logger.exception("caught")
        if ctx.attempt == 1:
            raise RuntimeError("again")

    made = work.enqueue()
    driven.drain()
    lines = driven.control.logs(made.id)
    assert [(line["attempt"], line["level"]) for line in lines] == [
        (attempt, level) for attempt in (1, 2) for level in ("INFO", "WARNING", "ERROR")
    ]
    assert lines[0]["text"] == "attempt 1"
    assert lines[1]["text"] == "naïve \N{REPLACEMENT CHARACTER} ☃"
    assert lines[2]["text"].endswith("ValueError: inner")
    page = driven.control.logs(made.id, after=lines[3]["id"], limit=1)
    assert [line["id"] for line in page] == [lines[4]["id"]]


@pytest.mark.each_engine
def test_ctx_db_is_a_connection_to_the_store_in_autocommit(driven: Driven) -> None:
    kept: list[Any] = []

    @driven.app.job()
    def work(ctx: rota.Context) -> int:
        kept.append(ctx.db)
        ctx.db.execute("CREATE TABLE mine (n INTEGER)")
        ctx.db.execute("INSERT INTO mine VALUES (5)")
        assert ctx.db is kept[0]
        answer: int = ctx.db.execute("SELECT n FROM mine").fetchone()[0]
        return answer

    made = work.enqueue()
    driven.drain()
    assert driven.store.read(operations.get_run, made.id).result == "5"
    with pytest.raises(Exception, match="closed"):
        kept[0].execute("SELECT 1")


@pytest.mark.each_engine
def test_a_handler_in_another_process_has_the_same_context(app: rota.Rota, watch: Watch) -> None:
    app.job(isolation="process")(handlers.tell)
    app.job(isolation="process")(handlers.pid)
    app.start()
    made = app.enqueue("tell", {"lock": "door"})
    run = watch.end(made.id)
    assert run.state == "succeeded", run.error
    assert json.loads(run.result or "") == {
        "job": "tell", "attempt": 1, "args": {"lock": "door"}, "two": 2,
    }  # fmt: skip
    other = watch.end(app.enqueue("pid").id)
    assert int(other.result or 0) != os.getpid()
    app.stop()
    assert [line["text"] for line in app.control.logs(made.id)] == ["printed", "logged 5"]
