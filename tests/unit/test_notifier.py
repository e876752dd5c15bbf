"""The thread that tells other processes: what was asked last is always said."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue

import pytest

from rota.storage.postgres import wake
from rota.storage.postgres.wake import COUNTED_SECONDS, CROWD, QUIET_SECONDS, Crowd, Notifier

SOON_SECONDS = 30.0  # a bound for a broken build, never waited for in a working one


class Told(SimpleQueue[None]):
    """What the thread sends."""

    def once(self) -> None:
        self.get(timeout=SOON_SECONDS)

    def nothing(self) -> bool:
        try:
            self.get_nowait()
        except Empty:
            return True
        return False


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def notifier(told: Told) -> Iterator[Notifier]:
    notifier = Notifier(lambda: told.put(None))
    yield notifier
    notifier.close(SOON_SECONDS)


def test_each_that_asks_is_told_of(notifier: Notifier, told: Told) -> None:
    for _ in range(20):
        notifier.notify()
        told.once()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ended_is_followed_by_another(told: Told) -> None:
    ends = [SystemExit()]

    def send() -> None:
        told.put(None)
        if ends:
            raise ends.pop()

    notifier = Notifier(send)
    notifier.notify()
    told.once()
    while (thread := notifier._thread) is not None:
        thread.join(SOON_SECONDS)
    notifier.notify()
    told.once()
    notifier.close(SOON_SECONDS)


def test_a_thread_that_could_not_start_is_tried_again(
    notifier: Notifier, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", no_more)
        with pytest.raises(RuntimeError):
            notifier.notify()
    notifier.notify()
    told.once()


def test_many_that_ask_in_the_quiet_time_are_told_of_once(
    notifier: Notifier, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake, "QUIET_SECONDS", 3600.0)
    assert notifier.may_send() == 0
    for _ in range(5):
        notifier.notify()
    assert told.nothing()
    monkeypatch.setattr(wake, "QUIET_SECONDS", 0.0)
    notifier.close(0)  # wakes the thread before its time
    told.once()
    notifier.close(SOON_SECONDS)
    assert told.nothing()


@pytest.fixture
def number(notifier: Notifier, monkeypatch: pytest.MonkeyPatch) -> int:
    """Somebody has asked, and somebody else may send it before the thread does."""
    monkeypatch.setattr(wake, "LULL_SECONDS", 3600.0)
    assert notifier.may_send() == 0
    notifier.notify()
    monkeypatch.setattr(wake, "QUIET_SECONDS", 0.0)
    assert notifier.may_send() == 1
    return 1


def end(notifier: Notifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread sends what is left to it."""
    monkeypatch.setattr(wake, "LULL_SECONDS", 0.0)
    notifier.close(SOON_SECONDS)


def test_who_sends_behind_his_own_commit_tells_of_those_before_him(
    notifier: Notifier, told: Told, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    notifier.sent(number)
    end(notifier, monkeypatch)
    assert told.nothing()


def test_who_asks_while_another_one_sends_is_told_of_by_the_thread(
    notifier: Notifier, told: Told, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    notifier.notify()  # nobody knows whether what is sent comes after that
    notifier.sent(number)
    end(notifier, monkeypatch)
    told.once()
    assert told.nothing()


def test_what_was_to_be_sent_and_failed_leaves_others_to_the_thread(
    notifier: Notifier, told: Told, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    end(notifier, monkeypatch)
    told.once()


def test_nothing_is_sent_again_at_the_end(notifier: Notifier, told: Told) -> None:
    notifier.notify()
    told.once()
    notifier.close(SOON_SECONDS)
    assert told.nothing()


def test_an_interrupt_loses_no_more_than_its_own(
    notifier: Notifier, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    notifier.notify()
    told.once()

    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(notifier._changed, "notify", interrupted)
        with pytest.raises(KeyboardInterrupt):
            notifier.notify()
    notifier.notify()
    told.once()


def test_a_crowd_is_all_runs_for_each_one_of_ours() -> None:
    crowd = Crowd()
    assert crowd.count(0.0, seq=100, made=1) == 1.0  # nothing to compare with
    assert crowd.count(0.01, seq=120, made=6) == 4.0
    assert crowd.count(0.02, seq=125, made=11) == 1.0
    assert crowd.count(0.03, seq=100_125, made=12) == CROWD
    # A caller's transaction that is committed late, or a statement that was sent again.
    assert crowd.count(0.04, seq=100_120, made=13) == 1.0


def test_who_was_there_long_ago_is_no_crowd() -> None:
    crowd = Crowd()
    crowd.count(0.0, seq=100, made=1)
    assert crowd.count(2 * COUNTED_SECONDS, seq=10_000, made=2) == 1.0
    assert crowd.count(2 * COUNTED_SECONDS, seq=10_000, made=2) == 1.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(wake.time, "monotonic", lambda: now[0])
    return now


def test_in_a_crowd_each_sends_less_often(notifier: Notifier, clock: list[float]) -> None:
    step = 1.5 * QUIET_SECONDS
    for seq in (100, 104):  # four were made for the second one of ours
        number = notifier.may_send()
        assert number is not None
        notifier.sent(number, seq=seq)
        clock[0] += step
    assert notifier.may_send() is None
    clock[0] += 4 * QUIET_SECONDS
    assert notifier.may_send() is not None


def test_own_runs_are_no_crowd(notifier: Notifier, clock: list[float]) -> None:
    notifier.notify(5)  # no run of the others is between these, and the next one
    assert notifier.may_send() == 1
    notifier.sent(1, seq=106)
    clock[0] += 2 * QUIET_SECONDS
    notifier.notify(1000)
    assert notifier.may_send() == 2
    notifier.sent(2, seq=1107)
    clock[0] += 1.5 * QUIET_SECONDS
    assert notifier.may_send() is not None


def test_the_last_one_of_a_crowd_is_told_of_by_the_thread(
    notifier: Notifier, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake, "QUIET_SECONDS", 0.0)
    for seq in (100, 200):
        number = notifier.may_send()
        assert number is not None
        notifier.sent(number, seq=seq)
    notifier.notify()
    told.once()


def test_who_leaves_it_to_the_thread_is_in_no_crowd(notifier: Notifier, clock: list[float]) -> None:
    """Only what is sent with a run counts, and the crowd of before is not there for ever."""
    for seq in (100, 200):
        number = notifier.may_send()
        assert number is not None
        notifier.sent(number, seq=seq)
        clock[0] += 2 * QUIET_SECONDS
    assert notifier._producers == CROWD
    notifier.keep_to_thread()
    assert notifier._producers == 1
