"""Lifecycle events: once per run at its start and its end, once per attempt for the rest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import rota
from rota.flow.events import NAMES, RunEvent
from tests.api.support import Driven, Watch, wait_until


def test_a_run_that_works_tells_its_start_and_its_end(app: rota.Rota, watch: Watch) -> None:
    @app.job()
    def note() -> None: ...

    app.start()
    made = note.enqueue()
    run = watch.end(made.id)
    assert watch.of(made.id) == [
        "job.started", "attempt.started", "attempt.succeeded", "job.completed",
    ]  # fmt: skip
    (event,) = watch.events("job.completed")
    assert (event.name, event.run_id, event.attempt) == ("note", made.id, 1)
    assert (event.scheduled_at, event.error) == (run.due_at, None)
    assert event.duration_ms is not None
    assert event.duration_ms >= 0


def test_a_run_that_dies_has_failed_once_after_its_last_attempt(driven: Driven) -> None:
    watch = Watch(driven.app)

    @driven.app.job(max_attempts=3, backoff="none")
    def fail() -> None:
        raise ValueError("no")

    made = fail.enqueue()
    driven.drain()
    assert watch.of(made.id) == [
        "job.started",
        *["attempt.started", "attempt.failed"] * 3,
        "job.failed",
    ]
    (event,) = watch.events("job.failed")
    assert event.attempt == 3
    assert event.error is not None
    assert event.error.endswith("ValueError: no")


def test_other_outcomes_have_their_own_names(driven: Driven) -> None:
    watch = Watch(driven.app)

    @driven.app.job()
    def stop() -> Any:
        return rota.Cancel("why")

    @driven.app.job()
    def later(ctx: rota.Context) -> Any:
        return rota.Snooze("1s") if ctx.attempt == 1 else None

    stopped, snoozed = stop.enqueue(), later.enqueue()
    driven.advance("1 minute")
    assert watch.of(stopped.id)[-2:] == ["attempt.cancelled", "job.cancelled"]
    assert watch.of(snoozed.id) == [
        "job.started", "attempt.started", "attempt.released",
        "attempt.started", "attempt.succeeded", "job.completed",
    ]  # fmt: skip


def test_a_run_that_rescue_ends_has_failed_too(make_app: Callable[..., rota.Rota]) -> None:
    app = make_app(max_lost=1)
    watch = Watch(app)

    @app.job()
    def note() -> None: ...

    made = note.enqueue()
    app.storage.claim("gone", queues=(), jobs=["note"], limit=1, lease=timedelta(milliseconds=20))
    app.start()
    run = watch.end(made.id)
    assert (run.state, run.lost, run.failures) == ("dead", 1, 0)
    assert watch.of(made.id) == ["attempt.lost", "job.failed"]
    (event,) = watch.events("job.failed")
    assert event.error == "attempt 1: its worker was lost"


def test_only_the_process_that_settles_tells(make_app: Callable[..., rota.Rota]) -> None:
    worker, client = make_app(), make_app()

    @worker.job()
    def note() -> None: ...

    here, there = Watch(worker), Watch(client)
    worker.start()
    made = client.enqueue("note")
    here.end(made.id)
    assert there.of(made.id) == []


def test_a_listener_that_raises_harms_nobody(
    app: rota.Rota, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[RunEvent] = []

    @app.on("job.completed")
    def broken(event: RunEvent) -> None:
        raise RuntimeError("broken listener")

    @app.on("job.completed")
    def working(event: RunEvent) -> None:
        seen.append(event)

    @app.job()
    def note() -> None: ...

    app.start()
    for _ in range(2):
        note.enqueue()
    wait_until(lambda: len(seen) == 2, "the second listener")
    assert app.health["settle"] is None
    assert "a listener to job.completed failed" in caplog.text


def test_a_run_of_a_schedule_tells_its_occurrence(driven: Driven) -> None:
    watch = Watch(driven.app)

    @driven.app.job(every="1h")
    def tick() -> None: ...

    driven.app.load()
    due = driven.clock.now + timedelta(hours=1)
    driven.advance("1 hour")
    (event,) = watch.events("job.completed")
    assert (event.name, event.scheduled_at) == ("tick", due)


def test_an_event_of_no_known_name_is_refused(app: rota.Rota) -> None:
    with pytest.raises(rota.Invalid) as caught:
        app.on("job.finished")(lambda event: None)
    assert str(caught.value) == (f"event 'job.finished' is unknown; use one of {', '.join(NAMES)}")
