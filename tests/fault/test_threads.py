"""Every thread of ours is ended from outside, and the work goes on."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path

import pytest

from rota import Rota
from rota.storage import operations

PATIENCE = 60.0


def ours() -> dict[str, threading.Thread]:
    return {one.name: one for one in threading.enumerate() if one.name.startswith("rota-")}


def end(thread: threading.Thread) -> None:
    """Raise in that thread as soon as it takes its next step."""
    set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
    assert set_exception(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)) == 1


@pytest.mark.long  # an exception can land on any bytecode, also on one that nothing guards
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_no_thread_ends_silently(tmp_path: Path) -> None:
    app = Rota(f"sqlite:///{tmp_path / 'rota.db'}")
    done: list[int] = []

    @app.job(max_attempts=50, backoff="fixed", delay="0.1s")
    def note(number: int) -> None:
        done.append(number)

    heard: list[str] = []
    app.on("job.completed")(lambda event: heard.append(event.run_id))
    app.start()
    try:
        for number in range(3):
            before = ours()
            for thread in before.values():
                end(thread)
            run = note.enqueue(number=number)
            deadline = time.monotonic() + PATIENCE
            while app.storage.read(operations.get_run, run.id).state != "succeeded":
                assert time.monotonic() < deadline, (app.health, sorted(ours()))
                time.sleep(0.01)
            while any(app.health.values()):
                assert time.monotonic() < deadline, app.health
                time.sleep(0.01)
            # These come back when they are needed.
            loops = set(before) - {"rota-handler", "rota-notify", "rota-events"}
            assert loops <= set(ours())
        assert set(done) == {0, 1, 2}
    finally:
        app.stop()
        app.close()
