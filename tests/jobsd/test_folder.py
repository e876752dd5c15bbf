"""A folder and the store, step by step: add, change, break, remove, return."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rota.errors import Conflict
from rota.jobsd import load as loading
from rota.jobsd.folder import ACTOR, REPAIR_SECONDS, ROOT_SECONDS, Folder
from rota.model.job import Job
from rota.model.run import Run
from rota.model.schedule import Schedule
from rota.sql.execute import Statements
from rota.storage import operations
from rota.testing import TestApp
from tests.jobsd.support import Jobs, Served, wait_until
from tests.support.operations import replace_operation

Serve = Callable[..., Served]


def runs(served: Served, name: str) -> list[Run]:
    return served.app.control.runs(job=name, limit=99)


# Changes


def test_a_new_folder_is_live_after_the_quiet_period(served: Served, jobs: Jobs) -> None:
    served.load()
    jobs.sql("accounting")
    assert served.look() == pytest.approx(1.0)
    assert served.names() == []
    served.time.now += 1.0
    served.look()
    assert served.names() == ["accounting"]
    assert served.schedule("accounting").enabled


def test_a_half_written_file_is_never_taken(served: Served, jobs: Jobs) -> None:
    served.load()
    folder = jobs.sql("accounting", 'every = "1h')
    for end in ('"', "\nqueue_max", " = 3"):
        served.look()
        served.time.now += 0.6
        with open(folder / "job.toml", "a") as file:
            file.write(end)
    served.settle()
    assert served.schedule("accounting").queue_max == 3
    assert [change["action"] for change in served.app.control.changes("accounting")] == ["create"]


def test_a_file_that_changes_while_it_is_read_is_read_again(
    served: Served, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.load()
    jobs.sql("accounting", 'every = "1h"')
    served.look()
    served.time.now += 1.0
    read, before = loading.read_bytes, []

    def slow(path: Path, **options: object) -> bytes:
        content = read(path, **options)  # type: ignore[arg-type]
        if not before:
            before.append(content)
            # Longer: to a file system that counts in ticks it may be the same instant.
            jobs.sql("accounting", 'every = "12h"')
        return content

    monkeypatch.setattr(loading, "read_bytes", slow)
    served.look()
    assert before
    assert served.names() == []
    served.settle()
    assert served.schedule("accounting").expr == "12h"


def test_a_changed_script_is_another_version_and_leaves_the_schedule(
    served: Served, jobs: Jobs
) -> None:
    jobs.sql("accounting")
    served.load()
    before, schedule = served.registered(), served.schedule("accounting")
    jobs.sql("accounting", **{"01": "SELECT 2"})
    served.settle()
    assert served.registered() != before
    assert served.schedule("accounting") == schedule


def test_a_change_is_logged_with_the_files_that_changed(
    served: Served, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rota.jobsd")
    jobs.sql("sales", **{"01": "SELECT 1", "02": "SELECT 2"})
    served.load()
    served.look()
    for change, told in (
        ({"02": "SELECT 3"}, "jobs.d/sales/02.sql"),
        ({"01": "SELECT 4", "03": "SELECT 5"}, "jobs.d/sales/01.sql, jobs.d/sales/03.sql"),
    ):
        jobs.sql("sales", None, **change)
        served.settle()
        assert caplog.messages[-1] == f"job sales changed ({told})"
    jobs.sql("sales", 'every = "2h"', **{"03": "SELECT 5"})
    served.settle()
    assert caplog.messages[-1] == "job sales changed (jobs.d/sales/job.toml)"
    jobs.sql("sales", 'every = "2x"', **{"03": "SELECT 5"})
    served.settle()
    assert caplog.messages[-1].endswith("; the last good version stays in use")
    jobs.sql("never", 'every = "2x"')
    served.settle()
    assert caplog.messages[-1].startswith("jobs.d/never/job.toml:1: every '2x' is not a duration")
    assert "last good" not in caplog.messages[-1]


def test_a_touched_file_is_the_same_version(served: Served, jobs: Jobs) -> None:
    jobs.sql("accounting")
    served.load()
    before = served.registered()
    jobs.sql("accounting")
    served.settle()
    assert served.registered() == before


def test_a_renamed_folder_is_another_job(served: Served, jobs: Jobs) -> None:
    folder = jobs.sql("accounting")
    served.load()
    folder.rename(jobs.root / "books")
    served.settle()
    assert list(served.registered()) == served.names() == ["books"]


def test_the_folder_may_come_later_and_go_again(served: Served, jobs: Jobs) -> None:
    jobs.root.rmdir()
    served.load()
    jobs.sql("accounting")
    served.settle()
    assert served.names() == ["accounting"]
    jobs.root.rename(jobs.root.with_name("away"))
    served.settle()
    assert served.names() == ["accounting"], "it may be replaced just now"
    served.time.now += ROOT_SECONDS
    served.settle()
    assert served.names() == list(served.registered()) == []
    jobs.root.with_name("away").rename(jobs.root)
    served.settle()
    assert list(served.registered()) == ["accounting"]


def test_a_bad_edit_keeps_the_last_good_version_and_shows_the_error(
    served: Served, jobs: Jobs
) -> None:
    jobs.sql("accounting", 'every = "1h"\ntimeout = "1m"')
    jobs.sql("other")
    served.load()
    good, schedule = served.app.jobs(), served.schedule("accounting")
    jobs.sql("accounting", 'every = "1h"\ntimeuot = "1m"')
    served.settle()
    assert "did you mean 'timeout'" in served.error("accounting")
    assert served.app.jobs() == good
    assert served.schedule("accounting") == schedule
    jobs.sql("accounting", 'every = "1h"\ntimeout = "1m"')
    served.settle()
    assert served.error("accounting") == ""


def test_a_bad_edit_of_python_keeps_the_text_that_was_good(served: Served, jobs: Jobs) -> None:
    jobs.python("cleanup", "schedule = '0 3 * * *'\ndef run(ctx):\n    return 'good'\n")
    served.load()
    jobs.python("cleanup", "schedule = '0 3 * * *'\ndef run(ctx:\n")
    served.settle()
    assert "SyntaxError" in served.error("cleanup")
    app = served.app
    app.start()
    run_id = app.enqueue("cleanup").id
    wait_until(lambda: app.control.run(run_id).finished_at, "the run's end")
    assert app.control.run(run_id).result == '"good"'


def test_a_file_that_breaks_while_all_are_down_keeps_its_last_good_version(
    serve: Serve, jobs: Jobs
) -> None:
    jobs.sql("accounting")
    serve(jobs).load().app.stop()
    (jobs.root / "accounting" / "job.toml").write_text("every = ")
    after = serve(jobs).load()
    assert after.names() == ["accounting"]
    assert "is not valid TOML" in after.error("accounting")
    assert after.schedule("accounting").enabled
    assert after.app.jobs()[0].spec["folder"] == str(jobs.root / "accounting")


def test_a_name_of_the_apps_own_job_is_refused_naming_both(
    served: Served, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    @served.app.job("cleanup")
    def cleanup() -> None: ...

    jobs.python("cleanup")
    served.load()
    error = served.folder.definitions["cleanup"].error
    assert error == "jobs.d/cleanup.py: the app has a job 'cleanup' as well; rename one of them"
    assert error in caplog.text
    assert "last good" not in caplog.text
    assert served.app.jobs()[0].source == "code"


GOOD, BROKEN = "every = '1h'\ndef run(ctx):\n    return 1\n", "def run(ctx:\n"


@pytest.mark.parametrize("text", [GOOD, BROKEN])
def test_a_file_with_the_name_of_the_apps_job_leaves_that_job_alone(
    serve: Serve, shared: str, jobs: Jobs, text: str
) -> None:
    served = serve(jobs, database=shared)

    @served.app.job("cleanup", every="1h", queue="own")
    def cleanup() -> None: ...

    served.app.load()
    waiting = served.app.enqueue("cleanup", delay="1h").id
    before = state(served, "cleanup")
    jobs.python("cleanup", text)
    served.app.start()
    served.folder._loop.stop(9)
    served.settle()
    assert served.app.problems()
    assert state(served, "cleanup") == before
    outlive_a_file(served, "cleanup")
    assert state(served, "cleanup") == before
    assert served.app.problems() == []
    assert served.app.control.run(waiting).state == "waiting"


def state(served: Served, name: str) -> tuple[Job, Schedule]:
    return served.app.storage.read(operations.jobs_named, [name])[name], served.schedule(name)


def outlive_a_file(served: Served, name: str) -> None:
    """Look again and again while it is there, and when it is gone."""
    for _ in range(3):
        served.time.now += REPAIR_SECONDS
        served.settle()
    served.jobs.remove(name)
    for _ in range(3):
        served.settle()
        served.time.now += REPAIR_SECONDS


def create(served: Served, name: str) -> None:
    statements = Statements(served.app.control)
    (made,) = statements.parse(f"CREATE SCHEDULE {name} AS $$ SELECT 1 $$ EVERY '1h'")
    statements.execute(made)


@pytest.mark.parametrize("text", [GOOD, BROKEN])
@pytest.mark.parametrize("learned", [True, False])
def test_a_file_with_the_name_of_a_statements_job_leaves_that_job_alone(
    serve: Serve, shared: str, jobs: Jobs, text: str, learned: bool
) -> None:
    served = serve(jobs, database=shared)
    create(served, "report")
    waiting = served.app.enqueue("report", delay="1h").id
    before = state(served, "report")
    if not learned:
        jobs.python("report", text)
    served.app.start()
    served.folder._loop.stop(9)
    wait_until(lambda: served.names() == ["report"], "what a worker learns")
    jobs.python("report", text)
    served.settle()
    assert served.app.problems()
    outlive_a_file(served, "report")
    assert state(served, "report") == before
    assert [job.source for job in served.app.jobs()] == ["api"]
    assert served.app.control.run(waiting).state == "waiting"


def test_the_name_of_a_statement_is_free_when_its_schedule_is_dropped(
    served: Served, jobs: Jobs
) -> None:
    create(served, "report")
    jobs.python("report", GOOD)
    served.load()
    told = "jobs.d/report.py: job 'report' belongs to a statement already; rename one of them"
    assert served.app.problems() == [told]
    assert served.names() == []
    served.app.control.drop("report")
    served.time.now += REPAIR_SECONDS
    served.look()
    assert served.names() == list(served.registered()) == ["report"]
    assert served.app.problems() == []
    assert served.schedule("report").enabled


def test_a_python_file_has_the_defaults_of_its_kind(served: Served, jobs: Jobs) -> None:
    jobs.python("cleanup", "\n\nevery = '1h'\n\ndef default(ctx):\n    return 1\n")
    served.load()
    (job,) = served.app.jobs()
    assert (job.spec["file"], job.spec["function"]) == (str(jobs.root / "cleanup.py"), "default")
    assert (job.isolation, job.retry.max_attempts) == ("process", 3)
    assert served.schedule("cleanup").overlap == "skip"


# Retiring


def test_a_deleted_folder_is_retired_and_its_queue_is_cleared(served: Served, jobs: Jobs) -> None:
    jobs.sql("accounting")
    served.load()
    waiting = served.app.enqueue("accounting").id
    later = served.app.enqueue("accounting", delay="1h").id
    other = jobs.sql("other") and served.load().app.enqueue("other").id
    jobs.remove("accounting")
    served.settle()
    for run_id in (waiting, later):
        run = served.app.control.run(run_id)
        assert (run.state, run.reason) == ("cancelled", "its job was retired: its files are gone")
    assert served.app.control.run(other).state == "queued"
    assert not served.schedule("accounting").enabled
    retired = "retired: no folder of origin 'jobs.d' has it any more"
    assert served.error("accounting") == retired
    assert served.app.control.explain("accounting").reasons == [f"its job is {retired}"]


def test_a_running_run_of_a_deleted_folder_ends_normally(served: Served, jobs: Jobs) -> None:
    jobs.sql("accounting", 'every = "1h"')
    served.sql.open.clear()
    served.load()
    served.app.start()
    served.folder._loop.stop(9)  # followed by hand
    running = served.app.control.trigger("accounting").id
    assert served.sql.started.acquire(timeout=20)
    # Held back by the one that runs, however quick the worker is.
    waiting = served.app.control.trigger("accounting").id
    jobs.remove("accounting")
    served.settle()
    assert served.app.control.run(waiting).state == "cancelled"
    served.sql.open.set()
    wait_until(lambda: served.app.control.run(running).state == "succeeded", "the end")


def test_deleted_while_down_is_retired_at_start_and_returns_without_its_past(
    serve: Serve, shared: str, jobs: Jobs
) -> None:
    jobs.sql("accounting", 'every = "1h"')
    before = serve(jobs, database=shared).load()
    before.app.control.pause("accounting", "incident")
    old = before.schedule("accounting")
    before.app.stop()
    jobs.remove("accounting")
    jobs.sql("other")
    down = serve(jobs, database=shared)
    down.app.start()
    assert list(down.registered()) == ["other"]
    assert not down.schedule("accounting").enabled
    down.app.stop()
    jobs.sql("accounting", 'every = "1h"')
    back = serve(jobs, database=shared).load()
    new = back.schedule("accounting")
    assert (new.id, new.enabled, new.paused, new.paused_reason) == (
        old.id, True, True, "incident",
    )  # fmt: skip
    assert new.next_fire_at == old.next_fire_at


def test_a_folder_that_is_not_there_at_start_retires_nothing(serve: Serve, jobs: Jobs) -> None:
    jobs.sql("accounting")
    serve(jobs).load().app.stop()
    jobs.root.rename(jobs.root.with_name("unmounted"))
    after = serve(jobs)
    after.app.start()
    assert list(after.registered()) == ["accounting"]


def test_two_checkouts_of_one_origin_leave_each_other_alone(
    serve: Serve, shared: str, tmp_path: Path
) -> None:
    one, two = Jobs(tmp_path / "one" / "jobs.d"), Jobs(tmp_path / "two" / "jobs.d")
    one.sql("shared")
    one.sql("only_one")
    two.sql("shared")
    two.sql("only_two")
    a, b = serve(one, database=shared), serve(two, database=shared)
    for served in (a, b):
        served.app.start()
        served.folder._loop.stop(9)
    assert list(a.registered()) == ["only_one", "only_two", "shared"]
    one.remove("shared")
    a.settle()
    assert "shared" in a.registered()
    two.remove("shared")
    b.settle()
    assert list(a.registered()) == ["only_one", "only_two"]
    for served in (a, b):  # however long they look at each other
        served.time.now += 100
        served.look()
        served.time.now += 100
        served.look()
    assert list(a.registered()) == ["only_one", "only_two"]


def test_a_newer_checkout_wins_and_an_older_one_stands_back(
    serve: Serve, shared: str, tmp_path: Path
) -> None:
    one, two = Jobs(tmp_path / "one" / "jobs.d"), Jobs(tmp_path / "two" / "jobs.d")
    one.sql("shared", 'every = "1h"')
    two.sql("shared", 'every = "2h"')
    a = serve(one, database=shared)
    a.app.start()
    b = serve(two, database=shared)
    b.app.start()
    assert a.schedule("shared").expr == "2h"
    a.app.stop()
    again = serve(one, database=shared)
    again.app.start()
    assert again.schedule("shared").expr == "2h"
    one.sql("shared", 'every = "3h"')
    again.folder._loop.stop(9)
    again.settle()
    assert again.schedule("shared").expr == "3h"


def test_what_another_retired_by_mistake_is_put_again(served: Served, jobs: Jobs) -> None:
    jobs.sql("accounting")
    served.load()
    served.app.storage.write(
        operations.retire_job, "accounting", "jobs.d", None, ACTOR, live_seconds=30
    )
    served.time.now += 60
    served.look()
    assert served.schedule("accounting").enabled
    assert served.error("accounting") == ""


# Around it


def test_load_and_reload_cover_files(served: Served, jobs: Jobs) -> None:
    jobs.sql("accounting")
    served.app.load()
    assert served.names() == ["accounting"]
    jobs.sql("accounting", 'every = "2h"')
    jobs.sql("more")
    served.app.reload()
    assert served.names() == ["accounting", "more"]
    assert served.schedule("accounting").expr == "2h"


def test_an_app_without_jobs_dir_serves_no_folder(
    tmp_path: Path, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    import rota

    monkeypatch.chdir(tmp_path)
    jobs.python("cleanup")
    app = rota.Rota("sqlite:///:memory:")
    app.load()
    assert app.jobs() == []
    app.close()


def test_a_test_app_serves_files_in_virtual_time(jobs: Jobs) -> None:
    jobs.python("cleanup", "every = '1h'\ndef run(ctx):\n    return 1\n")
    app = TestApp(jobs_dir=str(jobs.root))
    app.advance("3h")
    assert [run.state for run in app.runs("cleanup")] == ["succeeded"] * 3
    app.close()


def test_a_store_that_is_away_loses_nothing(
    served: Served, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rota.errors import Unavailable

    jobs.sql("accounting")
    served.load()
    jobs.sql("more")
    jobs.remove("accounting")
    store = served.app.storage

    def away(*args: object, **options: object) -> object:
        raise Unavailable("away")

    with monkeypatch.context() as patch:
        replace_operation(patch, store, operations.put_definitions, away)
        served.look()
        served.time.now += 1.0
        with pytest.raises(Unavailable):
            served.look()
    served.look()
    assert list(served.registered()) == ["more"]


def test_a_folder_is_made_once(served: Served) -> None:
    assert isinstance(served.app.serve_folder(), Folder)
    assert served.app.serve_folder() is served.folder


# Dropping


@pytest.mark.parametrize("place", ["cleanup.py", "etl/load", "etl/cleanup.py"])
def test_a_schedule_is_dropped_after_its_file_and_not_before(
    served: Served, jobs: Jobs, place: str
) -> None:
    name = place.removesuffix(".py")
    (jobs.python if place.endswith(".py") else jobs.sql)(name)
    served.load()
    with pytest.raises(Conflict) as refused:
        served.app.control.drop(name)
    assert str(refused.value) == (
        f"schedule {name!r} comes from jobs.d/{place}; pause it, set enabled = false there, or "
        "remove the file"
    )
    assert served.schedule(name).enabled
    jobs.remove(name)
    served.settle()
    served.app.control.drop(name)
    assert served.app.control.schedules() == []


def test_other_schedules_of_a_file_job_can_be_dropped(served: Served, jobs: Jobs) -> None:
    jobs.sql("accounting")
    served.load()
    extra = Schedule(name="extra", job="accounting", kind="every", expr="1h")
    served.app.control.put_schedule(extra)
    served.app.control.drop("extra")
    jobs.sql("accounting", "enabled = false\nevery = '1h'")
    served.settle()
    with pytest.raises(Conflict, match="comes from"):  # it would come back, switched off
        served.app.control.drop("accounting")
    jobs.sql("accounting", "schedule = false")
    served.settle()
    served.app.control.drop("accounting")
    served.settle()
    assert served.app.control.schedules() == []


def test_a_statement_that_drops_many_leaves_those_of_files(served: Served, jobs: Jobs) -> None:
    jobs.sql("b_of_a_file")
    served.load()
    for name in ("a", "c"):
        extra = Schedule(name=name, job="b_of_a_file", kind="every", expr="1h")
        served.app.control.put_schedule(extra)
    statements = Statements(served.app.control)
    (drop,) = statements.parse("DROP SCHEDULES (SELECT name FROM schedules)")
    assert len(statements.execute(drop).rows) == 2
    assert [one.name for one in served.app.control.schedules()] == ["b_of_a_file"]
    (drop,) = statements.parse("DROP SCHEDULE b_of_a_file")
    with pytest.raises(Conflict, match="comes from"):
        statements.execute(drop)
