"""The loop: steps in a real thread, with pauses, wake-ups, failures and an end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, Queue

import pytest

from rota.errors import Unavailable
from rota.flow import loop as loop_module
from rota.flow.loop import Loop, stop_loops

PATIENCE = 30.0  # a bound for a broken build, never waited for in a working one


class Steps:
    """Steps that tell when they are taken, and do what the test says."""

    def __init__(self) -> None:
        self.taken: Queue[float] = Queue()
        self.does: Callable[[], float] = lambda: 60.0

    def __call__(self) -> float:
        self.taken.put(time.monotonic())
        return self.does()

    def wait(self, count: int = 1) -> list[float]:
        return [self.taken.get(timeout=PATIENCE) for _ in range(count)]


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def loop(steps: Steps) -> Iterator[Loop]:
    made = Loop("test", steps)
    yield made
    made.stop(PATIENCE)
    assert not made.alive


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(loop_module, "LONGEST_PAUSE", 0.004)


def fail() -> float:
    raise RuntimeError("broken")


def test_a_first_step_that_can_wait_is_taken_when_somebody_asks(steps: Steps) -> None:
    patient = Loop("test", steps, after_seconds=2 * PATIENCE)
    patient.start()
    assert not patient.woken
    patient.wake()
    steps.wait()
    patient.stop(PATIENCE)
    assert steps.taken.empty(), "it did not wait"


def test_a_loop_that_waits_for_its_first_step_can_be_stopped(steps: Steps) -> None:
    patient = Loop("test", steps, after_seconds=2 * PATIENCE)
    patient.start()
    patient.stop(PATIENCE)
    assert not patient.alive
    assert steps.taken.empty()


def test_a_step_that_asks_for_no_pause_is_followed_at_once(loop: Loop, steps: Steps) -> None:
    steps.does = lambda: 0.0
    loop.start()
    steps.wait(50)


def test_the_pause_is_what_the_step_returns(loop: Loop, steps: Steps) -> None:
    steps.does = lambda: 0.05
    loop.start()
    first, second = steps.wait(2)
    assert second - first >= 0.045


def test_a_wake_ends_the_pause(loop: Loop, steps: Steps) -> None:
    loop.start()
    steps.wait()
    loop.wake()
    steps.wait()


def test_a_wake_is_worth_one_step(loop: Loop, steps: Steps) -> None:
    loop.start()
    steps.wait()
    loop.wake()
    steps.wait()
    with pytest.raises(Empty):
        steps.taken.get(timeout=0.1)


def test_a_wake_during_a_step_leads_to_one_more_step(loop: Loop, steps: Steps) -> None:
    def wake_then_sleep() -> float:
        steps.does = lambda: 60.0
        loop.wake()
        return 60.0

    steps.does = wake_then_sleep
    loop.start()
    steps.wait(2)


def test_stop_waits_for_the_step_under_way_and_takes_no_more(loop: Loop, steps: Steps) -> None:
    go_on, ended = threading.Event(), threading.Event()

    def slow() -> float:
        go_on.wait(PATIENCE)
        ended.set()
        return 0.0

    steps.does = slow
    loop.start()
    steps.wait()
    stopper = threading.Thread(target=loop.stop)
    stopper.start()
    assert loop._stopping.wait(PATIENCE)
    go_on.set()
    stopper.join(PATIENCE)
    assert not stopper.is_alive()
    assert ended.is_set()
    assert not loop.alive
    assert steps.taken.empty()


def test_stop_gives_up_waiting_after_its_timeout(loop: Loop, steps: Steps) -> None:
    go_on = threading.Event()
    steps.does = lambda: float(go_on.wait(PATIENCE))
    loop.start()
    steps.wait()
    loop.stop(0.01)
    assert loop.alive
    go_on.set()


def test_loops_stop_side_by_side(loop: Loop, steps: Steps) -> None:
    """The step of the first ends when the last of them has ended: a stop one after the other
    would wait for it in vain."""
    others = [Loop(f"other {number}", lambda: 60.0) for number in range(2)]
    for other in others:
        other.start()
    last = others[-1]
    steps.does = lambda: 0.0 if last._thread is None else last._thread.join(PATIENCE) or 60.0
    loop.start()
    steps.wait()
    stop_loops([loop, *others], 2 * PATIENCE)
    assert not any(one.alive for one in (loop, *others))


def test_loops_that_do_not_stop_are_waited_for_together(
    loop: Loop, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, other, waits = threading.Event(), Loop("other", lambda: 60.0), []
    steps.does = lambda: float(go_on.wait(PATIENCE))
    loop.start()
    steps.wait()
    monkeypatch.setattr(other, "stop", waits.append)
    stop_loops([loop, other], 0.01)
    assert loop.alive
    assert waits == [0.0]
    go_on.set()


def test_a_stop_ends_a_pause_and_the_pause_after_a_failure(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "FIRST_PAUSE", 60.0)
    monkeypatch.setattr(loop_module, "LONGEST_PAUSE", 60.0)
    for does in (lambda: 60.0, fail):
        steps.does = does
        loop = Loop("test", steps)
        loop.start()
        steps.wait()
        loop.stop(PATIENCE)
        assert not loop.alive


def test_a_step_may_stop_its_own_loop(loop: Loop, steps: Steps) -> None:
    ended = threading.Event()

    def stop() -> float:
        loop.stop()
        ended.set()
        return 60.0

    steps.does = stop
    loop.start()
    assert ended.wait(PATIENCE)
    assert loop._thread is not None
    loop._thread.join(PATIENCE)
    assert not loop.alive


@pytest.mark.usefixtures("short_pauses")
def test_a_failing_step_never_ends_the_thread(loop: Loop, steps: Steps) -> None:
    steps.does = fail
    loop.start()
    steps.wait(120)
    assert loop.alive
    assert loop.failures >= 119
    assert loop.last_error == "RuntimeError: broken"
    seen, recovered = [], threading.Event()

    def work() -> float:
        seen.append((loop.failures, loop.last_error))
        if len(seen) == 3:
            recovered.set()
        return 0.001

    steps.does = work
    assert recovered.wait(PATIENCE)
    assert seen[1:3] == [(0, None), (0, None)]


def test_the_pause_after_failures_grows_to_a_limit(steps: Steps) -> None:
    loop = Loop("test", steps)
    pauses = [loop._pause_after(Unavailable("away")) for _ in range(1_000)]
    assert 0.05 <= pauses[0] <= 0.1
    assert 0.2 <= pauses[2] <= 0.4
    assert all(1.0 <= pause <= 2.0 for pause in pauses[5:])


def test_wake_ups_do_not_shorten_the_pause_after_a_failure(
    loop: Loop, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "FIRST_PAUSE", 0.2)
    steps.does = fail
    loop.start()
    (first,) = steps.wait()
    for _ in range(100):
        loop.wake()
    (second,) = steps.wait()
    assert second - first >= 0.09


def test_a_failure_that_stays_does_not_fill_the_log(
    steps: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop("fire", steps)
    with caplog.at_level(logging.WARNING, "rota.loop"):
        for _ in range(250):
            loop._pause_after(Unavailable("the database is away"))
    assert [record.getMessage() for record in caplog.records] == [
        "fire: the database is away"
    ] * 4  # the first, the tenth, the hundredth, the two hundredth
    assert [record.exc_info for record in caplog.records] == [None] * 4


def test_an_unexpected_failure_is_logged_with_its_traceback(
    steps: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop("fire", steps)
    try:
        fail()
    except RuntimeError as fault:
        loop._pause_after(fault)
    assert caplog.records[0].exc_info is not None


def test_a_loop_can_be_started_again(loop: Loop, steps: Steps) -> None:
    for _ in range(2):
        loop.start()
        steps.wait()
        assert loop.alive
        loop.stop(PATIENCE)
        assert not loop.alive
