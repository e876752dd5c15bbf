"""Lifecycle events: once per run at its start and its end, once per attempt for the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.flow import events as events_module
from rota.flow.events import NAMES, Events, RunEvent
from rota.model.job import Job
from rota.model.outcome import Outcome, settle
from rota.model.retry import ONCE
from rota.storage import operations
from tests.api.support import PATIENCE, SHORT_LEASE, Driven, Gate, Watch, wait_until
from tests.support.operations import replace_operation


@pytest.mark.each_engine
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
    app = make_app(max_lost=1, lease=SHORT_LEASE)
    watch = Watch(app)

    @app.job()
    def note() -> None: ...

    made = note.enqueue()
    app.storage.write(
        operations.claim,
        "gone",
        queues=(),
        jobs=["note"],
        limit=1,
        lease=timedelta(milliseconds=20),
    )
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


def test_an_event_says_what_its_schedule_says(driven: Driven) -> None:
    watch = Watch(driven.app)

    @driven.app.job(schedule="0 3 * * *", max_attempts=1)
    def tick() -> None:
        raise ValueError("postgresql://me:secret@host/db")

    driven.app.schedule("hourly", "tick", every="1h", ends_at=driven.ago(timedelta(hours=-1)))
    driven.app.load()
    driven.advance("1 hour")
    asked = tick.enqueue()
    driven.drain()
    for name in ("job.started", "attempt.started", "attempt.failed", "job.failed"):
        first, second = watch.events(name)
        assert (first.schedule, first.schedule_name) == ("every 1h", "hourly"), name
        assert (second.run_id, second.schedule, second.schedule_name) == (asked.id, None, None)
    (failed, _) = watch.events("job.failed")
    assert "secret" not in str(failed.error)
    assert failed.duration_ms == 0.0


def test_an_edited_schedule_is_asked_for_again(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, passed = Watch(driven.app), [0.0]
    monkeypatch.setattr("rota.flow.events.time.monotonic", lambda: passed[0])

    @driven.app.job()
    def tick() -> None: ...

    for every in ("1h", "2h", "2h"):
        driven.app.schedule("s", "tick", every=every)
        driven.app.load()
        driven.advance("2 hours")
        passed[0] += 6.0
    assert [event.schedule for event in watch.events("job.completed")] == [
        "every 1h", "every 1h", "every 1h", "every 2h",
    ]  # fmt: skip


def test_an_event_is_told_also_when_the_store_is_away(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(driven.app)

    @driven.app.job(every="1h")
    def tick() -> None: ...

    def away(*asked: object) -> None:
        raise rota.Unavailable("away")

    replace_operation(monkeypatch, driven.store, operations.schedule_words, away)
    driven.app.load()
    driven.advance("1 hour")
    assert [event.schedule for event in watch.events("job.completed")] == [None]


def test_an_event_of_a_file_says_where_it_is(driven: Driven, tmp_path: Path) -> None:
    watch, path = Watch(driven.app), tmp_path / "cleanup.py"
    path.write_text("def default(ctx): raise ValueError(ctx.attempt)\n")
    driven.app.add_job(file_job(path))
    made = driven.app.enqueue("cleanup")
    driven.advance("1 minute")
    assert watch.of(made.id).count("job.failed") == 1
    assert {event.file_path for event in watch.events("job.started")} == {str(path)}
    assert {event.file_path for event in watch.events("job.failed")} == {str(path)}


def test_a_failing_file_has_three_attempts_and_skips_the_ticks_meanwhile(
    driven: Driven, tmp_path: Path
) -> None:
    """The contract of a scheduled code file: one start, one failure, five seconds in between."""
    watch, path = Watch(driven.app), tmp_path / "cleanup.py"
    path.write_text("def default(ctx): raise ValueError(f'attempt {ctx.attempt}')\n")
    job = file_job(path)
    driven.app.add_job(job)
    driven.clock.set(datetime(2026, 3, 1, tzinfo=UTC))
    driven.app.schedule(
        "cleanup", "cleanup", cron="*/4 * * * * *", overlap="skip", overlap_key=job.overlap_key
    )
    driven.app.load()
    driven.advance("14s")
    (started,), (failed,) = watch.events("job.started"), watch.events("job.failed")
    assert (started.run_id, started.attempt) == (failed.run_id, 1)
    assert (failed.attempt, failed.schedule, failed.file_path) == (3, "*/4 * * * * *", str(path))
    assert str(failed.error).endswith("ValueError: attempt 3")
    attempts = driven.control.attempts(failed.run_id)
    assert [one["started_at"].second for one in attempts] == [4, 9, 14]
    outcomes = {
        row["occurrence"].second: row["outcome"] for row in driven.control.occurrences("cleanup")
    }
    assert outcomes == {4: "fired", 8: "skipped", 12: "skipped"}


def test_a_run_that_was_given_back_before_it_began_starts_once(
    make_app: Callable[..., rota.Rota],
) -> None:
    app = make_app()
    watch = Watch(app)

    @app.job()
    def note() -> None: ...

    made, lease = note.enqueue(), timedelta(minutes=1)
    (claimed,) = app.storage.write(
        operations.claim, "other", queues=(), jobs=["note"], limit=1, lease=lease
    )
    released = Outcome(kind="released", reason="no slot became free")
    app.storage.write(operations.settle, [settle(claimed, released, retry=ONCE, max_lost=3)])
    app.start()
    watch.end(made.id)
    assert watch.of(made.id) == [
        "job.started", "attempt.started", "attempt.succeeded", "job.completed",
    ]  # fmt: skip
    (event,) = watch.events("job.started")
    assert event.attempt == 2
    first, second = app.control.attempts(made.id)
    assert first["started_at"] is None
    assert second["started_at"] is not None


def test_a_run_that_is_cancelled_before_it_began_has_ended(driven: Driven) -> None:
    watch = Watch(driven.app)

    @driven.app.job()
    def note() -> None: ...

    made = note.enqueue()
    driven.control.cancel(made.id)
    assert watch.of(made.id) == ["job.cancelled"]
    (event,) = watch.events("job.cancelled")
    assert (event.name, event.attempt) == ("note", 0)


def test_nothing_is_asked_for_events_that_nobody_hears(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: object, **options: object) -> None:
        raise AssertionError("asked")

    for operation in (operations.schedule_words, operations.list_attempts):
        replace_operation(monkeypatch, driven.store, operation, never)
    monkeypatch.setattr("rota.flow.events.RunEvent", never)

    @driven.app.job(every="1h", max_attempts=2)
    def tick(ctx: rota.Context) -> Any:
        return rota.Snooze("1s") if ctx.attempt == 1 else None

    driven.app.load()
    driven.advance("2 hours")
    assert driven.app.health == {}
    assert driven.states(*[run.id for run in driven.store.read(operations.list_runs, limit=9)]) == [
        "waiting",
        "succeeded",
    ]


def file_job(path: Path) -> Job:
    spec = {"file": str(path), "function": "default", "version": "1"}
    return Job(name="cleanup", source="file", spec=spec, isolation="process")


def test_an_event_of_no_known_name_is_refused(app: rota.Rota) -> None:
    with pytest.raises(rota.Invalid) as caught:
        app.on("job.finished")(lambda event: None)
    assert str(caught.value) == (f"event 'job.finished' is unknown; use one of {', '.join(NAMES)}")


def test_a_stop_does_not_wait_for_a_listener_that_never_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events_module, "QUEUED", 1)
    events, gate = Events(), Gate()
    events.on("job.started", lambda event: gate())
    events.start()
    telling = events._thread
    assert telling is not None
    told = RunEvent(name="j", run_id="r", attempt=1, scheduled_at=datetime(2026, 3, 1, tzinfo=UTC))
    events.emit("job.started", told)
    gate.wait()
    events.emit("job.started", told)  # the last that has room
    stop = threading.Thread(target=events.stop, args=(0.01,), daemon=True)
    stop.start()
    stop.join(PATIENCE)
    assert not stop.is_alive()
    gate.open()
    telling.join(PATIENCE)
    assert not telling.is_alive(), "nothing is told after a stop"
