"""A thread that calls step() again and again. The loop does not decide; steps do not loop.

A step does one bounded piece of work and returns the seconds until the next. A step that fails
is tried again after a pause that grows, so that a database that is away costs nothing and no
thread ever ends silently.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from rota.errors import Unavailable
from rota.model.limits import REASON_LENGTH
from rota.model.redact import redact_text, shorten

log = logging.getLogger("rota.loop")

FIRST_PAUSE = 0.1
WORKER_FIRST_SECONDS = 0.003  # after runs were made: they begin before the other loops ask anything
LONGEST_PAUSE = 2.0  # work resumes within two seconds of the database's return


class Loop:
    """The first step waits for `after_seconds`: when a process starts, what can wait
    does not stand in the way of what is due. A wake ends that wait like any other."""

    def __init__(self, name: str, step: Callable[[], float], *, after_seconds: float = 0.0) -> None:
        self.name, self.step, self.after_seconds = name, step, after_seconds
        self.failures = 0
        self.last_error: str | None = None
        self.stepped_at = time.monotonic()
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name=f"rota-{self.name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Take the next step now."""
        if not self._woken.is_set():
            self._woken.set()

    @property
    def woken(self) -> bool:
        """Whether there is a next step without a pause, as far as anybody has asked for one."""
        return self._woken.is_set()

    def stop(self, timeout: float | None = None) -> None:
        """Let the step under way end, then no more."""
        self.tell_stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def tell_stop(self) -> None:
        """The same, without waiting for it."""
        self._stopping.set()
        self._woken.set()

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        if self.after_seconds > 0:
            self._woken.wait(self.after_seconds)
        while not self._stopping.is_set():
            try:
                self._take_turn()
            except BaseException as fault:
                # Isolated here, wherever it was raised: the loop goes on. Only a stop ends this
                # pause: wake-ups must not turn a failure into a spin.
                with suppress(BaseException):
                    self._stopping.wait(self._pause_after(fault))

    def _take_turn(self) -> None:
        self._woken.clear()  # before the step: a wake during it leads to one more step
        pause = self.step()
        if self.failures:
            log.info("%s works again after %d failures", self.name, self.failures)
        self.failures, self.last_error = 0, None
        self.stepped_at = time.monotonic()
        if pause > 0 and not self._stopping.is_set():
            self._woken.wait(pause)

    def _pause_after(self, fault: BaseException) -> float:
        self.failures += 1
        self.last_error = shorten(f"{type(fault).__name__}: {fault}", REASON_LENGTH)
        # A failure that stays must not fill the log: the first, the tenth, every hundredth.
        if self.failures in (1, 10) or self.failures % 100 == 0:
            known = isinstance(fault, Unavailable)
            told = redact_text(str(fault))
            log.warning("%s: %s", self.name, told, exc_info=None if known else fault)
        pause: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self.failures - 1, 10))
        return pause * random.uniform(0.5, 1.0)


def stop_loops(loops: Collection[Loop], timeout: float) -> None:
    """Stop them side by side: `timeout` is for all of them together."""
    deadline = time.monotonic() + timeout
    for loop in loops:
        loop.tell_stop()
    for loop in loops:
        loop.stop(max(0.0, deadline - time.monotonic()))
