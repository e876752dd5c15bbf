"""A Python file whose import hangs keeps nobody else waiting."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.executors.inspection import FileError, FileFacts, Inspector
from rota.jobsd import folder as folders
from rota.jobsd.inspections import THREADS, Inspections
from tests.jobsd.support import Jobs, Served, wait_until

Serve = Callable[..., Served]


class Gate:
    """Files that import it hang until it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)

    def hangs(self, text: str = "schedule = '0 3 * * *'") -> str:
        return f"{text}\nopen({str(self.path)!r}).read()\ndef run(ctx):\n    return 1\n"

    def open(self) -> None:
        wait_until(self._opened, "somebody at the gate")

    def _opened(self) -> bool:
        try:
            os.close(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


def test_files_after_one_that_hangs_are_answered(jobs: Jobs, gate: Gate) -> None:
    hang = {str(jobs.python(f"a{number}", gate.hangs())): 1 for number in range(3)}
    good = str(jobs.python("good"))
    answered = threading.Event()
    inspections = Inspections(answered.set, slow_seconds=0.1)
    found: dict[str, FileFacts | FileError] = {}
    wait_until(
        lambda: found or found.update(inspections.inspect({**hang, good: 1}, 0.1)), "an answer"
    )
    assert list(found) == [good]
    assert isinstance(found[good], FileFacts)
    answered.clear()
    gate.open()
    # Whoever looked at the good one may tell of it only now.
    wait_until(lambda: answered.is_set() and inspections.inspect(hang, 0.0), "one that hung")


def test_the_patient_have_every_answer(jobs: Jobs, gate: Gate) -> None:
    slow = str(jobs.python("slow", gate.hangs()))
    inspections = Inspections(lambda: None, slow_seconds=0.0)
    opener = threading.Thread(target=gate.open)
    opener.start()
    assert isinstance(inspections.inspect({slow: 1}, None)[slow], FileFacts)
    opener.join()


def test_a_changed_file_has_another_answer(jobs: Jobs, gate: Gate) -> None:
    path = str(jobs.python("slow", gate.hangs()))
    inspections = Inspections(lambda: None, slow_seconds=0.1)
    assert inspections.inspect({path: 1}, 0.0) == {}
    jobs.python("slow", "def run(ctx:")
    assert isinstance(inspections.inspect({path: 2}, None)[path], FileError)


def test_a_file_whose_inspection_fails_is_told_and_the_next_are_looked_at(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = str(jobs.python("a_bad")), str(jobs.python("good"))
    inspect = Inspector.inspect

    def fail(self: Inspector, path: str) -> FileFacts | FileError:
        if path == bad:
            raise RuntimeError("can't start new thread")
        return inspect(self, path)

    monkeypatch.setattr(Inspector, "inspect", fail)
    inspections = Inspections(lambda: None)
    for _ in range(THREADS + 1):  # each time a thread would be lost
        found = look(inspections, {bad: 1, good: 1})
        assert isinstance(found[bad], FileError)
        assert found[bad].error == f"{bad}: RuntimeError: can't start new thread"
        assert isinstance(found[good], FileFacts)


def test_a_file_for_which_there_is_no_thread_is_looked_at_later(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = str(jobs.python("good"))
    answered = threading.Event()
    inspections = Inspections(answered.set)

    def fail(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        for _ in range(THREADS + 1):
            with pytest.raises(RuntimeError):
                inspections.inspect({good: 1}, 0.0)
    assert isinstance(look(inspections, {good: 1})[good], FileFacts)


def look(inspections: Inspections, paths: dict[str, object]) -> dict[str, FileFacts | FileError]:
    """All of them, as the patient have them; but a test does not wait for ever."""
    found: dict[str, FileFacts | FileError] = {}
    wanted = dict(paths)

    def ask() -> bool:
        found.update(
            inspections.inspect({one: wanted[one] for one in wanted if one not in found}, 0.1)
        )
        return found.keys() == wanted.keys()

    wait_until(ask, "every answer")
    return found


def test_a_hanging_file_delays_neither_start_nor_others(
    serve: Serve, jobs: Jobs, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "START_SECONDS", 0.0)
    jobs.python("slow", "schedule = '0 3 * * *'\ndef run(ctx):\n    return 0\n")
    jobs.sql("accounting")
    first = serve(jobs).load()
    first.app.stop()
    jobs.python("slow", gate.hangs("schedule = '0 4 * * *'"))
    served = serve(jobs)
    served.folder.inspection_seconds = 0.0
    served.app.start()
    assert served.names() == ["accounting"]
    assert "slow" in served.registered(), "what is not known yet is not retired"
    jobs.sql("other")
    served.settle()
    assert served.names() == ["accounting", "other"]
    gate.open()
    wait_until(lambda: served.look() and "slow" in served.names(), "slow")
    assert served.schedule("slow").expr == "0 4 * * *"


def test_what_was_late_at_first_stands_back_behind_a_live_one() -> None:
    from tests.jobsd.test_reconcile import known, plan

    late = plan({"a", "b"}, known("a", "b"), changed={"a", "b"}, late={"a"}, elsewhere={"a", "b"})
    assert late.anew == {"b"}
    assert not plan(set(), known("a"), first=True, unread={"a"}).retire
