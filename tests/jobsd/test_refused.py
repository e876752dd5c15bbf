"""What was refused never runs, also in a process that never read what was good."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rota
from rota.jobsd.folder import Folder
from rota.storage import operations
from tests.jobsd.support import Jobs, ended, wait_until

Start = Callable[..., rota.Rota]
ON_DEMAND, BAD = "schedule = false", "schedule = fals"


@pytest.fixture
def start(jobs: Jobs, shared: str) -> Iterator[Start]:
    """An app that serves a folder, as a process of its own would; `jobs` if no other is named."""
    made: list[rota.Rota] = []

    def begin(other: Jobs | None = None) -> rota.Rota:
        app = rota.Rota(shared, jobs_dir=str((other or jobs).root))
        app._folder = Folder(app, settle_seconds=0.0)
        made.append(app)
        app.start()
        return app

    yield begin
    for app in made:
        app.stop(grace="0s")


def said(app: rota.Rota, name: str = "tidy") -> str:
    """What the last file of a run selected."""
    done = ended(app, name)
    assert done.error is None
    return str(done.result)


def refused(app: rota.Rota, name: str = "tidy") -> None:
    wait_until(lambda: app.storage.read(operations.jobs_named, [name])[name].error, "the error")


def edit_badly(jobs: Jobs) -> None:
    """The manifest first: nothing has to keep still here, so whoever looks between two of the
    files would take the new texts beside the good one."""
    (jobs.root / "tidy" / "job.toml").write_text(BAD)
    jobs.sql("tidy", None, **{"01": "SELECT 'refused'", "02": "SELECT 'refused, too'"})


def has_texts(app: rota.Rota, name: str = "tidy") -> bool:
    hashes = app.storage.read(operations.jobs_named, [name])[name].spec["hashes"]
    return hashes["01.sql"] in app.storage.read(operations.texts_of, [hashes["01.sql"]])


def test_the_last_good_texts_run_after_a_restart(jobs: Jobs, start: Start) -> None:
    jobs.sql("tidy", ON_DEMAND, **{"01": "SELECT 'good'"})
    app = start()
    assert "good" in said(app)
    edit_badly(jobs)
    refused(app)
    assert "good" in said(app)
    app.stop()
    after = start()
    assert "good" in said(after)
    jobs.sql("tidy", ON_DEMAND)
    wait_until(
        lambda: not after.storage.read(operations.jobs_named, ["tidy"])["tidy"].error,
        "the mended version",
    )
    assert "refused, too" in said(after)  # it is good now


def test_also_where_they_never_ran(jobs: Jobs, start: Start) -> None:
    jobs.sql("tidy", ON_DEMAND, **{"01": "SELECT '${GOOD:-good}'"})
    app = start()
    assert not has_texts(app)
    edit_badly(jobs)
    refused(app)
    wait_until(lambda: has_texts(app), "the texts in the store")
    app.stop()
    assert "good" in said(start())


def test_also_where_the_edit_came_while_nobody_looked(jobs: Jobs, start: Start) -> None:
    jobs.sql("tidy", ON_DEMAND, **{"01": "SELECT 'good'"})
    app = start()
    assert "good" in said(app)
    app.stop()
    edit_badly(jobs)
    assert "good" in said(start())


def test_a_bad_manifest_alone_leaves_texts_that_are_the_good_ones(jobs: Jobs, start: Start) -> None:
    jobs.sql("tidy", ON_DEMAND, **{"01": "SELECT 'good'"})
    start().stop()
    (jobs.root / "tidy" / "job.toml").write_text(BAD)
    assert "good" in said(start())


@pytest.mark.parametrize("change", ["edited", "gone"])
def test_texts_that_are_nowhere_end_the_run_with_the_way_out(
    jobs: Jobs, start: Start, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    jobs.sql("tidy", ON_DEMAND, **{"01": "SELECT 'good'", "02": "SELECT 2"})
    start().stop()  # neither was run, nor was anybody there when it broke
    edit_badly(jobs)
    if change == "gone":
        (jobs.root / "tidy" / "01.sql").unlink()
    with caplog.at_level(logging.WARNING, "rota.jobsd"):
        app = start()
    told = {
        "edited": "01.sql is not the text of the last good version, which is not kept",
        "gone": "01.sql is gone",
    }[change]
    error = f"job 'tidy': {told}; bring it back, or mend what `rota check` says of this job"
    assert f"the last good version of {error}" in caplog.messages
    done = ended(app, "tidy")
    assert (done.state, done.error) == ("dead", error)
    jobs.sql("tidy", None, **{"01": "SELECT 'good'", "02": "SELECT 2"})
    assert '"rows":[[2]]' in said(app)


def test_who_has_no_texts_leaves_the_job_to_whom_has_them(
    jobs: Jobs, start: Start, tmp_path: Path
) -> None:
    """Two machines, one of which starts in the middle of a deploy."""
    late = Jobs(tmp_path / "late" / "jobs.d")
    jobs.sql("tidy", ON_DEMAND, **{"01": "SELECT 'good'"})
    late.sql("tidy", BAD, **{"01": "SELECT 'refused'"})
    one, two = start(), start(late)
    assert [job.name for job in one.jobs()] == ["tidy"]
    assert two.jobs() == []
    for _ in range(5):
        assert "good" in said(one)
    late.sql("tidy", ON_DEMAND, **{"01": "SELECT 'new'"})
    wait_until(two.jobs, "the version that was deployed")
    one.stop()
    assert "new" in said(two)


# What is removed does not run either


def take_away(jobs: Jobs, what: str) -> str:
    """Remove one of the two that make a job; what is said of the rest. It is kept beside the
    folder, and comes back whole from there."""
    (jobs.root / "tidy" / what).rename(jobs.root.with_name(what))
    return {
        "job.toml": "jobs.d/tidy: has .sql files and no job.toml; add one that begins: schedule",
        "01.sql": "jobs.d/tidy/job.toml: has no .sql file beside it; add tidy/01.sql",
    }[what]


def retired(app: rota.Rota, told: str) -> None:
    wait_until(
        lambda: app.storage.read(operations.jobs_named, ["tidy"])["tidy"].retired,
        "the end of the job",
    )
    assert (app.storage.read(operations.jobs_named, ["tidy"])["tidy"].error or "").startswith(
        f"retired: {told}"
    )
    assert app.jobs() == []
    assert not app.control.schedule("tidy").enabled
    (shown,) = app.problems()
    assert shown.startswith(told)


@pytest.mark.parametrize("what", ["job.toml", "01.sql"])
def test_a_job_without_its_manifest_or_any_sql_is_removed(
    jobs: Jobs, start: Start, what: str
) -> None:
    folder = jobs.sql("tidy", 'every = "1h"', **{"01": "SELECT 'good'"})
    app = start()
    assert "good" in said(app)
    schedule_id = app.control.schedule("tidy").id
    waiting = app.enqueue("tidy", delay="1h").id
    told = take_away(jobs, what)
    retired(app, told)
    wait_until(lambda: app.control.run(waiting).state == "cancelled", "the end of what waits")
    app.stop()
    after = start()
    retired(after, told)
    jobs.root.with_name(what).rename(folder / what)
    wait_until(lambda: after.jobs() and after.control.schedule("tidy").enabled, "the job")
    assert "good" in said(after)
    schedule = after.control.schedule("tidy")
    assert (schedule.id, schedule.enabled) == (schedule_id, True)
    assert after.problems() == []


@pytest.mark.parametrize("what", ["job.toml", "01.sql"])
def test_also_while_nobody_looked(jobs: Jobs, start: Start, what: str) -> None:
    jobs.sql("tidy", 'every = "1h"', **{"01": "SELECT 'good'"})
    start().stop()
    told = take_away(jobs, what)
    retired(start(), told)


def test_it_stays_where_another_machine_has_it_whole(
    jobs: Jobs, start: Start, tmp_path: Path
) -> None:
    other = Jobs(tmp_path / "other" / "jobs.d")
    for one in (jobs, other):
        one.sql("tidy", 'every = "1h"', **{"01": "SELECT 'good'"})
    here, there = start(), start(other)
    take_away(jobs, "job.toml")
    wait_until(lambda: not here.jobs(), "the end of the job here")
    wait_until(here.problems, "the error")
    assert "good" in said(there)
    assert there.control.schedule("tidy").enabled
    assert there.storage.read(operations.jobs_named, ["tidy"])["tidy"].error is None
