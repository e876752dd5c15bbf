"""Whether a claim and a settle of one process go side by side, or one after the other.

Side by side they hide the store's time from the handlers, as long as there is a core for each.
Where this machine has more to run than it has cores (several processes, and the store beside
them), they only take cores and pages from each other: one after the other they cost less.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LARGE = 500  # runs in a statement; a smaller one is over before it matters
LONGEST_SECONDS = 0.1  # that one waits for the other: it may be held by somebody else
CROWD = 1.5  # for each core, who runs or could run, ourselves among them
LOAD = "/proc/loadavg"


def machine_is_crowded() -> bool:
    """False where the system does not tell; a store elsewhere is not looked at."""
    try:
        with open(LOAD, "rb") as load:
            runnable = int(load.read(100).split()[3].partition(b"/")[0])
        return runnable > CROWD * (os.cpu_count() or 1)
    except (OSError, ValueError, IndexError):
        return False


class Turns:
    def __init__(self, crowded: Callable[[], bool] = machine_is_crowded) -> None:
        self._crowded = crowded
        self._turn = threading.Lock()

    @contextmanager
    def take(self, runs: int) -> Iterator[None]:
        """For a statement about so many runs."""
        waits = runs >= LARGE and self._crowded()
        ours = waits and self._turn.acquire(timeout=LONGEST_SECONDS)
        try:
            yield
        finally:
            if ours:
                self._turn.release()


SIDE_BY_SIDE = Turns(lambda: False)  # also where one writer at a time has the store anyway
