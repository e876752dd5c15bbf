"""Whether a claim and a settle go side by side, or one after the other."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rota.flow import turns
from rota.flow.turns import LARGE, SIDE_BY_SIDE, Turns, machine_is_crowded

PATIENCE = 30.0


class Other:
    """A thread with a statement of its own, as far as it has come."""

    def __init__(self, own: Turns, runs: int) -> None:
        self.began = threading.Event()
        self._own, self._runs = own, runs
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        with self._own.take(self._runs):
            self.began.set()

    def end(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LONGEST_SECONDS", PATIENCE)


@pytest.mark.usefixtures("patient")
def test_two_large_statements_of_a_crowded_machine_go_one_after_the_other() -> None:
    asked = threading.Event()

    def crowded() -> bool:
        if threading.current_thread() is not threading.main_thread():
            asked.set()
        return True

    own = Turns(crowded)
    with own.take(LARGE):
        other = Other(own, LARGE)
        assert asked.wait(PATIENCE)
        assert not other.began.wait(0.05)
    assert other.began.wait(PATIENCE)
    other.end()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("own", "runs"),
    [(Turns(lambda: True), LARGE - 1), (Turns(lambda: False), LARGE), (SIDE_BY_SIDE, LARGE)],
    ids=["a small one", "a machine with room", "one writer"],
)
def test_others_go_side_by_side(own: Turns, runs: int) -> None:
    with own.take(LARGE):
        other = Other(own, runs)
        assert other.began.wait(PATIENCE / 2)
    other.end()


def test_a_statement_that_takes_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LONGEST_SECONDS", 0.01)
    own = Turns(lambda: True)
    with own.take(LARGE):
        other = Other(own, LARGE)
        assert other.began.wait(PATIENCE)
        other.end()
    with own.take(LARGE):  # nobody gave back what was not his
        assert own._turn.locked()
    assert not own._turn.locked()


def test_a_failure_gives_the_turn_back() -> None:
    own = Turns(lambda: True)
    with pytest.raises(ZeroDivisionError), own.take(LARGE):
        raise ZeroDivisionError
    assert not own._turn.locked()


@pytest.mark.parametrize(
    ("told", "crowded"),
    [
        ("9.99 9.99 9.99 3/400 77\n", False),
        ("0.00 0.00 0.00 4/400 77\n", True),
        ("something else", False),
        ("", False),
        (None, False),
    ],
)
def test_a_machine_is_crowded_while_more_could_run_than_it_has_cores_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str | None, crowded: bool
) -> None:
    load = tmp_path / "load"
    if told is not None:
        load.write_text(told)
    monkeypatch.setattr(turns, "LOAD", str(load))
    monkeypatch.setattr(turns.os, "cpu_count", lambda: 2)
    assert machine_is_crowded() is crowded
