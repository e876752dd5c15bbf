"""Threads of which one runs at a time, until it gives the baton back.

A step of the flow is an ordinary call. To stop in the middle of one, let others go on and come
back later it needs a stack of its own, and a thread is the only one that plain Python has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Crash(BaseException):
    """The process dies here. Not an Exception: nothing may catch it and go on."""


class Strand:
    """A thread that runs calls only while it has the baton."""

    def __init__(self) -> None:
        self._turn, self._back = threading.Lock(), threading.Lock()
        self._turn.acquire()
        self._back.acquire()
        self._call: Callable[[], None] = lambda: None
        self._killed = False
        self.running = False
        threading.Thread(target=self._serve, name="simulated", daemon=True).start()

    def begin(self, call: Callable[[], None]) -> None:
        """Run a call until it pauses or ends. It must not raise."""
        self._call, self._killed, self.running = call, False, True
        self.resume()

    def resume(self) -> None:
        assert self.running, "there is a call to go on with"
        self._turn.release()
        self._back.acquire()

    def pause(self) -> None:
        """Called on the strand itself: others go on until `resume`, or until we are killed."""
        self._back.release()
        self._turn.acquire()
        self.die_if_killed()

    def kill(self) -> None:
        """Unwind a paused call as if its process had died there."""
        if not self.running:
            return
        self._killed = True
        self.resume()
        assert not self.running, "a killed call must not pause again"

    def die_if_killed(self) -> None:
        if self._killed:
            raise Crash

    def _serve(self) -> None:
        while True:
            self._turn.acquire()
            self._call()
            self.running = False
            self._back.release()


_idle: list[Strand] = []  # to start a thread costs more than a whole step


def take_strand() -> Strand:
    return _idle.pop() if _idle else Strand()


def give_back(strand: Strand) -> None:
    assert not strand.running
    _idle.append(strand)
