"""What is a job in a folder and what is not; whatever lies there, the others load."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rota.jobsd import scan
from rota.jobsd.check import check_folder
from rota.model import limits
from tests.jobsd.support import Jobs, Served


def names(served: Served) -> list[str]:
    return sorted(served.load().folder.definitions)


def test_folders_and_files_are_jobs_by_their_path(served: Served, jobs: Jobs) -> None:
    jobs.sql("accounting")
    jobs.python("cleanup")
    jobs.python("maintenance/vacuum")
    jobs.sql("maintenance/weekly/report")
    assert names(served) == [
        "accounting", "cleanup", "maintenance/vacuum", "maintenance/weekly/report",
    ]  # fmt: skip
    assert served.registered().keys() == set(names(served))


def test_what_begins_with_a_dot_or_an_underscore_is_no_job(served: Served, jobs: Jobs) -> None:
    jobs.sql("good", **{"01": "SELECT 1", "_draft": "DROP", ".hidden": "DROP"})
    for name in ("_lib", ".git", "__pycache__"):
        jobs.sql(name)
    jobs.python("_helper", "import nothing_of_that_name")
    jobs.python(".hidden", "(")
    assert names(served) == ["good"]
    assert served.app.jobs()[0].spec["files"] == ["01.sql"]


def test_python_files_inside_a_sql_job_are_its_own_affair(served: Served, jobs: Jobs) -> None:
    jobs.sql("accounting")
    jobs.python("accounting/tool")
    jobs.sql("accounting/old")
    assert names(served) == ["accounting"]


def test_other_files_and_empty_folders_are_nothing(served: Served, jobs: Jobs) -> None:
    jobs.sql("good")
    (jobs.root / "README.md").write_text("hello")
    (jobs.root / "empty").mkdir()
    (jobs.root / "good" / "data.csv").write_text("1,2")
    assert names(served) == ["good"]


def test_files_run_in_lexical_order(served: Served, jobs: Jobs) -> None:
    jobs.sql("a", **{"10": "x", "9": "x", "B": "x", "a": "x"})
    served.load()
    assert served.app.jobs()[0].spec["files"] == ["10.sql", "9.sql", "B.sql", "a.sql"]


def test_a_folder_that_does_not_exist_has_no_jobs(served: Served, jobs: Jobs) -> None:
    jobs.root.rmdir()
    assert names(served) == []


# One broken thing, and a good one beside it


def no_manifest(jobs: Jobs) -> None:
    jobs.sql("bad", None)


def no_script(jobs: Jobs) -> None:
    (jobs.sql("bad") / "01.sql").unlink()


def empty_script(jobs: Jobs) -> None:
    jobs.sql("bad", **{"01": "SELECT 1", "02": " \n\t"})


def not_utf8(jobs: Jobs) -> None:
    (jobs.sql("bad") / "02.sql").write_bytes(b"SELECT 1;\nSELECT '\xff'")


def manifest_not_utf8(jobs: Jobs) -> None:
    (jobs.sql("bad") / "job.toml").write_bytes(b"every = '1h' # \xff")


def huge(jobs: Jobs) -> None:
    with open(jobs.sql("bad") / "02.sql", "wb") as file:
        file.truncate(100 * 1024 * 1024)


def link_out(jobs: Jobs) -> None:
    secret = jobs.root.parent / "secret.sql"
    secret.write_text("SELECT 'secret'")
    (jobs.sql("bad") / "02.sql").symlink_to(secret)


def folder_link_out(jobs: Jobs) -> None:
    outside = Jobs(jobs.root.parent / "outside")
    outside.sql("x")
    (jobs.root / "bad").symlink_to(outside.root / "x")


def link_back(jobs: Jobs) -> None:
    (jobs.root / "bad").symlink_to(".")


def link_back_by_another(jobs: Jobs) -> None:
    for here, there in (("a", "b"), ("b", "a")):
        (jobs.root / here).mkdir(exist_ok=True)
        (jobs.root / here / "bad").symlink_to(f"../{there}")


def nul(jobs: Jobs) -> None:
    (jobs.sql("bad") / "02.sql").write_bytes(b"SELECT 1;\nSELECT '\0'")


def broken_link(jobs: Jobs) -> None:
    (jobs.sql("bad") / "02.sql").symlink_to("nothing.sql")


def pipe(jobs: Jobs) -> None:
    os.mkfifo(jobs.sql("bad") / "02.sql")


def manifest_pipe(jobs: Jobs) -> None:
    os.mkfifo(jobs.sql("bad", None) / "job.toml")


def manifest_folder(jobs: Jobs) -> None:
    (jobs.sql("bad", None) / "job.toml").mkdir()


def twice(jobs: Jobs) -> None:
    jobs.sql("bad")
    jobs.python("bad")


def too_deep(jobs: Jobs) -> None:
    jobs.sql("bad/b/c/d/e/f/g/h/i/j")


def syntax_error(jobs: Jobs) -> None:
    jobs.python("bad", "schedule = '0 3 * * *'\ndef run(ctx:\n    pass\n")


def false_as_in_toml(jobs: Jobs) -> None:
    jobs.python("bad", "schedule = false\ndef run(ctx):\n    pass\n")


def ends_at_import(jobs: Jobs) -> None:
    jobs.python("bad", "import os\nos._exit(3)\n")


def no_handler(jobs: Jobs) -> None:
    jobs.python("bad", "schedule = '0 3 * * *'\n")


def python_without_schedule(jobs: Jobs) -> None:
    jobs.python("bad", "def run(ctx):\n    pass\n")


def python_bad_cron(jobs: Jobs) -> None:
    jobs.python("bad", "\nschedule = '99 * * * *'\ndef run(ctx):\n    pass\n")


def python_pipe(jobs: Jobs) -> None:
    os.mkfifo(jobs.root / "bad.py")


def python_link_out(jobs: Jobs) -> None:
    outside = jobs.root.parent / "outside.py"
    outside.write_text("schedule = '0 3 * * *'\ndef run(ctx):\n    pass\n")
    (jobs.root / "bad.py").symlink_to(outside)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (no_manifest, "jobs.d/bad: has .sql files and no job.toml; add one"),
        (no_script, "jobs.d/bad/job.toml: has no .sql file beside it; add bad/01.sql"),
        (empty_script, "jobs.d/bad/02.sql: is empty; write a statement, or remove it"),
        (not_utf8, "jobs.d/bad/02.sql: is not UTF-8 (line 2); save it as UTF-8"),
        (manifest_not_utf8, "jobs.d/bad/job.toml: is not UTF-8"),
        (huge, "jobs.d/bad/02.sql: has 104,857,600 bytes; the limit is 8,388,608"),
        (link_out, "jobs.d/bad/02.sql: is a link out of its folder; copy"),
        (folder_link_out, "jobs.d/bad: is a link out of the folder of jobs; copy"),
        (link_back, "jobs.d/bad: is a link to a folder that it lies in; remove it"),
        (nul, "jobs.d/bad/02.sql: holds a NUL character (line 2); save it as text"),
        (broken_link, "jobs.d/bad/02.sql: cannot be read: No such file"),
        (pipe, "jobs.d/bad/02.sql: is not a regular file; replace it"),
        (manifest_pipe, "jobs.d/bad/job.toml: is not a regular file; replace it"),
        (manifest_folder, "jobs.d/bad/job.toml: cannot be read: Is a directory"),
        (twice, "'bad' is defined twice: by jobs.d/bad.py and jobs.d/bad; rename one"),
        (syntax_error, "jobs.d/bad.py:2: SyntaxError"),
        (
            false_as_in_toml,
            "jobs.d/bad.py:1: NameError: name 'false' is not defined; in Python it is False",
        ),
        (ends_at_import, "jobs.d/bad.py: it ended the process that imported it"),
        (no_handler, "jobs.d/bad.py: it has no handler; write `def run(ctx):`"),
        (python_without_schedule, "jobs.d/bad.py: say when: add schedule"),
        (python_bad_cron, "jobs.d/bad.py:2: cron '99 * * * *' has minute 99"),
        (python_pipe, "jobs.d/bad.py: it is not a regular file"),
        (python_link_out, "jobs.d/bad.py: is a link out of the folder of jobs; copy"),
    ],
)
def test_one_broken_thing_harms_no_other(
    served: Served, jobs: Jobs, spoil: Callable[[Jobs], None], told: str
) -> None:
    jobs.sql("good")
    jobs.python("fine")
    spoil(jobs)
    served.load()
    assert served.names() == ["fine", "good"]
    assert told in served.error("bad"), served.error("bad")
    assert served.schedule("good").enabled


def test_links_to_each_other_are_not_followed_for_ever(served: Served, jobs: Jobs) -> None:
    jobs.sql("b/good")
    link_back_by_another(jobs)
    served.load()
    assert served.names() == ["a/bad/good", "b/good"]
    assert "is a link to a folder that it lies in" in served.error("a/bad/bad")


def test_a_folder_too_deep_is_said(served: Served, jobs: Jobs) -> None:
    too_deep(jobs)
    served.load()
    (one,) = served.folder.definitions.values()
    assert one.error is not None
    assert "lies deeper than 8 folders" in one.error


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_said(served: Served, jobs: Jobs) -> None:
    folder = jobs.sql("bad")
    folder.chmod(0)
    served.load()
    folder.chmod(0o700)
    assert "cannot be read: Permission denied" in served.error("bad")


@pytest.mark.parametrize("name", ["a b", "naïve", "x" * 200, "new\nline"])
def test_a_name_that_no_job_may_have_is_a_problem_of_its_own(
    served: Served, jobs: Jobs, name: str
) -> None:
    jobs.sql(name)
    jobs.sql("good")
    served.load()
    assert served.names() == ["good"]
    (told,) = served.folder.problems.values()
    assert "is not a valid name" in told


def test_loose_scripts_are_a_problem(served: Served, jobs: Jobs) -> None:
    (jobs.root / "x.sql").write_text("SELECT 1")
    (jobs.root / "job.toml").write_text("every = '1h'")
    served.load()
    assert sorted(served.folder.problems) == ["jobs.d/job.toml", "jobs.d/x.sql"]


def test_links_inside_the_folder_are_followed(served: Served, jobs: Jobs) -> None:
    folder = jobs.sql("mounted", None)
    (folder / "..data").mkdir()
    (folder / "..data" / "job.toml").write_text("every = '1h'")
    (folder / "job.toml").symlink_to("..data/job.toml")
    served.load()
    assert served.names() == ["mounted"]


def test_too_many_jobs_are_said(
    served: Served, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "FOLDER_JOBS", 2)
    for name in "abc":
        jobs.sql(name)
    served.load()
    assert served.names() == ["a", "b"]
    assert "more than 2 jobs" in next(iter(served.folder.problems.values()))


def test_too_many_entries_are_said(
    served: Served, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.sql("good")
    monkeypatch.setattr(scan, "FOLDER_ENTRIES", 3)
    jobs.sql("bad", **{str(n): "x" for n in range(5)})
    served.load()
    assert served.names() == ["good"]
    assert "more than 3 entries" in served.error("bad")


def test_the_folder_may_be_a_file(served: Served, jobs: Jobs, tmp_path: Path) -> None:
    jobs.root.rmdir()
    jobs.root.write_text("")
    served.load()
    assert "is not a folder" in next(iter(served.folder.problems.values()))


def test_limits_have_names() -> None:
    assert limits.SQL_FILE_BYTES < 100 * 1024 * 1024


# Names that are passed over


def test_sql_in_capitals_is_named_and_not_looked_at(
    served: Served, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    folder = jobs.sql("tidy")
    served.load()
    version = served.registered()
    (folder / "02.SQL").write_text("SELEC")
    served.settle()
    served.settle()
    told = "02.SQL beside it is ignored: SQL files end in .sql, in small letters; rename it"
    assert caplog.messages.count(f"jobs.d/tidy/job.toml: {told}") == 1
    assert served.registered() == version
    found = check_folder(served.app, {}, datetime.now(UTC)).findings
    assert ("warning", "jobs.d/tidy/job.toml", told) in [
        (one.kind, one.display_path, one.message) for one in found
    ]
    (folder / "01.sql").rename(folder / "01.Sql")
    served.settle()
    (error,) = served.app.problems()
    assert "has no .sql file beside it; add tidy/01.sql; 01.Sql beside it is ignored" in error
