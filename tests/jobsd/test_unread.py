"""What could not be looked at is not gone: its jobs stay, and so does what waits for them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rota.jobsd import scan
from rota.jobsd.folder import ROOT_SECONDS
from rota.jobsd.reconcile import ORPHAN_SECONDS
from tests.jobsd.support import Jobs, Served

Serve = Callable[..., Served]
ALL = ["accounting", "etl/clean", "etl/deep/more", "etl/load"]


class Disk:
    """What a look asks of the system; fails where it is told to. Root may read everything, so modes
    do not do it."""

    def __init__(self) -> None:
        self.listing: dict[Path, int] = {}
        self.status: dict[Path, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def scandir(self, path: Path) -> Any:
        _fail(path, self.listing)
        return os.scandir(path)

    def stat(self, path: Path) -> os.stat_result:
        _fail(path, self.status)
        return os.stat(path)

    def mend(self) -> None:
        self.listing.clear()
        self.status.clear()


def _fail(path: Path, faults: dict[Path, int]) -> None:
    if (code := faults.get(path)) is not None:
        raise OSError(code, os.strerror(code), str(path))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(scan, "os", made)
    return made


def fill(jobs: Jobs) -> None:
    jobs.sql("accounting")
    jobs.python("etl/clean")
    jobs.sql("etl/load")
    jobs.sql("etl/deep/more")


def states(served: Served, run_ids: list[str]) -> set[str]:
    return {served.app.control.run(run_id).state for run_id in run_ids}


def begun_anew(serve: Serve, jobs: Jobs, served: Served) -> Served:
    """Another process after this one; its looks are ours to ask for."""
    served.app.stop()
    after = serve(jobs)
    after.app.start()
    after.folder._loop.stop(9)
    return after


def look_for_long(served: Served) -> None:
    for _ in range(4):
        served.settle()
        served.time.now += max(ROOT_SECONDS, ORPHAN_SECONDS)


PLACES = ["", "etl", "etl/deep"]
CODES = [errno.EACCES, errno.EIO, errno.ESTALE, errno.EMFILE]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("place", PLACES)
def test_a_folder_that_cannot_be_read_keeps_its_jobs_and_their_runs(
    served: Served, jobs: Jobs, disk: Disk, place: str, code: int
) -> None:
    fill(jobs)
    served.load()
    before = served.registered()
    waiting = [served.app.enqueue(name, delay="1h").id for name in ALL]
    disk.listing[jobs.root / place] = code
    look_for_long(served)
    assert os.strerror(code) in " ".join(served.app.problems())
    assert {name: served.registered().get(name) for name in ALL} == before
    assert set(ALL) <= set(served.names())
    assert states(served, waiting) == {"waiting"}
    assert all(served.schedule(name).enabled for name in ALL)
    jobs.remove("etl/deep/more")
    look_for_long(served)
    assert states(served, waiting) == {"waiting"}
    disk.mend()
    look_for_long(served)
    assert served.app.problems() == []
    assert list(served.registered()) == served.names() == ["accounting", "etl/clean", "etl/load"]
    assert states(served, waiting[2:3]) == {"cancelled"}
    assert states(served, waiting[:2] + waiting[3:]) == {"waiting"}


@pytest.mark.parametrize("place", PLACES)
def test_nor_at_a_start(serve: Serve, shared: str, jobs: Jobs, disk: Disk, place: str) -> None:
    fill(jobs)
    first = serve(jobs, database=shared).load()
    before = first.registered()
    waiting = [first.app.enqueue(name, delay="1h").id for name in ALL]
    first.app.stop()
    disk.listing[jobs.root / place] = errno.EIO
    served = serve(jobs, database=shared)
    served.app.start()
    served.folder._loop.stop(9)
    look_for_long(served)
    assert {name: served.registered().get(name) for name in ALL} == before
    assert states(served, waiting) == {"waiting"}
    jobs.remove("etl/deep/more")
    disk.mend()
    look_for_long(served)
    assert list(served.registered()) == served.names() == ["accounting", "etl/clean", "etl/load"]
    assert states(served, waiting[2:3]) == {"cancelled"}


@pytest.mark.parametrize("start", [False, True])
def test_nor_a_root_of_which_nothing_can_be_known(
    serve: Serve, jobs: Jobs, disk: Disk, start: bool
) -> None:
    fill(jobs)
    served = serve(jobs).load()
    before = served.registered()
    disk.status[jobs.root] = errno.EACCES
    if start:
        served = begun_anew(serve, jobs, served)
    look_for_long(served)
    assert served.registered() == before
    assert served.app.problems() == ["jobs.d: cannot be read: Permission denied"]
    disk.mend()
    look_for_long(served)
    assert served.names() == ALL


def test_nor_a_link_that_leads_to_somewhere_unknown(served: Served, jobs: Jobs, disk: Disk) -> None:
    jobs.sql("_versions/one/load")
    (jobs.root / "etl").symlink_to("_versions/one")
    served.load()
    assert served.names() == ["etl/load"]
    # By a folder on the way that is a link in a ring: what it leads to cannot be found out.
    (jobs.root / "_versions").rename(jobs.root / "_moved")
    (jobs.root / "_versions").symlink_to("_versions")
    look_for_long(served)
    assert served.names() == list(served.registered()) == ["etl/load"]
    (told,) = served.app.problems()
    assert told.startswith("jobs.d/etl: cannot be read: ")
    (jobs.root / "_versions").unlink()  # and now it leads nowhere
    look_for_long(served)
    assert served.names() == list(served.registered()) == []


def test_nor_a_folder_that_is_a_link_out_now(served: Served, jobs: Jobs) -> None:
    fill(jobs)
    served.load()
    (jobs.root / "etl").rename(jobs.root.parent / "moved")
    (jobs.root / "etl").symlink_to(jobs.root.parent / "moved")
    look_for_long(served)
    assert set(ALL) <= set(served.registered())
    assert "is a link out" in served.error("etl")
    (jobs.root / "etl").unlink()
    look_for_long(served)
    assert list(served.registered()) == ["accounting"]


@pytest.mark.parametrize("start", [False, True])
def test_nor_a_folder_with_too_many_entries(
    serve: Serve, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, start: bool
) -> None:
    fill(jobs)
    served = serve(jobs).load()
    for number in range(5):
        (jobs.root / "etl" / f"{number}.csv").write_text("")
    monkeypatch.setattr(scan, "FOLDER_ENTRIES", 5)
    if start:
        served = begun_anew(serve, jobs, served)
    look_for_long(served)
    assert set(ALL) <= set(served.registered())
    assert "more than 5 entries" in served.error("etl")


@pytest.mark.parametrize("start", [False, True])
def test_nor_a_job_past_the_limit_of_jobs(
    serve: Serve, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, start: bool
) -> None:
    monkeypatch.setattr(scan, "FOLDER_JOBS", 2)
    jobs.sql("b")
    jobs.sql("c")
    served = serve(jobs).load()
    jobs.sql("a")
    if start:
        served = begun_anew(serve, jobs, served)
    look_for_long(served)
    assert list(served.registered()) == ["a", "b", "c"]
    assert served.schedule("c").enabled
    jobs.remove("c")
    look_for_long(served)
    assert list(served.registered()) == ["a", "b"]
    assert served.app.problems() == []


def test_what_is_read_late_stands_back_behind_a_later_version(
    serve: Serve, shared: str, tmp_path: Path, disk: Disk
) -> None:
    one, two = Jobs(tmp_path / "one" / "jobs.d"), Jobs(tmp_path / "two" / "jobs.d")
    for jobs in (one, two):
        jobs.sql("etl/load", 'every = "1h"')
    a = serve(one, database=shared)
    a.app.start()
    a.folder._loop.stop(9)
    one.sql("etl/load", 'every = "2h"')
    a.settle()
    disk.listing[two.root / "etl"] = errno.EIO
    b = serve(two, database=shared)
    b.app.start()
    b.folder._loop.stop(9)
    disk.mend()
    b.settle()
    assert b.names() == ["etl/load"]
    assert b.schedule("etl/load").expr == "2h"


# Looking at everything anew


@pytest.mark.parametrize("place", PLACES)
def test_a_reload_forgets_nothing_that_it_cannot_read(
    served: Served, jobs: Jobs, disk: Disk, place: str
) -> None:
    fill(jobs)
    served.load()
    disk.listing[jobs.root / place] = errno.EIO
    served.app.reload()
    look_for_long(served)
    assert set(ALL) <= set(served.registered())
    jobs.remove("etl/deep/more")
    disk.mend()
    look_for_long(served)
    assert list(served.registered()) == ["accounting", "etl/clean", "etl/load"]


def test_a_reload_sees_what_is_gone(served: Served, jobs: Jobs) -> None:
    fill(jobs)
    served.load()
    jobs.remove("etl/deep/more")
    served.app.reload()
    assert list(served.registered()) == served.names() == ["accounting", "etl/clean", "etl/load"]


def test_a_second_life_sees_what_went_between(serve: Serve, jobs: Jobs) -> None:
    fill(jobs)
    served = serve(jobs)
    served.app.start()
    served.app.stop()
    jobs.remove("etl/deep/more")
    served.app.load()
    assert list(served.registered()) == served.names() == ["accounting", "etl/clean", "etl/load"]


def test_a_load_does_not_take_a_root_that_is_not_there_for_an_empty_one(
    served: Served, jobs: Jobs
) -> None:
    fill(jobs)
    served.app.start()
    served.folder._loop.stop(9)
    away = jobs.root.rename(jobs.root.with_name("away"))
    served.app.load()
    served.app.reload()
    assert list(served.registered()) == ALL
    served.app.stop()
    served.app.start()
    served.folder._loop.stop(9)
    assert list(served.registered()) == ALL
    away.rename(jobs.root)
    served.settle()
    jobs.remove("etl/deep/more")
    served.settle()
    assert list(served.registered()) == served.names() == ["accounting", "etl/clean", "etl/load"]


# By the modes of real folders


@pytest.mark.parametrize("mode", [0, 0o400])
@pytest.mark.parametrize("place", ["..", *PLACES])
@pytest.mark.parametrize("start", [False, True])
def test_a_folder_that_may_not_be_read_keeps_its_jobs(
    serve: Serve, tmp_path: Path, place: str, start: bool, mode: int
) -> None:
    jobs = Jobs(tmp_path / "there" / "jobs.d")
    fill(jobs)
    served = serve(jobs).load()
    folder = Path(os.path.normpath(jobs.root / place))
    try:
        if start:
            served.app.stop()
            served = serve(jobs)
        folder.chmod(mode)
        if os.access(folder, os.X_OK):
            pytest.skip("root may read everything")
        if start:
            served.app.start()
            served.folder._loop.stop(9)
        look_for_long(served)
        assert served.app.problems()
        assert set(ALL) <= set(served.registered())
    finally:
        folder.chmod(0o700)
    look_for_long(served)
    assert served.names() == list(served.registered()) == ALL
    assert served.folder.problems == {}
