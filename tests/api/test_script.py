"""A script as the introduction shows it, run as a user would run it, until it is told to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import pytest

import rota
from tests.api.support import PATIENCE, wait_until

SCRIPT = """
import rota
app = rota.Rota({database!r})

@app.job(schedule="0 3 * * *", timezone="Europe/Berlin", timeout="10m")
def rollup(ctx: rota.Context) -> None:
    ctx.logger.info("rolled up")

@app.job(queue="mail", max_attempts=5, backoff="exponential")
async def send(to: str, subject: str) -> None:
    print("sent", to, subject, flush=True)

@app.job()
def sync() -> None:
    print("synced", flush=True)
"""

USE = """
send.enqueue(to="a@example.org", subject="hi")
send.enqueue_many([{"to": "b@example.org", "subject": "ho"}])
app.schedule("hourly-sync", job="sync", every="200ms")
app.run()
"""

GUARDED = """
if __name__ == "__main__":
    send.enqueue(to="a@example.org", subject="hi")
    app.run()
"""


class Script:
    def __init__(self, path: Path, text: str) -> None:
        path.write_text(text)
        self.popen = subprocess.Popen(
            [sys.executable, str(path)],
            cwd=path.parent,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: Queue[str] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.put(line.strip())

    def wait(self, *wanted: str) -> None:
        """Until all of these lines were printed, in any order."""
        missing = set(wanted)
        while missing:
            missing.discard(self.lines.get(timeout=PATIENCE))

    def stop(self) -> int:
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(PATIENCE)


@contextmanager
def running(folder: Path, text: str) -> Iterator[Script]:
    script = Script(folder / "jobs.py", text)
    try:
        yield script
    finally:
        script.popen.kill()
        script.popen.wait(PATIENCE)
        if script.popen.stdout is not None:
            script.popen.stdout.close()


def test_the_script_of_the_introduction_runs(app: rota.Rota, database: str, tmp_path: Path) -> None:
    with running(tmp_path, SCRIPT.format(database=database) + USE) as script:
        script.wait("sent a@example.org hi", "sent b@example.org ho", "synced")
        assert script.stop() == 0
    assert [run.state for run in app.runs("send")] == ["succeeded"] * 2
    states = {run.state for run in app.runs("sync")}
    assert "succeeded" in states
    assert not states & {"running", "dead", "cancelled"}
    (rollup,) = app.control.schedules(job="rollup")
    assert (rollup.expr, rollup.timezone) == ("0 3 * * *", "Europe/Berlin")
    assert app.control.workers() == []


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_job_of_a_script_runs_in_a_child_process(
    app: rota.Rota, database: str, tmp_path: Path
) -> None:
    for end in (GUARDED, "app.run()\n"):
        with running(tmp_path, SCRIPT.format(database=database) + end) as script:
            wait_until(app.control.workers, "the script's worker")
            made = app.control.trigger("rollup")
            wait_until(
                lambda made=made: app.control.run(made.id).state == "succeeded", "the rollup"
            )
            assert script.stop() == 0
        assert [line["text"] for line in app.control.logs(made.id)] == ["rolled up"]
    # The child found the handler and did nothing else.
    assert len(app.runs("send")) == 1


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_script_that_would_enqueue_again_in_its_child_is_told_how_not_to(
    app: rota.Rota, database: str, tmp_path: Path
) -> None:
    with running(tmp_path, SCRIPT.format(database=database) + USE) as script:
        wait_until(app.control.workers, "the script's worker")
        made = app.control.trigger("rollup")
        wait_until(lambda: app.control.run(made.id).failures, "the failure")
        assert script.stop() == 0
    assert "put it under `if __name__ == '__main__':`" in (app.control.run(made.id).error or "")
    assert len(app.runs("send")) == 2
