"""Handlers in child processes: values, talk, reuse and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.errors import LockNotHeld
from rota.executors import child_process
from rota.executors.child_process import ChildProcess
from rota.executors.children import Children
from rota.executors.messages import CHANNEL_LOST, LONGEST, Stop
from rota.executors.processes import has_exited
from rota.executors.python import PythonExecutor
from rota.model.limits import KEPT_FILE_BYTES, LOG_LINE_LENGTH, LOG_LINES
from tests.executors.conftest import (
    HANDLERS,
    Attempt,
    Begin,
    Port,
    children_of,
    is_gone,
    make_context,
    wait_until,
)


def result(attempt: Attempt) -> Any:
    outcome = attempt.outcome
    assert outcome.kind == "succeeded", outcome.error
    return json.loads(outcome.result or "null")


def pids(port: Port) -> list[int]:
    return next([*map(int, line.split()[1:])] for line in port.lines if line.startswith("pids"))


@pytest.fixture
def patient() -> Iterator[Children]:
    """A stop that is not heard ends nothing within a test's time."""
    made = Children(kill_after=600)
    yield made
    for child in list(made._busy):
        os.kill(child.pid, signal.SIGCONT)
    made.close()


@pytest.fixture
def begin_patiently(patient: Children, threads: ThreadPoolExecutor) -> Begin:
    """Handlers that have all the time they want to end by themselves."""

    def run(function: str, args: dict[str, Any] | None = None) -> Attempt:
        port = Port()
        context = make_context(function, args, port=port)
        return Attempt(context, port, threads.submit(patient.run, context, "1"))

    return run


# Values


def test_a_handler_runs_in_another_process(begin: Begin) -> None:
    assert result(begin("pid")) != os.getpid()


def test_the_context_in_a_child_knows_its_run(begin: Begin) -> None:
    told = result(begin("describe"))
    assert told == ["describe", "default", "run-1", 1, "2026-03-01T12:00:00+00:00", {}]


def test_arguments_become_what_the_annotations_say(begin: Begin) -> None:
    order = {"id": "6f0d1f3e-2b1a-5c57-9d0e-7f1d9a0c4b52", "at": "2026-03-01T12:00:00Z"}
    told = result(begin("rich", {"order": order, "when": "2026-03-01T12:00:00+01:00"}))
    assert told == ["Order", "UUID", "2026-03-01T12:00:00+01:00"]


def test_arguments_that_do_not_fit_are_a_failure(begin: Begin) -> None:
    outcome = begin("rich", {"order": {"id": "1"}, "when": "noon"}).outcome
    assert outcome.kind == "failed"
    assert "BadArguments: job 'rich': 'order' does not fit" in str(outcome.error)


def test_large_arguments_and_results_pass(begin: Begin) -> None:
    assert result(begin("echo", {"value": "x" * 60_000})) == "x" * 60_000
    told = result(begin("echo", {"value": "x" * 250_000}))
    assert told == {"not_stored": "250,002 bytes as JSON; the limit is 65,536"}


def test_verdicts_come_back(begin: Begin) -> None:
    snoozed, cancelled, retried = begin("snooze"), begin("cancel"), begin("retry")
    assert (snoozed.outcome.kind, snoozed.outcome.after) == ("snoozed", timedelta(seconds=30))
    assert (cancelled.outcome.kind, cancelled.outcome.reason) == ("cancelled", "nothing to do")
    assert (retried.outcome.kind, retried.outcome.after) == ("failed", timedelta(minutes=5))


def test_async_handlers_run_in_a_child_too(begin: Begin) -> None:
    assert result(begin("later")) == "later"


def test_a_decorated_function_is_called_through_its_decorator(begin: Begin) -> None:
    told = result(begin("decorated", {"at": "2026-03-01T12:00:00Z"}))
    assert told == "2026-03-01T12:00:00+00:00"


@pytest.mark.usefixtures("alone")
def test_a_handler_may_use_processes_of_its_own(begin: Begin) -> None:
    attempt = begin("use_processes", {"numbers": [1, -2]})
    used, numbers, exit_code = result(attempt)
    assert numbers == [1, 2]
    assert exit_code == -signal.SIGTERM
    assert attempt.port.lines == []
    assert result(begin("pid")) == used


def test_a_failure_shows_the_users_frames_only(begin: Begin) -> None:
    error = str(begin("fail").outcome.error)
    assert "KeyError: 'inner'" in error
    assert error.endswith("ValueError: outer")
    assert "handlers.py" in error
    assert "rota/executors" not in error


# Talk


def test_lines_keep_their_order_whatever_wrote_them(begin: Begin) -> None:
    attempt = begin("talk")
    assert attempt.outcome.kind == "succeeded"
    assert attempt.port.lines == [
        "one", "two words", "three", "four", "five, ", "six", "seven\N{REPLACEMENT CHARACTER}",
        "eight",
    ]  # fmt: skip
    levels = [params["level"] for request, params in attempt.port.told if request == "log"]
    assert levels == ["INFO", "WARNING", "INFO", "INFO", "INFO", "INFO", "INFO", "INFO"]


def test_one_line_is_cut_at_its_limit(begin: Begin) -> None:
    attempt = begin("print_one_endless_line")
    assert attempt.outcome.kind == "succeeded"
    (line,) = attempt.port.lines
    assert len(line) < LOG_LINE_LENGTH + 50
    assert line.endswith("more bytes were cut]")


def test_many_lines_are_cut_with_a_note(begin: Begin) -> None:
    attempt = begin("print_many_lines")
    assert attempt.outcome.kind == "succeeded"
    assert len(attempt.port.lines) == LOG_LINES + 1
    assert attempt.port.lines[-1] == "[2,000 more lines were cut]"


@pytest.mark.usefixtures("alone")
def test_the_first_progress_of_a_call_is_told_at_once(begin: Begin) -> None:
    assert begin("report", {"steps": 1}).outcome.kind == "succeeded"
    # It cannot be told later: no other thread runs while this handler works.
    assert begin("hold_the_gil").working().stop("lost").outcome.kind == "lost"


def test_progress_is_thinned_but_the_last_one_arrives(begin: Begin) -> None:
    attempt = begin("report", {"steps": 5_000})
    assert attempt.outcome.kind == "succeeded"
    shown = attempt.port.progress
    assert (shown[0], shown[-1]) == (1, 5_000)
    assert len(shown) < 20


def test_a_lock_is_asked_for_and_given_back(begin: Begin) -> None:
    port = Port()
    port.answers = {"lock": 7, "extend_lock": True}
    assert result(begin("hold_lock", port=port)) == 7
    assert port.told == [
        ("lock", {"name": "shop", "ttl": 10.0}),
        ("extend_lock", {"name": "shop", "token": 7, "ttl": 20.0}),
        ("extend_lease", {}),
        ("unlock", {"name": "shop", "token": 7}),
    ]


def test_errors_of_the_worker_are_raised_in_the_handler(begin: Begin) -> None:
    port = Port()
    port.answers = {"lock": 7, "extend_lock": LockNotHeld("lock 'shop' was lost")}
    assert str(begin("hold_lock", port=port).outcome.error).endswith(
        "rota.errors.LockNotHeld: lock 'shop' was lost"
    )
    port.answers = {"lock": ZeroDivisionError("bug")}
    assert "RotaError: ZeroDivisionError: bug" in str(begin("hold_lock", port=port).outcome.error)


@pytest.mark.usefixtures("alone")
def test_a_context_ends_with_its_attempt(begin: Begin) -> None:
    assert result(begin("use_old_context")) == "kept"
    again = begin("use_old_context")
    assert result(again) == "ctx is not usable any more: its attempt has ended"
    assert again.port.progress == []


def test_a_worker_that_cannot_keep_lines_does_not_leave_the_child() -> None:
    children, port = Children(), Port()
    port.answers = {"log": MemoryError("no room")}
    with pytest.raises(MemoryError):
        children.run(make_context("talk", port=port), "1")
    assert not children._busy
    children.close()


# Reuse


@pytest.mark.usefixtures("alone")
def test_a_warm_child_is_used_again_for_any_job(begin: Begin) -> None:
    first = result(begin("pid", job="one"))
    assert result(begin("pid", job="two")) == first
    assert result(begin("pid", job="one")) == first


def test_calls_at_a_time_have_a_child_each(begin: Begin) -> None:
    waiting = begin("wait_politely").working()
    assert result(begin("pid")) > 0
    assert waiting.stop("cancelled").outcome.kind == "cancelled"


@pytest.mark.usefixtures("alone")
def test_another_version_gets_a_fresh_child(begin: Begin) -> None:
    first = result(begin("pid", description="one"))
    assert result(begin("pid", description="one")) == first
    assert result(begin("pid", description="two")) != first


def test_an_edited_file_is_loaded_anew(begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    helper = tmp_path / "_helper_of_job.py"
    helper.write_text("def double(n): return n * 2\n")
    for number in (1, 2):
        path.write_text(f"from _helper_of_job import double\ndef run(): return double({number})\n")
        spec = {"file": str(path), "version": str(number)}
        assert result(begin(job="file", spec=spec)) == number * 2
    assert not list(tmp_path.glob("__pycache__/job*"))


def test_kept_source_runs_even_if_the_file_has_changed(begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("this is a bad edit")
    spec = {"file": str(path), "source": "def run():\n    return len(7)  # of the kept text\n"}
    outcome = begin(job="kept", spec=spec).outcome
    assert "return len(7)  # of the kept text" in str(outcome.error)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"function": "no_such_module:run"}, "ModuleNotFoundError: No module named"),
        ({"function": f"{HANDLERS}:no_such"}, "has no 'no_such'; was it renamed or moved?"),
        ({"file": "/nonexistent/job.py"}, "FileNotFoundError"),
        ({"file": "job.py", "source": "def run(:"}, "SyntaxError"),
        ({"file": "job.py", "source": "1 / 0"}, "ZeroDivisionError"),
        ({"file": "job.py", "source": "import sys; sys.exit(5)"}, "SystemExit: 5"),
    ],
)
def test_what_cannot_be_loaded_fails_with_the_reason(
    begin: Begin, spec: dict[str, Any], error: str
) -> None:
    outcome = begin(job="broken", spec=spec).outcome
    assert outcome.kind == "failed"
    assert error in str(outcome.error)
    assert "rota/executors" not in str(outcome.error)


def test_a_script_is_loaded_without_running_its_main_part(begin: Begin, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("def run():\n    return __name__\nif __name__ == '__main__':\n    1 / 0\n")
    assert result(begin(job="main", spec={"main": str(script), "function": "run"})) == (
        "__rota_main__"
    )


@pytest.mark.usefixtures("alone")
def test_a_mess_is_cleaned_up_and_the_child_kept(begin: Begin, tmp_path: Path) -> None:
    made = result(begin("make_a_mess", {"folder": str(tmp_path)}))
    after = begin("look_around")
    pid, folder, environment, mask, usr1, term, alarm = result(after)
    assert (pid, folder, environment) == (made, os.getcwd(), None)
    assert (mask != 0o777, usr1, term, alarm) == (True, True, True, 0)
    assert after.port.lines == ["heard"]


@pytest.mark.usefixtures("alone")
def test_ended_processes_are_collected_and_the_child_kept(begin: Begin) -> None:
    first = result(begin("leave_zombie"))
    assert result(begin("pid")) == first
    assert children_of(first) == set()


def test_a_thread_left_behind_retires_the_child(begin: Begin) -> None:
    left = result(begin("leave_thread"))
    assert is_gone(left)
    assert result(begin("pid")) != left


def test_a_process_left_behind_ends_with_its_child(begin: Begin) -> None:
    left, started = result(begin("leave_process"))
    assert wait_until(lambda: is_gone(started))
    assert result(begin("pid")) != left


def test_closed_output_retires_the_child(begin: Begin) -> None:
    left = result(begin("close_output"))
    assert result(begin("pid")) != left


@pytest.mark.usefixtures("alone")
def test_a_child_that_died_while_idle_is_not_noticed(begin: Begin) -> None:
    idle = result(begin("pid"))
    os.kill(idle, signal.SIGKILL)
    assert wait_until(lambda: is_gone(idle))
    assert result(begin("pid")) != idle


def test_a_child_serves_a_number_of_calls_and_then_leaves() -> None:
    children = Children(calls=2)
    served = [children.run(make_context("pid"), "1").result for _ in range(3)]
    assert served[0] == served[1] != served[2]
    assert wait_until(lambda: is_gone(int(str(served[0]))))
    children.close()
    assert is_gone(int(str(served[2])))


def test_an_idle_child_leaves() -> None:
    children = Children(idle_seconds=0.05)
    served = int(str(children.run(make_context("pid"), "1").result))
    assert wait_until(lambda: is_gone(served))
    children.close()


def test_retired_children_are_not_used_again(executor: PythonExecutor, begin: Begin) -> None:
    waiting, before = begin("wait_politely", job="busy").working(), result(begin("pid"))
    executor.retire()
    assert result(begin("pid")) != before
    waiting.stop("cancelled").outcome  # noqa: B018
    assert wait_until(lambda: is_gone(before))


def test_closing_ends_what_runs_and_releases_it(threads: ThreadPoolExecutor) -> None:
    children, port = Children(), Port()
    context = make_context("swallow_everything", port=port)
    attempt = Attempt(context, port, threads.submit(children.run, context, "1")).working()
    children.close()
    assert attempt.outcome.kind == "released"
    assert children.run(make_context("pid"), "1").kind == "released"


@pytest.mark.parametrize(
    ("executable", "error"),
    [
        ("/bin/false", "child process could not start, exited with code 1: "),
        ("/nonexistent", "child process could not start: [Errno 2] No such file or directory"),
    ],
)
def test_a_child_that_cannot_start_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, executable: str, error: str
) -> None:
    children = Children()
    monkeypatch.setattr(child_process, "EXIT_SECONDS", 20.0)
    monkeypatch.setattr(sys, "executable", executable)
    outcome = children.run(make_context("pid"), "1")
    assert outcome.kind == "failed"
    assert str(outcome.error).startswith(error)
    children.close()


def test_a_warm_call_is_quick_and_a_fresh_child_starts_soon() -> None:
    children = Children()

    def call() -> float:
        began = time.perf_counter()
        children.run(make_context("echo", {"value": 1}), "1")
        return time.perf_counter() - began

    fresh, warm = [], []
    for _ in range(5):
        fresh.append(call())
        warm += [call() for _ in range(20)]
        children.retire()
    children.close()
    # Ten times what they take on a quiet machine. The quickest tells what they cost; what a busy
    # machine does meanwhile makes some of them longer, and none shorter.
    assert min(fresh) < 2.0
    assert min(warm) < 0.01


# Ends


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("timed_out", "timed_out"), ("cancelled", "cancelled"), ("stopping", "released")],
)
def test_a_polite_handler_ends_by_itself(begin: Begin, reason: str, kind: str) -> None:
    outcome = begin("wait_politely", timeout=timedelta(minutes=10)).working().stop(reason).outcome
    assert outcome.kind == kind
    if reason == "timed_out":
        assert outcome.error == "timed out after 10m"


def test_a_handler_that_never_looked_has_finished(begin_patiently: Begin) -> None:
    attempt = begin_patiently("finish_deaf_to_stop").working().stop("stopping")
    assert (attempt.outcome.kind, attempt.outcome.result) == (
        "succeeded",
        '"finished all the same"',
    )


def test_a_lost_lease_is_lost_whatever_the_handler_says(begin: Begin) -> None:
    assert begin("finish_deaf_to_stop").working().stop("lost").outcome.kind == "lost"


def test_an_async_handler_is_cancelled(begin: Begin) -> None:
    assert begin("sleep_async").working().stop("cancelled").outcome.kind == "cancelled"


def test_sigterm_lets_finally_blocks_run(begin_patiently: Begin, tmp_path: Path) -> None:
    path = tmp_path / "note"
    attempt = begin_patiently("sleep_with_cleanup", {"path": str(path)}).working()
    attempt.stop("timed_out")
    assert attempt.outcome.kind == "timed_out"
    assert path.read_text() == "cleaned up"


@pytest.mark.parametrize(
    "handler",
    ["swallow_everything", "ignore_sigterm", "compute_in_c", "hold_the_gil", "print_for_ever"],
)
def test_nothing_survives_its_timeout(begin: Begin, handler: str) -> None:
    attempt = begin(handler).working()
    assert attempt.stop("timed_out").outcome.kind == "timed_out"
    assert len(attempt.port.lines) <= LOG_LINES + 1
    assert result(begin("pid")) > 0


def test_a_stop_before_the_start_runs_nothing(executor: PythonExecutor) -> None:
    context = make_context("exit_hard")
    context.stop("cancelled")
    assert executor.run(context).kind == "cancelled"


def test_a_stop_that_comes_before_its_call_is_heard() -> None:
    children = Children(kill_after=1000)
    context = make_context("wait_politely")
    context.stop("cancelled")
    assert children.run(context, "1").kind == "cancelled"
    children.close()


class Asleep(Port):
    """Puts the child to sleep when it asks for a file, which is longer than its channel."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.before_answer: Callable[[], None] = lambda: None

    def __call__(self, request: str, params: dict[str, Any]) -> Any:
        super().__call__(request, params)
        if request == "read_file":
            os.kill(self.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, self.pid, os.WSTOPPED)
            self.before_answer()
            self.asked.set()
            return b"x" * KEPT_FILE_BYTES
        return None

    @property
    def pid(self) -> int:
        return int(self.progress[0])

    def wake_child(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def test_a_stop_waits_behind_a_long_answer(patient: Children, threads: ThreadPoolExecutor) -> None:
    port = Asleep()
    context = make_context("read_and_wait", port=port)
    attempt = Attempt(context, port, threads.submit(patient.run, context, "1"))
    assert port.asked.wait(20)
    (child,) = patient._busy
    assert wait_until(child._sending.locked)
    attempt.stop("cancelled")
    port.wake_child()
    assert attempt.outcome.kind == "cancelled"
    assert port.lines == [f"read {KEPT_FILE_BYTES}", "heard True"]


def test_a_stop_waits_for_a_full_channel(patient: Children, threads: ThreadPoolExecutor) -> None:
    port = Asleep()
    context = make_context("read_and_wait", port=port)

    def stop() -> None:
        (child,) = patient._busy
        for _ in range(100_000):
            if child._unsent:
                break
            child.send_nowait(Stop(call=0, reason="for no call"))
        context.stop("cancelled")
        port.wake_child()

    port.before_answer = stop
    attempt = Attempt(context, port, threads.submit(patient.run, context, "1"))
    assert attempt.outcome.kind == "cancelled"
    assert port.lines == [f"read {KEPT_FILE_BYTES}", "heard True"]


@pytest.mark.parametrize("noise", [b"not a message\n", b"x" * (LONGEST + 1)], ids=["word", "long"])
def test_a_child_that_cannot_understand_its_worker_ends(noise: bytes) -> None:
    child = ChildProcess()
    try:
        with suppress(OSError):  # it has heard enough before the end
            child._channel.sendall(noise)
        assert has_exited(child.pid, within=20)
    finally:
        assert child.reap() == CHANNEL_LOST


def test_the_whole_family_ends(begin: Begin) -> None:
    attempt = begin("have_a_family").working()
    family = pids(attempt.port)
    assert len(family) == 3
    assert not any(map(is_gone, family))
    assert attempt.stop("timed_out").outcome.kind == "timed_out"
    assert wait_until(lambda: all(map(is_gone, family)))


WORKER = """
import sys
sys.path[:0] = {path!r}
from tests.executors.conftest import Port, make_context
from rota.executors.python import PythonExecutor

class Loud(Port):
    def __call__(self, request, params):
        super().__call__(request, params)
        if request == "progress":
            print(*self.lines, flush=True)

PythonExecutor().run(make_context({handler!r}, port=Loud()))
print("idle", flush=True)
sys.stdin.read()
"""


@contextmanager
def worker(handler: str) -> Iterator[subprocess.Popen[str]]:
    script = WORKER.format(path=[os.getcwd(), *sys.path], handler=handler)
    command = [sys.executable, "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_killed_worker_takes_its_children_along_even_with_the_gil_held() -> None:
    with worker("hold_the_gil_with_a_child") as process:
        family = [int(word) for word in read_line(process).split()[1:]]
        assert len(family) == 2
        assert not any(map(is_gone, family))
        process.kill()
        assert wait_until(lambda: all(map(is_gone, family)))


def test_an_idle_child_ends_with_a_killed_worker() -> None:
    with worker("ping") as process:
        assert (read_line(process), read_line(process)) == ("", "idle")
        (child,) = children_of(process.pid)
        process.kill()
        assert wait_until(lambda: is_gone(child))


# Poison


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        ("exit_hard", "child process exited with code 3"),
        ("crash", "child process was killed by SIGSEGV"),
        ("kill_self", "child process was killed by SIGKILL; was the machine out of memory?"),
        ("terminate_self", "ended by SIGTERM, which was not sent by Rota"),
        ("exit_softly", "SystemExit: 4"),
        ("interrupt", "KeyboardInterrupt"),
        ("recurse", "RecursionError: maximum recursion depth exceeded"),
        ("close_everything", "the handler closed the descriptors of its child process"),
        ("babble_on_the_channel", "wrote to a descriptor of its child process that is not its own"),
    ],
)
def test_poison_fails_its_own_attempt_only(
    begin: Begin, handler: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if handler in ("exit_hard", "crash", "kill_self"):  # the others do not exit
        monkeypatch.setattr(child_process, "EXIT_SECONDS", 20.0)
    outcome = begin(handler).outcome
    assert outcome.kind == "failed"
    assert error in str(outcome.error)
    assert result(begin("pid")) > 0


def test_a_crash_shows_where_it_happened(begin: Begin) -> None:
    attempt = begin("crash")
    assert attempt.outcome.kind == "failed"
    assert any("handlers.py" in line and "in crash" in line for line in attempt.port.lines)


def test_nothing_of_ours_is_written_into_the_users_files(begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / "data"
    outcome = begin("replace_everything", {"path": str(path)}).outcome
    assert outcome.error == "the handler closed the descriptors of its child process"
    assert path.read_bytes() == b""


@pytest.mark.usefixtures("alone")
def test_a_fork_answers_once(begin: Begin) -> None:
    original = result(begin("fork_and_return"))
    assert result(begin("pid")) == original


def test_a_failing_fork_is_told_and_does_not_answer(begin: Begin) -> None:
    attempt = begin("fork_and_fail")
    assert result(attempt) == "original"
    assert attempt.port.lines[-1] == "ValueError: in the fork"
