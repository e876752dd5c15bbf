"""An operator's edit of a schedule that comes from code or from a file, in real processes: it stays
until the code or the file says something else."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.surface.conftest import environment
from tests.surface.test_up import Up

PATIENCE = 20.0
APP = """
    import rota

    app = rota.Rota()

    @app.job(every="{every}")
    def send() -> None: ...
"""


class Here:
    """A folder with an app and its store, and commands in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("1s")

    def write(self, every: str) -> None:
        (self.folder / "shop.py").write_text(dedent(APP).format(every=every))

    def rota(self, *args: str) -> str:
        return self._call("-m", "rota.cli", *args).stdout

    def note(self, *args: str) -> str:
        return self._call("-m", "rota.cli", *args).stderr

    def python(self, text: str) -> None:
        self._call("-c", text)

    def _call(self, *args: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *args], capture_output=True, text=True, cwd=self.folder,
            env=environment(), timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done

    def show(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.rota("show", name, "--json"))
        return found

    def when(self, name: str) -> tuple[str, bool]:
        schedule = self.show(name)["schedule"]
        return schedule["expr"], schedule["enabled"]

    def wait(self, happens: Callable[[], object], what: str) -> None:
        until = time.monotonic() + PATIENCE
        while not happens():
            assert time.monotonic() < until, f"{what} did not happen"
            time.sleep(0.1)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return Here(tmp_path)


ENQUEUE = "from shop import send; send.enqueue()"


def test_an_edit_of_what_code_says_stays_until_the_code_changes(here: Here) -> None:
    here.python(ENQUEUE)
    assert here.when("send") == ("1s", True)
    assert "differs from its code or file" in here.note("schedule", "send", "--every", "10m")
    here.python(ENQUEUE)
    assert here.when("send") == ("10m", True)
    assert "edited since it was registered" in here.rota("schedules")
    assert 'its code or file says expr = "1s"' in " ".join(here.rota("show", "send").split())
    here.rota("schedule", "send", "--every", "1s", "--disabled")
    up = Up("shop:app", "--only", "scheduler,worker")
    try:
        here.wait(lambda: here.rota("workers", "--json").strip() not in ("", "[]"), "it works")
        assert here.when("send") == ("1s", False)
        assert "rota schedule send --enabled" in here.rota("explain", "send")
    finally:
        up.stop()
    here.write("5m")
    here.python(ENQUEUE)
    assert here.when("send") == ("5m", True)
    assert here.show("send")["schedule"]["edits"] == {}
    (change, *_) = here.show("send")["changes"]
    assert "what was edited here is replaced" in change["reason"]


VACUUM = 'schedule = "{cron}"\n\ndef run(ctx):\n    return {value}\n'


def test_an_edit_of_what_a_file_says_stays_until_the_file_says_something_else(here: Here) -> None:
    file = here.folder / "jobs.d" / "maintenance" / "vacuum.py"
    file.parent.mkdir(parents=True)
    file.write_text(VACUUM.format(cron="0 3 * * *", value=1))
    name = "maintenance/vacuum"

    def version() -> str:
        found: str = here.show(name)["job"]["version"]
        return found

    here.rota("migrate")
    up = Up("--only", "scheduler,worker")
    try:
        here.wait(lambda: name in here.rota("schedules"), "it is known")
        here.rota("schedule", name, "--cron", "0 5 * * *")
        # Other text of the same file says nothing of the schedule.
        before = version()
        file.write_text(VACUUM.format(cron="0 3 * * *", value=2))
        here.wait(lambda: version() != before, "the new text is known")
        assert here.when(name) == ("0 5 * * *", True)
    finally:
        up.stop()
    before = version()
    file.write_text(VACUUM.format(cron="0 3 * * *", value=3))
    up = Up("--only", "scheduler,worker")
    try:
        here.wait(lambda: version() != before, "it began again")
        assert here.when(name) == ("0 5 * * *", True)
        file.write_text(VACUUM.format(cron="0 4 * * *", value=3))
        here.wait(lambda: here.when(name) == ("0 4 * * *", True), "the file says something else")
    finally:
        up.stop()
