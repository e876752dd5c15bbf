"""`rota.testing`: the store in memory and the clock that users test their own jobs with."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import rota
from rota.testing import Clock, TestApp, in_memory

pytestmark = pytest.mark.anyio


def test_an_app_in_memory_runs_what_is_due() -> None:
    app = TestApp()

    @app.job()
    def add(a: int, b: int) -> int:
        return a + b

    made = add.enqueue(a=1, b=2)
    assert app.control.run(made.id).state == "queued"
    (run,) = app.drain()
    assert (run.id, run.state, run.result) == (made.id, "succeeded", "3")
    assert app.drain() == []


def test_three_days_pass_in_an_instant() -> None:
    app = TestApp()

    @app.job(schedule="0 3 * * *")
    def rollup(ctx: rota.Context) -> None: ...

    app.load()
    worked = app.advance("3 days")
    assert len(app.runs("rollup")) == len(worked) == 3
    assert app.clock.now == datetime(2026, 1, 4, tzinfo=UTC)
    assert [run.occurrence for run in worked] == [
        datetime(2026, 1, day, 3, tzinfo=UTC) for day in (1, 2, 3)
    ]


def test_retries_and_delays_happen_in_their_time() -> None:
    app = TestApp(now=datetime(2030, 5, 1, tzinfo=UTC))
    tried: list[datetime] = []

    @app.job(max_attempts=3, delay="10s")
    def flaky() -> None:
        tried.append(app.clock.now)
        if len(tried) < 3:
            raise ValueError("no")

    flaky.enqueue(delay="1h")
    app.advance("2 hours")
    begin = datetime(2030, 5, 1, 1, tzinfo=UTC)
    assert tried == [begin + timedelta(seconds=seconds) for seconds in (0, 10, 20)]


def test_runs_that_make_runs_are_drained_too() -> None:
    app = TestApp()

    @app.job()
    def child(n: int) -> None:
        if n:
            child.enqueue(n=n - 1)

    child.enqueue(n=5)
    assert len(app.drain()) == 6


def test_every_kind_of_handler_runs_in_the_test_itself() -> None:
    app = TestApp()

    @app.job()
    async def on_loop() -> str:
        return "loop"

    @app.job(timeout="1m", isolation="thread")
    def with_timeout() -> int:
        return os.getpid()

    on_loop.enqueue()
    with_timeout.enqueue()
    assert [run.result for run in app.drain()] == ['"loop"', str(os.getpid())]


async def test_inside_a_running_event_loop() -> None:
    app = TestApp()

    @app.job()
    async def on_loop() -> str:
        return "loop"

    await on_loop.aenqueue()
    assert [run.result for run in app.drain()] == ['"loop"']


def test_an_app_from_elsewhere_is_tested_without_its_database(tmp_path: Path) -> None:
    app = rota.Rota(f"sqlite:///{tmp_path}/never.db")

    @app.job(every="1h")
    def tick() -> None: ...

    for _ in range(2):
        with in_memory(app) as driver:
            app.load()
            assert len(driver.advance("3 hours")) == 3
            assert len(app.runs("tick")) == 3
            tick.enqueue(key="k")
    assert list(tmp_path.iterdir()) == []


def test_an_app_has_its_own_store_again_after_a_test_that_failed(tmp_path: Path) -> None:
    app = rota.Rota(f"sqlite:///{tmp_path}/rota.db")

    @app.job()
    def note() -> None: ...

    first = note.enqueue()

    def fail() -> None:
        with in_memory(app):
            assert app.runs("note") == []
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert [run.id for run in app.runs("note")] == [first.id]
    app.close()


def test_a_running_app_is_not_taken_over(tmp_path: Path) -> None:
    app = rota.Rota(f"sqlite:///{tmp_path}/rota.db")
    app.start()
    with pytest.raises(rota.Conflict, match="the app is running; stop it before a test uses it"):
        in_memory(app).__enter__()
    app.stop()


def test_listeners_hear_what_is_drained() -> None:
    app, seen = TestApp(), []

    @app.job()
    def note() -> None: ...

    for name in ("job.started", "attempt.started", "attempt.succeeded", "job.completed"):
        app.on(name)(lambda event, name=name: seen.append(name))
    note.enqueue()
    app.drain()
    assert seen == ["job.started", "attempt.started", "attempt.succeeded", "job.completed"]


@pytest.mark.parametrize(
    ("span", "passed"),
    [
        ("90s", timedelta(seconds=90)),
        ("3 days", timedelta(days=3)),
        ("1 day", timedelta(days=1)),
        ("2 minutes", timedelta(minutes=2)),
        ("1 second", timedelta(seconds=1)),
        ("4 weeks", timedelta(weeks=4)),
        ("1h30m", timedelta(minutes=90)),
        ("5 ms", timedelta(milliseconds=5)),
        (timedelta(hours=1), timedelta(hours=1)),
        (0, timedelta(0)),
    ],
)
def test_time_passes_as_it_is_told(span: object, passed: timedelta) -> None:
    clock = Clock()
    before, monotonic = clock(), clock.monotonic()
    clock.advance(span)
    assert clock() - before == passed
    assert clock.monotonic() - monotonic == pytest.approx(passed.total_seconds(), abs=1e-5)


@pytest.mark.parametrize("span", ["1 month", "2 years", "soon", "5 milliseconds", -1])
def test_a_time_that_is_none_is_refused(span: object) -> None:
    with pytest.raises(rota.Invalid, match=r"^advance "):
        Clock().advance(span)


def test_the_clock_can_be_set() -> None:
    clock = Clock()
    clock.set(datetime.fromisoformat("2026-03-29T03:00:00+02:00"))
    assert clock() == datetime(2026, 3, 29, 1, tzinfo=UTC)
