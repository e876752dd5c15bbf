"""Every file, command and answer of the page about executors; and its own executor, installed."""

from __future__ import annotations

import importlib
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota.executors.registry import BUILT_IN
from rota.model.bodies import KEYS
from tests.docs.story import Story, blocks
from tests.jobsd.support import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "executors.md"
FILES = {one.path: one.body for one in blocks(PAGE) if one.path is not None}


def test_the_page_is_true(story: Story, tmp_path: Path) -> None:
    (tmp_path / "jobs.d").mkdir()
    # Without the executor of one's own: nothing is installed here.
    for block in blocks(PAGE):
        if block.path is not None and "touch" not in block.body:
            story.write(block.path, block.body)
    for block in blocks(PAGE):
        for command, answer in block.commands() if block.kind == "console" else ():
            story.call(command, answer)
    assert (story.files, story.commands) == (4, 4)


def test_nothing_of_the_page_is_left_out() -> None:
    assert PAGE.read_text("utf-8").count("```") == 2 * len(blocks(PAGE))
    assert {one.kind for one in blocks(PAGE) if one.path is None} == {"python", "console"}


@pytest.mark.parametrize("executor", KEYS)
def test_every_key_of_an_executor_is_in_its_table(executor: str) -> None:
    section = PAGE.read_text("utf-8").partition(f"\n## {executor}\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(KEYS[executor])


def test_every_executor_is_in_the_first_table() -> None:
    table = PAGE.read_text("utf-8").partition("Schedules, retries")[0]
    told = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert set(told) == BUILT_IN


def test_the_lines_of_python_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (text,) = [one.body for one in blocks(PAGE) if one.kind == "python" and one.path is None]
    told: dict[str, object] = {"rota": rota}
    exec(text, told)
    app = told["app"]
    assert isinstance(app, rota.Rota)
    app.load()
    assert app.control.schedule("nightly-vacuum").job == "vacuum"
    app.close()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's package on sys.path, as pip would have installed it."""
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    info = tmp_path / "site" / "rota_touch-1.0.dist-info"
    info.mkdir(parents=True)
    (info.parent / "rota_touch.py").write_text(FILES["rota_touch.py"])
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = project["entry-points"]["rota.executors"]
    lines = "".join(f"{name} = {where}\n" for name, where in points.items())
    (info / "entry_points.txt").write_text(f"[rota.executors]\n{lines}")
    monkeypatch.syspath_prepend(str(info.parent))
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("rota_touch", None)


def test_the_executor_of_ones_own(installed: Path) -> None:
    folder = installed / "jobs.d" / "mark"
    folder.mkdir(parents=True)
    (folder / "job.toml").write_text(FILES["jobs.d/mark/job.toml"])
    slow = installed / "jobs.d" / "slow"
    slow.mkdir()
    (slow / "job.toml").write_text(FILES["jobs.d/mark/job.toml"] + "wait = 600\n")
    bad = installed / "jobs.d" / "bad"
    bad.mkdir()
    (bad / "job.toml").write_text('executor = "touch"\nschedule = false\npath = 5\n')
    app = rota.Rota(jobs_dir="jobs.d")
    app.start()
    try:
        run_id = app.enqueue("mark").id
        wait_until(lambda: app.control.run(run_id).finished_at is not None, "the end")
        assert json.loads(app.control.run(run_id).result or "") == "touched"
        assert (installed / "marked").exists()
        assert app.problems() == [
            'jobs.d/bad/job.toml:3: path must be text, such as path = "/tmp/here"'
        ]
        run_id = app.enqueue("slow").id
        wait_until(lambda: app.control.run(run_id).started_at is not None, "the start")
        app.control.cancel(run_id)
        wait_until(lambda: app.control.run(run_id).state == "cancelled", "the cancel")
    finally:
        app.stop(grace="0s")
