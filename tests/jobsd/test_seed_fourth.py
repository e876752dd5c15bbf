"""The fourth seed document, end to end: a file with a schedule and a default handler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

import rota
from rota.flow.events import RunEvent
from rota.model.run import Run
from tests.jobsd.seeds import Gate, Seed
from tests.jobsd.support import Jobs, wait_until

# The document's own contract: nothing but a schedule and a default handler that is given db,
# logger and storage.
CLEANUP = """\
schedule = "{schedule}"


async def default(ctx):
    ctx.logger.info("attempt %d begins", ctx.attempt)
    ctx.db.execute("SELECT 1")
    assert ctx.storage.get("nothing") is None
    assert ctx.storage.delete("nothing") is False
    {end}
"""
NIGHTLY, OFTEN = "0 3 * * *", "*/3 * * * * *"
FAILS, WORKS = 'raise ValueError("no broom")', "return None"
HEARD = ("job.started", "job.completed", "job.failed", "attempt.failed")


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[], Seed]]:
    """The process that serves the folder; again after a restart."""
    made: list[Seed] = []

    def make() -> Seed:
        now = made[-1].clock.now if made else datetime(2026, 3, 2, 2, 59, 59, tzinfo=UTC)
        made.append(Seed(tmp_path, f"sqlite:///{tmp_path / 'rota.db'}", now))
        return made[-1]

    yield make
    for seed in made:
        seed.stop()


def cleanup(jobs: Jobs, schedule: str = NIGHTLY, end: str = FAILS) -> Path:
    return jobs.python("cleanup", CLEANUP.format(schedule=schedule, end=end))


def waiting(seed: Seed, attempt: int) -> Run:
    """The run after a failed attempt, waiting for its next."""

    def waits() -> bool:
        return [(run.state, run.attempt) for run in seed.runs("cleanup")] == [("waiting", attempt)]

    wait_until(waits, f"attempt {attempt} has failed")
    return seed.runs("cleanup")[0]


def fail_three_times(seed: Seed) -> Run:
    """From its fire to its end; the time of the test stands still while an attempt runs."""
    seed.pass_time("1s")
    for attempt in (1, 2):
        assert waiting(seed, attempt).due_at == seed.clock.now + timedelta(seconds=5)
        seed.pass_time("5s")
    seed.until("cleanup", ["dead"])
    return seed.runs("cleanup")[0]


def test_three_attempts_five_seconds_apart(make: Callable[[], Seed]) -> None:
    seed = make()
    path = cleanup(seed.jobs)
    heard = seed.hear(*HEARD)
    dead = fail_three_times(seed.start())
    assert (dead.attempt, dead.failures) == (3, 3)
    assert (dead.error or "").endswith("ValueError: no broom")
    ends = [one["finished_at"] for one in seed.app.control.attempts(dead.id)]
    begin = datetime(2026, 3, 2, 3, tzinfo=UTC)
    assert sorted(ends) == [begin + timedelta(seconds=late) for late in (0, 5, 10)]

    wait_until(lambda: len(heard) >= 5, "all events")
    names = [name for name, _ in heard]
    assert sorted(names) == ["attempt.failed"] * 3 + ["job.failed", "job.started"]
    events = dict(heard)
    started, failed = events["job.started"], events["job.failed"]
    for event in (started, failed):
        assert (event.name, event.run_id) == ("cleanup", dead.id)
        assert (event.file_path, event.schedule) == (str(path), NIGHTLY)
        assert event.scheduled_at == begin
    assert (started.attempt, failed.attempt) == (1, 3)
    assert "no broom" in (failed.error or "")
    assert failed.duration_ms is not None


def test_a_success_completes_once(make: Callable[[], Seed]) -> None:
    seed = make()
    cleanup(seed.jobs, end=WORKS)
    heard = seed.hear(*HEARD)
    seed.start().pass_time("1s")
    seed.until("cleanup", ["succeeded"])
    wait_until(lambda: len(heard) >= 2, "both events")
    assert [name for name, _ in heard] == ["job.started", "job.completed"]
    completed = heard[1][1]
    assert (completed.attempt, completed.error) == (1, None)
    assert completed.duration_ms is not None


def test_ticks_in_the_waits_between_attempts_are_skipped(make: Callable[[], Seed]) -> None:
    seed = make()
    cleanup(seed.jobs, OFTEN)
    seed.start().pass_time("1s")
    waiting(seed, 1)
    seed.pass_time("1s", times=5)  # a tick at :03, and the next attempt at :05
    assert waiting(seed, 2).due_at == datetime(2026, 3, 2, 3, 0, 10, tzinfo=UTC)
    seed.pass_time("1s", times=5)  # ticks at :06 and :09, and the last attempt at :10
    seed.until("cleanup", ["dead"])
    seed.pass_time("1s", times=2)  # its predecessor is over: :12 fires
    (_, second) = seed.runs("cleanup")
    assert second.occurrence == datetime(2026, 3, 2, 3, 0, 12, tzinfo=UTC)
    rows = seed.app.control.occurrences("cleanup", limit=99)
    told = [(row["occurrence"].second, row["outcome"]) for row in reversed(rows)]
    skipped = [(second, "skipped") for second in (3, 6, 9)]
    assert told == [(0, "fired"), *skipped, (12, "fired")]
    assert all(row["reason"] for row in rows if row["outcome"] == "skipped")


def test_the_run_log_outlives_a_restart(make: Callable[[], Seed]) -> None:
    first = make()
    cleanup(first.jobs)
    dead = fail_three_times(first.start())
    first.stop()

    second = make().start()
    (kept,) = second.app.runs("cleanup")
    assert kept == dead
    assert (kept.state, kept.attempt) == ("dead", 3)
    assert None not in (kept.started_at, kept.finished_at, kept.error)
    lines = [line["text"] for line in second.app.control.logs(kept.id)]
    assert lines == [f"attempt {number} begins" for number in (1, 2, 3)]
    # Nothing of it is done again: the next one is tomorrow's.
    tomorrow = datetime(2026, 3, 3, 3, tzinfo=UTC)
    assert second.app.control.schedule("cleanup").next_fire_at == tomorrow


def test_a_stop_does_not_kill_a_handler(make: Callable[[], Seed], tmp_path: Path) -> None:
    seed, gate = make(), Gate(tmp_path / "gate")
    cleanup(seed.jobs, end=f"return open({str(gate.path)!r}).read()")
    seed.start().pass_time("1s")
    stopping = threading.Thread(target=seed.app.stop, kwargs={"grace": "none"})
    wait_until(lambda: seed.app.under_way() == ["cleanup"], "the handler's start")
    stopping.start()
    gate.open()
    stopping.join(20)
    assert not stopping.is_alive()
    again = make()
    (ended,) = again.runs("cleanup")
    assert (ended.state, ended.attempt, ended.result) == ("succeeded", 1, '"go\\n"')


def test_the_engine_of_the_document(make: Callable[[], Seed]) -> None:
    """load, reload, list, getRuns: here load, reload, jobs, runs."""
    seed = make()
    app = seed.app
    app.load()
    assert app.jobs() == []
    cleanup(seed.jobs)
    seed.jobs.python("reports/weekly")
    app.reload()
    assert sorted(job.name for job in app.jobs()) == ["cleanup", "reports/weekly"]
    assert app.runs("cleanup") == []


@pytest.mark.long
def test_in_real_time(tmp_path: Path) -> None:
    jobs, heard = Jobs(tmp_path / "jobs.d"), list[tuple[str, RunEvent]]()
    cleanup(jobs, OFTEN)
    app = rota.Rota(f"sqlite:///{tmp_path / 'rota.db'}", jobs_dir=str(jobs.root))
    over = threading.Event()

    @app.on("job.started")
    def started(event: RunEvent) -> None:
        heard.append(("job.started", event))

    @app.on("job.failed")
    def failed(event: RunEvent) -> None:
        heard.append(("job.failed", event))
        over.set()

    app.start()
    try:
        assert over.wait(60), "the run did not end"
        first = [(name, one.attempt) for name, one in heard if one.run_id == heard[0][1].run_id]
        assert first == [("job.started", 1), ("job.failed", 3)]
        attempts = app.control.attempts(heard[0][1].run_id)
        starts = sorted(one["started_at"] for one in attempts)
        waits = [later - sooner for sooner, later in pairwise(starts)]
        assert len(waits) == 2
        assert min(waits) >= timedelta(seconds=5)
        outcomes = [row["outcome"] for row in app.control.occurrences("cleanup")]
        assert outcomes.count("skipped") >= 3
    finally:
        app.stop(grace="0s")
