"""Random changes of a live folder: after each quiet period the store says what the folder says.

Looking again by the clock is switched off, so that only what the watch tells leads there. No
definition may ever be registered that the folder did not hold as a whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.jobsd import folder as folders
from rota.jobsd import watch as watches
from rota.model.duration import format_duration
from rota.model.job import Job
from rota.storage import operations
from tests.jobsd.support import Jobs, Recorder, wait_until

NAMES = [f"{group}job{number}" for group in ("", "group/") for number in range(5)]
FAR = 3_600.0


class Model:
    """The folder as the test wrote it: each job's number, 0 for one that is broken."""

    def __init__(self, jobs: Jobs, seed: int) -> None:
        self.jobs, self.luck = jobs, random.Random(seed)
        self.numbers: dict[str, int] = {}
        self.whole: set[tuple[str, str]] = set()  # (name, version) that the folder ever held
        self.count = 0

    # What a person does

    def write(self) -> None:
        self._write(self.luck.choice(NAMES))

    def half_written(self) -> None:
        """Every file in two pieces; the first piece of the manifest is a valid one by itself."""
        self._write(self.luck.choice(NAMES), pieces=True)

    def break_one(self) -> None:
        name = self.luck.choice(NAMES)
        self._write(name)
        (self.jobs.root / name / "job.toml").write_text("every = ")
        self.numbers[name] = 0

    def delete(self) -> None:
        if self.numbers:
            self._delete(self.luck.choice(sorted(self.numbers)))

    def rename(self) -> None:
        free = sorted(set(NAMES) - set(self.numbers))
        if not self.numbers or not free:
            return
        old, new = self.luck.choice(sorted(self.numbers)), self.luck.choice(free)
        (self.jobs.root / new).parent.mkdir(exist_ok=True)
        (self.jobs.root / old).rename(self.jobs.root / new)
        self.numbers[new] = self.numbers.pop(old)
        self._note(new)

    def replace_root(self) -> None:
        """As a deployment does: the new one is made beside it and takes its place."""
        root = self.jobs.root
        new, old = root.with_name("new"), root.with_name("old")
        shutil.copytree(root, new)
        root.rename(old)
        new.rename(root)
        shutil.rmtree(old)

    def touch_storm(self) -> None:
        for _ in range(5):
            for path in sorted(self.jobs.root.rglob("*.*")):
                os.utime(path)

    # How it is written down

    def _write(self, name: str, *, pieces: bool = False) -> None:
        self.count += 1
        number = self.numbers[name] = self.count
        folder = self.jobs.root / name
        folder.mkdir(parents=True, exist_ok=True)
        texts = {
            "01.sql": f"SELECT {number};\n",
            "02.sql": f"SELECT {number} + 1;\n",
            "job.toml": f'every = "{number}h"\npriority = {number}\n',
        }
        for file, text in texts.items():
            half = text.index("\n") if file == "job.toml" else len(text) // 2
            with open(folder / file, "w") as handle:
                if pieces:
                    handle.write(text[:half])
                    handle.flush()
                    handle.write(text[half:])
                else:
                    handle.write(text)
        self._note(name)

    def _delete(self, name: str) -> None:
        shutil.rmtree(self.jobs.root / name)
        del self.numbers[name]

    def _note(self, name: str) -> None:
        if self.numbers[name]:
            self.whole.add((name, version(self.jobs.root / name)))


def version(folder: Path) -> str:
    """The hash of names and contents, computed apart from the code that is tested."""
    files = ("job.toml", "01.sql", "02.sql")
    hashes = [[file, hashlib.sha256((folder / file).read_bytes()).hexdigest()] for file in files]
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()


CHANGES = (
    Model.write, Model.write, Model.half_written, Model.break_one, Model.delete, Model.rename,
    Model.replace_root, Model.touch_storm,
)  # fmt: skip


class Pausing:
    """A monotonic clock that stands still while the test writes: on a busy machine a write may take
    longer than the quiet period, and what lies there meanwhile has not kept still."""

    def __init__(self) -> None:
        self._since: tuple[float | None, float] = (None, 0.0)  # when it was stopped, and time lost

    def __call__(self) -> float:
        stopped_at, lost = self._since
        return (time.monotonic() if stopped_at is None else stopped_at) - lost

    @contextmanager
    def stopped(self) -> Iterator[None]:
        at, lost = time.monotonic(), self._since[1]
        self._since = (at, lost)
        yield
        self._since = (None, lost + time.monotonic() - at)


class Live:
    """An app that follows the folder, and everything it ever took for a job."""

    def __init__(self, jobs: Jobs, database: str, settle_seconds: float) -> None:
        self.clock = Pausing()
        self.app = rota.Rota(database, jobs_dir=str(jobs.root))
        self.app.executor("sql", Recorder())
        self.folder = folders.Folder(self.app, settle_seconds=settle_seconds, monotonic=self.clock)
        self.app._folder = self.folder
        self.taken: set[tuple[str, str]] = set()
        set_file_job = self.app.set_file_job

        def watched(job: Job, *texts: Any) -> None:
            self.taken.add((job.name, job.spec["version"]))
            set_file_job(job, *texts)

        self.app.set_file_job = watched  # type: ignore[method-assign]
        self.app.start()

    def says(self) -> dict[str, int | str]:
        """Each registered job's number, 0 where its error is shown; in words what must not be.
        Read row by row while things change, so only what stays is a finding."""
        schedules = {one.name: one for one in self.app.control.schedules()}
        told: dict[str, int | str] = {}
        for job in self.app.storage.read(operations.list_jobs, limit=500):
            schedule = schedules.get(job.name)
            on = schedule is not None and schedule.enabled
            if job.retired:
                if on:
                    told[job.name] = "retired, and its schedule is on"
            elif job.error is not None:
                told[job.name] = 0
            elif schedule is None or not on:
                told[job.name] = "its schedule is off"
            else:
                whole = schedule.expr == format_duration(timedelta(hours=job.priority))
                told[job.name] = job.priority if whole else f"{job.priority} and {schedule.expr}"
        return told


@pytest.fixture
def live(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[float], Live]]:
    monkeypatch.setattr(watches, "RESCAN_SECONDS", FAR)
    monkeypatch.setattr(folders, "RECONCILE_SECONDS", FAR)
    made: list[Live] = []

    def make(settle_seconds: float) -> Live:
        made.append(Live(jobs, f"sqlite:///{tmp_path / 'rota.db'}", settle_seconds))
        return made[0]

    yield make
    for one in made:
        one.app.stop(grace="0s")


class Told:
    """What a failure says, made only when there is one."""

    def __init__(self, changes: list[str], model: Model, live: Live) -> None:
        self.changes, self.model, self.live = changes, model, live

    def __str__(self) -> str:
        seen = sorted(self.live.folder.definitions)
        return f"{self.model.numbers} after {self.changes}; {self.live.says()}, seen {seen}: this"


def change_and_compare(model: Model, live: Live, bursts: int, most: int) -> None:
    for _ in range(bursts):
        done = [model.luck.choice(CHANGES) for _ in range(model.luck.randint(1, most))]
        with live.clock.stopped():
            for change in done:
                change(model)
        told = Told([change.__name__ for change in done], model, live)
        wait_until(lambda: live.says() == model.numbers, told)
        assert live.taken <= model.whole, "a state was taken that never was"
    assert len(live.taken) > bursts // 4


def test_bursts_of_random_changes_lead_to_what_the_folder_says(
    jobs: Jobs, live: Callable[[float], Live]
) -> None:
    change_and_compare(Model(jobs, 7), live(0.3), bursts=25, most=8)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_500_random_changes_one_by_one(jobs: Jobs, live: Callable[[float], Live]) -> None:
    change_and_compare(Model(jobs, 11), live(1.0), bursts=500, most=1)


def test_a_folder_that_comes_later_is_seen(
    jobs: Jobs, live: Callable[[float], Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "ROOT_SECONDS", 0.5)
    jobs.root.rmdir()
    one = live(0.2)
    model = Model(jobs, 1)
    model.write()
    wait_until(lambda: one.says() == model.numbers, "the folder that came")
    shutil.rmtree(jobs.root)
    wait_until(lambda: one.says() == {}, "the folder that went")


def test_what_the_watch_misses_is_found_by_looking_again(
    jobs: Jobs, live: Callable[[float], Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches._Watcher, "_serve", lambda self, stop: stop.wait())
    one = live(0.1)
    model = Model(jobs, 1)
    model.write()
    monkeypatch.setattr(watches, "RESCAN_SECONDS", 0.1)
    one.folder._loop.wake()
    wait_until(lambda: one.says() == model.numbers, "the look by the clock")


def test_a_folder_that_cannot_be_watched_is_looked_at_often(
    jobs: Jobs, live: Callable[[float], Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(*paths: object, **options: object) -> object:
        raise OSError("no space left for watches")

    monkeypatch.setattr("watchfiles.watch", no_more)
    one = live(0.1)
    wait_until(
        lambda: one.folder._watch is not None and one.folder._watch._folder.blind, "the fall"
    )
    model = Model(jobs, 1)
    model.write()
    wait_until(lambda: one.says() == model.numbers, "the look by the clock")


def test_a_link_that_is_swapped_is_followed(
    jobs: Jobs, tmp_path: Path, live: Callable[[float], Live]
) -> None:
    one, two = Jobs(tmp_path / "r1"), Jobs(tmp_path / "r2")
    one.sql("old", "every = '1h'\npriority = 1")
    two.sql("new", "every = '2h'\npriority = 2")
    jobs.root.rmdir()
    jobs.root.symlink_to("r1")
    app = live(0.2)
    wait_until(lambda: app.says() == {"old": 1}, "the first release")
    (tmp_path / "link").symlink_to("r2")
    (tmp_path / "link").rename(jobs.root)
    wait_until(lambda: app.says() == {"new": 2}, "the second release")
    two.sql("more", "every = '3h'\npriority = 3")
    wait_until(lambda: app.says() == {"new": 2, "more": 3}, "a change inside it")
