"""Which text a SQL run has: that of the version that was taken, whatever lies in the folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rota
from rota.executors import scripts
from rota.jobsd.folder import Folder
from rota.storage import operations
from tests.jobsd.support import Jobs, ended, wait_until

Start = Callable[..., rota.Rota]
ON_DEMAND = "schedule = false"
NEVER = 3600.0


@pytest.fixture
def start(jobs: Jobs, tmp_path: Path) -> Iterator[Start]:
    """An app that serves the folder; what changes after its start keeps still so long that it is
    not taken."""
    made: list[rota.Rota] = []

    def begin(settle_seconds: float = NEVER) -> rota.Rota:
        app = rota.Rota(f"sqlite:///{tmp_path / 'rota.db'}", jobs_dir=str(jobs.root))
        app._folder = Folder(app, settle_seconds=settle_seconds)
        made.append(app)
        app.start()
        return app

    yield begin
    for app in made:
        app.stop(grace="0s")


def test_a_script_that_is_being_written_is_not_run(jobs: Jobs, start: Start) -> None:
    jobs.sql("tidy", ON_DEMAND, **{"01": "SELECT 'old' AS text"})
    app = start()
    jobs.sql("tidy", ON_DEMAND, **{"01": "SELECT 'half'"})  # AS text FROM … is still to come
    assert '"rows":[["old"]]' in ended(app, "tidy").result


def test_a_script_that_was_removed_a_moment_ago_still_runs(jobs: Jobs, start: Start) -> None:
    folder = jobs.sql("tidy", ON_DEMAND, **{"01": "SELECT 1", "02": "SELECT 2 AS two"})
    app = start()
    os.rename(folder / "02.sql", folder / "02_new.sql")
    done = ended(app, "tidy")
    assert (done.state, done.error) == ("succeeded", None)
    assert "two" in done.result


def test_a_bad_edit_of_a_script_keeps_the_text_that_was_good(jobs: Jobs, start: Start) -> None:
    folder = jobs.sql("tidy", ON_DEMAND, **{"01": "SELECT 'good' AS text"})
    app = start(0.0)
    (folder / "01.sql").write_text("")
    wait_until(lambda: app.storage.read(operations.jobs_named, ["tidy"])["tidy"].error, "the error")
    assert '"rows":[["good"]]' in ended(app, "tidy").result
    (folder / "01.sql").write_text("SELECT 'better' AS text")
    wait_until(
        lambda: not app.storage.read(operations.jobs_named, ["tidy"])["tidy"].error,
        "the end of the error",
    )
    assert '"rows":[["better"]]' in ended(app, "tidy").result


def test_what_is_too_much_to_keep_is_read_from_its_folder(
    jobs: Jobs, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "KEPT_SCRIPTS_LENGTH", 10)
    jobs.sql("tidy", ON_DEMAND, **{"01": "SELECT 'old' AS text"})
    jobs.sql("new", ON_DEMAND, **{"01": "SELECT 'old' AS text, 2 AS two"})
    app = start()
    assert '"rows":[["old"]]' in ended(app, "tidy").result
    for name in ("tidy", "new"):
        jobs.sql(name, ON_DEMAND, **{"01": "SELECT 'half'"})
    assert '"rows":[["old"]]' in ended(app, "tidy").result  # the run before kept it
    assert "01.sql is not the text of the last good version" in ended(app, "new").error
