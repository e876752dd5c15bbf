"""Python files in the folder, run by real workers in real child processes."""

from __future__ import annotations

import json
from pathlib import Path

import rota
from rota.testing import TestApp
from tests.api.support import Watch, wait_until
from tests.jobsd.support import Jobs

FAILING = """\
schedule = "* * * * * *"
delay = "1500ms"

async def default(ctx):
    ctx.logger.info("attempt %d", ctx.attempt)
    raise ValueError(f"attempt {ctx.attempt}")
"""


def test_a_failing_file_starts_once_and_fails_once(jobs: Jobs, tmp_path: Path) -> None:
    path = jobs.python("cleanup", FAILING)
    database = f"sqlite:///{tmp_path / 'rota.db'}"
    app = rota.Rota(database, jobs_dir=str(jobs.root))
    watch = Watch(app)
    app.start()
    try:
        wait_until(lambda: watch.events("job.failed"), "the end")
    finally:
        app.stop(grace="5s")
    failed = watch.events("job.failed")[0]
    (started,) = [event for event in watch.events("job.started") if event.run_id == failed.run_id]
    assert (started.attempt, failed.attempt) == (1, 3)
    for event in (started, failed):
        assert (event.name, event.file_path, event.schedule) == (
            "cleanup", str(path), "* * * * * *",
        )  # fmt: skip
    assert failed.duration_ms is not None
    assert str(failed.error).endswith("ValueError: attempt 3")
    # Another process, later: the log of the run is still there.
    again = rota.Rota(database)
    run = again.control.run(failed.run_id)
    assert (run.state, run.failures, run.occurrence) == ("dead", 3, failed.scheduled_at)
    assert [one["outcome"] for one in again.control.attempts(run.id)] == ["failed"] * 3
    lines = [line["text"] for line in again.control.logs(run.id)]
    assert lines == ["attempt 1", "attempt 2", "attempt 3"]
    ledger = [row["outcome"] for row in again.control.occurrences("cleanup")]
    assert ledger.count("skipped") >= 2  # the ticks while it waited for its next attempt
    again.close()


def test_its_attempts_are_three_and_five_seconds_apart(jobs: Jobs) -> None:
    jobs.python("cleanup", 'every = "1h"\ndef run(ctx):\n    raise ValueError\n')
    app = TestApp(jobs_dir=str(jobs.root))
    app.load()
    app.advance("1 hour")
    app.advance("1 minute")
    (run,) = app.runs("cleanup")
    starts = [one["started_at"] for one in app.control.attempts(run.id)]
    assert [(start - starts[0]).total_seconds() for start in starts] == [0.0, 5.0, 10.0]
    assert app.control.schedule("cleanup").overlap == "skip"
    app.close()


def test_a_file_has_all_of_its_context_in_a_child(jobs: Jobs, tmp_path: Path) -> None:
    jobs.python(
        "whole",
        """\
        import os
        import _beside

        schedule = False

        def run(ctx, number: int = 1):
            ctx.progress(1, 2)
            kept = ctx.storage.put("a.txt", "text", ttl="1h")
            with ctx.lock("door"):
                two = ctx.db.execute("SELECT 1 + ?", (number,)).fetchone()[0]
            return [two, ctx.storage.read(kept.id).decode(), _beside.WORD, os.getppid()]
        """,
    )
    jobs.python("_beside", "WORD = 'beside'\n")
    app = rota.Rota(f"sqlite:///{tmp_path / 'rota.db'}", jobs_dir=str(jobs.root))
    watch = Watch(app)
    app.start()
    try:
        run = watch.end(app.enqueue("whole", {"number": 4}).id)
        assert run.state == "succeeded", run.error
        assert json.loads(run.result or "")[:3] == [5, "text", "beside"]
        (file,) = app.control.files("a.")
        assert (file["job"], file["run_id"]) == ("whole", run.id)
    finally:
        app.stop(grace="5s")


def test_the_text_that_was_good_runs_also_after_a_restart_of_the_app(
    jobs: Jobs, tmp_path: Path
) -> None:
    path = jobs.python("cleanup", "schedule = False\ndef run(ctx):\n    return 'good'\n")
    app = rota.Rota(f"sqlite:///{tmp_path / 'rota.db'}", jobs_dir=str(jobs.root))
    watch = Watch(app)
    for _ in range(2):
        app.start()
        path.write_text("def run(")
        try:
            run = watch.end(app.enqueue("cleanup").id)
        finally:
            app.stop(grace="5s")
        assert run.state == "succeeded", run.error
