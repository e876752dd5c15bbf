"""The life of an app: start, stop, start again, and what a graceful stop leaves behind."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.flow.workers import state_of
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.storage import operations
from tests.api import handlers
from tests.api.support import PATIENCE, Gate, Watch, wait_until
from tests.support.operations import replace_operation
from tests.surface.conftest import environment


def attempts(app: rota.Rota, run_id: str) -> list[str]:
    return [one["outcome"] for one in app.control.attempts(run_id)]


def test_an_app_starts_once(app: rota.Rota) -> None:
    app.start()
    with pytest.raises(rota.Conflict, match="this app is running already"):
        app.start()
    assert set(app.health.values()) == {None}
    app.stop()
    assert app.health == {}
    app.stop()


@pytest.mark.each_engine
def test_a_stopped_app_starts_again(app: rota.Rota, watch: Watch) -> None:
    """With handlers in a thread, on the event loop and in a process, and a schedule."""
    ticks: list[int] = []

    @app.job()
    def in_thread() -> str:
        return "thread"

    @app.job()
    async def on_loop() -> str:
        await asyncio.sleep(0)
        return "loop"

    @app.job(every="100ms")
    def tick() -> None:
        ticks.append(1)

    app.job("in_process", isolation="process")(handlers.pid)
    for _ in range(2):
        app.start()
        seen = len(ticks)
        runs = [app.enqueue(name).id for name in ("in_thread", "on_loop", "in_process")]
        ends = [watch.end(run_id) for run_id in runs]
        assert [run.state for run in ends] == ["succeeded"] * 3
        assert [run.result for run in ends[:2]] == ['"thread"', '"loop"']
        wait_until(lambda seen=seen: len(ticks) > seen, "a tick")
        app.stop()
    assert len(app.runs("in_thread")) == 2


def test_a_given_executor_is_there_after_a_restart(app: rota.Rota, watch: Watch) -> None:
    class Echo:
        def check(self, job: Job) -> None: ...

        def run(self, context: rota.Context) -> Outcome:
            return Outcome(kind="succeeded", result='"echo"')

    app.executor("echo", Echo())
    app.add_job(Job(name="say", executor="echo"))
    for _ in range(2):
        app.start()
        assert watch.end(app.enqueue("say").id).result == '"echo"'
        app.stop()


@pytest.mark.each_engine
def test_a_closed_app_opens_again_when_it_is_used(app: rota.Rota) -> None:
    @app.job()
    def note() -> None: ...

    first = note.enqueue()
    app.close()
    second = note.enqueue()
    assert [run.id for run in app.runs("note")] == [second.id, first.id]


def test_a_graceful_stop_waits_for_handlers(app: rota.Rota, watch: Watch) -> None:
    begun = threading.Event()

    @app.job()
    def work(ctx: rota.Context) -> str:
        begun.set()
        assert not ctx.wait(0.2)
        return "done"

    app.start()
    made = work.enqueue()
    assert begun.wait(PATIENCE)
    app.stop(grace="20s")
    run = app.control.run(made.id)
    assert (run.state, run.result) == ("succeeded", '"done"')
    assert watch.of(made.id)[-1] == "job.completed"


def test_a_worker_that_stops_says_so(app: rota.Rota) -> None:
    begun, end = threading.Event(), threading.Event()

    @app.job()
    def work() -> None:
        begun.set()
        assert end.wait(PATIENCE)

    def states() -> list[str]:
        return [state_of(one, app.control.now()) for one in app.control.workers()]

    app.start()
    work.enqueue()
    assert begun.wait(PATIENCE)
    wait_until(lambda: states() == ["alive"], "a row of its own")
    stop = threading.Thread(target=app.stop, kwargs={"grace": "20s"})
    stop.start()
    try:
        wait_until(lambda: states() == ["stopping"], "a row that says so")
        waits = app.enqueue("work")
        assert "no live worker knows the job" in str(app.control.run(waits.id).reason)
    finally:
        end.set()
        stop.join(PATIENCE)
    assert states() == []


@pytest.mark.each_engine
def test_what_does_not_end_in_its_grace_is_released_and_finished_by_the_next_start(
    app: rota.Rota, watch: Watch
) -> None:
    gate, late = Gate(), threading.Event()

    @app.job(max_attempts=1)
    def stubborn(ctx: rota.Context) -> int:
        if ctx.attempt == 1:
            gate()
            late.set()
        return ctx.attempt

    app.start()
    made = stubborn.enqueue()
    gate.wait()
    begun = time.monotonic()
    app.stop(grace="100ms")
    assert time.monotonic() - begun < PATIENCE
    run = app.control.run(made.id)
    assert (run.state, run.failures, run.lost, run.attempt) == ("queued", 0, 0, 1)
    assert attempts(app, made.id) == ["released"]
    app.start()
    run = watch.end(made.id)
    assert (run.state, run.result, run.failures) == ("succeeded", "2", 0)
    # The first attempt returns at last, and changes nothing.
    gate.open()
    assert late.wait(PATIENCE)
    app.stop()
    assert app.control.run(made.id).result == "2"
    assert attempts(app, made.id) == ["released", "succeeded"]
    assert watch.of(made.id).count("job.started") == 1


def test_a_handler_that_looks_ends_early_and_is_done_again(app: rota.Rota, watch: Watch) -> None:
    begun = threading.Event()

    @app.job(max_attempts=1)
    def polite(ctx: rota.Context) -> str:
        if ctx.attempt == 1:
            begun.set()
            assert ctx.wait(PATIENCE)
            assert ctx.stop_reason == "stopping"
            return "half"
        return "whole"

    app.start()
    made = polite.enqueue()
    assert begun.wait(PATIENCE)
    app.stop(grace="0s")
    assert attempts(app, made.id) == ["released"]
    app.start()
    assert watch.end(made.id).result == '"whole"'


def test_a_coroutine_and_a_process_are_ended_and_done_again(app: rota.Rota, watch: Watch) -> None:
    begun = threading.Event()

    @app.job(max_attempts=1)
    async def on_loop(ctx: rota.Context) -> int:
        if ctx.attempt == 1:
            begun.set()
            await asyncio.sleep(600)
        return ctx.attempt

    app.job(max_attempts=1, isolation="process")(handlers.hang)
    app.start()
    coroutine, process = on_loop.enqueue(), app.enqueue("hang")
    assert begun.wait(PATIENCE)
    wait_until(lambda: app.storage.read(operations.get_run, process.id).progress, "the process")
    app.stop(grace="0s")
    for made in (coroutine, process):
        run = app.control.run(made.id)
        assert (run.state, run.failures, run.attempt) == ("queued", 0, 1)
        assert attempts(app, made.id) == ["released"]
    app.control.cancel(process.id)
    app.start()
    assert watch.end(coroutine.id).result == "2"


def test_runs_that_have_not_begun_stay_queued(make_app: Callable[..., rota.Rota]) -> None:
    app, begun = make_app(slots=1), threading.Event()

    @app.job()
    def work(ctx: rota.Context) -> None:
        begun.set()
        ctx.wait(PATIENCE)

    app.start()
    made = work.enqueue_many([{}] * 4)
    assert begun.wait(PATIENCE)
    app.stop(grace="0s")
    runs = [app.control.run(one.id) for one in made]
    assert [run.state for run in runs] == ["queued"] * 4
    assert [(run.attempt, run.failures) for run in runs] == [(1, 0)] + [(0, 0)] * 3


def test_claims_stop_before_anything_else_does(make_app: Callable[..., rota.Rota]) -> None:
    app, gate = make_app(slots=1), Gate()
    watch = Watch(app)

    @app.job()
    def work() -> None:
        gate()

    app.start()
    first, second = work.enqueue(), work.enqueue()
    gate.wait()
    assert app._service is not None
    promote = app._service.loops["promote"]
    stop = promote.stop

    def slowly(timeout: float | None = None) -> None:
        """The slot becomes free while the loops are still being stopped."""
        gate.open()
        watch.end(first.id)
        assert app._service is None
        stop(timeout)

    promote.stop = slowly  # type: ignore[method-assign]
    app.stop()
    assert app.control.run(first.id).state == "succeeded"
    assert app.control.run(second.id).state == "queued"


def test_a_slow_loop_does_not_keep_the_others_from_stopping(
    app: rota.Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.flow.service.LOOP_STOP_SECONDS", 2 * PATIENCE)
    app.start()
    service = app._service
    assert service is not None
    fire, promote = service.loops["fire"], service.loops["promote"]
    under_way, seen = Gate(), []

    def slow() -> float:
        under_way()
        assert fire._thread is not None
        fire._thread.join(PATIENCE)  # less than a stop waits for one loop
        seen.append(fire.alive)
        return 60.0

    promote.step = slow
    promote.wake()
    under_way.wait()
    under_way.open()
    app.stop()
    assert seen == [False]


def test_nothing_fires_and_nothing_is_claimed_after_a_stop(
    make_app: Callable[..., rota.Rota],
) -> None:
    app, client = make_app(), make_app()

    @app.job(every="50ms", overlap="allow")
    def tick() -> None: ...

    app.start()
    wait_until(lambda: len(app.runs("tick")) >= 2)
    app.stop()
    left = client.control.occurrences("tick", limit=500)
    made = client.enqueue("tick")
    app.load()
    assert client.control.occurrences("tick", limit=500) == left
    assert client.control.run(made.id).state == "queued"
    assert client.control.workers() == []


def test_jobs_of_one_app_are_left_to_its_own_workers(make_app: Callable[..., rota.Rota]) -> None:
    one, other = make_app(), make_app()

    @one.job()
    def mine() -> None: ...

    @other.job()
    def yours() -> None: ...

    watch = Watch(other)
    unknown = mine.enqueue()
    other.start()
    watch.end(yours.enqueue().id)
    assert one.control.run(unknown.id).state == "queued"


def test_a_worker_takes_only_from_its_queues(make_app: Callable[..., rota.Rota]) -> None:
    app = make_app(queues=["mail"])
    watch = Watch(app)

    @app.job(queue="mail")
    def send() -> None: ...

    @app.job()
    def other() -> None: ...

    app.start()
    left = other.enqueue()
    assert watch.end(send.enqueue().id).state == "succeeded"
    assert app.control.run(left.id).state == "queued"


def test_no_more_handlers_run_at_once_than_there_are_slots(
    make_app: Callable[..., rota.Rota],
) -> None:
    app = make_app(slots=2)
    guard, running, most = threading.Condition(), 0, 0

    @app.job()
    def work(ctx: rota.Context) -> None:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
            guard.notify_all()
            assert guard.wait_for(lambda: most >= 2, PATIENCE), "it runs alone"
        ctx.wait(0.01)  # long enough for one too many to come in
        with guard:
            running -= 1

    app.start()
    made: list[Any] = work.enqueue_many([{}] * 12)
    wait_until(lambda: len(app.control.runs(state="succeeded")) == len(made))
    assert most == 2


def test_a_run_whose_worker_died_is_done_by_another(make_app: Callable[..., rota.Rota]) -> None:
    app = make_app(lease="8s")  # a rescue comes soon, and the other one has time for its work
    watch = Watch(app)

    @app.job(max_attempts=1)
    def work(ctx: rota.Context) -> int:
        return ctx.attempt

    made = work.enqueue()
    (claimed,) = app.storage.write(
        operations.claim,
        "gone",
        queues=(),
        jobs=["work"],
        limit=1,
        lease=timedelta(milliseconds=20),
    )
    app.start()
    run = watch.end(made.id)
    assert (run.state, run.result) == ("succeeded", "2")
    assert (run.lost, run.failures, claimed.attempt) == (1, 0, 1)
    assert attempts(app, made.id) == ["lost", "succeeded"]


def test_who_asks_for_an_end_gets_no_new_beginning(tmp_path: Path) -> None:
    """Slots that are found stuck between the signal and the stop."""
    script = tmp_path / "stuck.py"
    script.write_text(
        "import os, pathlib, signal, sys\n"
        "import rota\n"
        "from rota.life import live\n"
        "print('begun', flush=True)\n"
        "begun = pathlib.Path('begun')\n"
        "if begun.exists(): sys.exit(3)\n"
        "begun.touch()\n"
        'app = rota.Rota("sqlite:///stuck.db")\n'
        "start, found = app.start, []\n"
        "def started(only, *, on_stuck):\n"
        "    start(only, on_stuck=on_stuck)\n"
        "    found.append(on_stuck)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "app.start = started\n"
        "sys.exit(4 if live(app, ('worker',), lambda: found[0]()) else 0)\n"
    )
    ended = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (ended.stdout, ended.returncode) == ("begun\n", 0), ended.stderr


def test_a_signal_is_heard_wherever_it_interrupts_the_wait_for_it(tmp_path: Path) -> None:
    """Looking for it all the time, so that it comes in the middle of a look. Many times: most
    places are harmless."""
    script = tmp_path / "program.py"
    script.write_text(
        "import os, signal, threading, time, rota\n"
        "from rota import life\n"
        "life.SIGNAL_LOOK_SECONDS = 0\n"
        f"app = rota.Rota('sqlite:///{tmp_path / 'rota.db'}')\n"
        "def ask():\n"
        "    while not app.health:\n"
        "        time.sleep(0.01)\n"
        "    time.sleep(0.02)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "for _ in range(20):\n"
        "    asking = threading.Thread(target=ask)\n"
        "    asking.start()\n"
        "    app.run(only=['scheduler'])\n"
        "    asking.join()\n"
    )
    ended = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr


def test_a_worker_that_nobody_asks_needs_no_parser_of_statements(tmp_path: Path) -> None:
    code = f"""
import sys, threading, rota
app = rota.Rota("sqlite:///{tmp_path}/rota.db")
app.job("work")(lambda: None)
done = threading.Event()
app.on("job.completed")(lambda event: done.set())
app.start()
app.enqueue("work")
assert done.wait({PATIENCE})
app.stop()
print([name for name in sys.modules if name.startswith("rota.sql")])
"""
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment()
    )
    assert told.stdout.strip() == "[]", told.stderr


def test_a_program_that_set_up_no_logging_says_what_it_does(tmp_path: Path) -> None:
    script = tmp_path / "quiet.py"
    script.write_text(
        "import rota\n"
        'app = rota.Rota("sqlite:///quiet.db")\n'
        '@app.job(every="1s")\n'
        "def hi(ctx): pass\n"
        'if __name__ == "__main__":\n'
        "    app.run()\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    told = [process.stderr.readline() for _ in range(3)]
    process.terminate()
    process.communicate(timeout=30)
    assert "rota runs on sqlite:///quiet.db; jobs: hi" in told[0]
    assert "hi started" in told[1]
    assert "hi completed" in told[2]
    assert process.returncode == 0


@pytest.mark.parametrize("engine", ["sqlite"])
def test_ended_runs_leave_nothing_to_the_collector(app: rota.Rota) -> None:
    """A worker that ends thousands a second would spend half of its time in collections."""

    @app.job()
    def in_thread() -> None: ...

    @app.job()
    async def on_loop() -> None: ...

    app.start()
    gc.disable()
    try:
        before = contexts()
        for job in (in_thread, on_loop):
            job.enqueue_many([{}] * 100)
        wait_until(lambda: app.control.overview()["runs"].get("succeeded") == 200, "the end of all")
        wait_until(lambda: contexts() <= before + 10, "the end of their contexts")
    finally:
        gc.enable()


def contexts() -> int:
    return sum(type(one) is rota.Context for one in gc.get_objects())


def test_a_file_switches_the_scheduler_of_a_running_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("rota.toml")
    times = iter(range(1, 10))

    def switch(enabled: str) -> None:
        file.write_text(f"[scheduler]\nenabled = {enabled}\n")
        long_ago = time.time() - 100 + next(times)  # or it would be taken for half written
        os.utime(file, (long_ago, long_ago))

    switch("false")
    app = rota.Rota("sqlite:///rota.db")

    @app.job(every="100ms")
    def tick() -> None: ...

    def occurrences() -> int:
        return len(app.control.occurrences("tick", limit=500))

    app.start()
    try:
        switch("true")
        wait_until(lambda: occurrences() > 2, "the first ticks")
        switch("false")
        wait_until(lambda: "the scheduler is off now" in caplog.text, "off")
        seen = occurrences()
        run = app.enqueue("tick", delay="400ms")
        wait_until(
            lambda: app.storage.read(operations.get_run, run.id).state == "succeeded",
            "a run meanwhile",
        )
        assert occurrences() == seen
        switch("true")
        wait_until(lambda: occurrences() > seen, "on again")
    finally:
        app.stop()


def test_a_job_whose_schedule_could_not_be_kept_may_be_defined_again(
    app: rota.Rota, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.start()

    def away(*_: object, **__: object) -> None:
        raise rota.Unavailable("the database is away")

    with monkeypatch.context() as patch:
        replace_operation(patch, app.storage, operations.register_schedule, away)
        with pytest.raises(rota.Unavailable):
            app.job("late", every="1h")(handlers.pid)
    again = app.job("late", every="1h")(handlers.pid)
    assert watch.end(again.enqueue().id).state == "succeeded"
    assert [one.name for one in app.control.schedules()] == ["late"]
