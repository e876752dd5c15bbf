"""Delayed calls, made by a single thread that starts with the first of them."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

LOGGER = logging.getLogger(__name__)


class Timer:
    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def call(self, seconds: float, action: Callable[[], None]) -> bool:
        """Call `action` after so many seconds; False, and no call, if the timer is closed."""
        with self._changed:
            if self._closed:
                return False
            heapq.heappush(self._calls, (time.monotonic() + seconds, next(self._order), action))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()
            return True

    def close(self) -> None:
        """Discard the calls that are not due yet."""
        with self._changed:
            self._closed = True
            self._calls.clear()
            self._changed.notify()

    def _work(self) -> None:
        while (action := self._next()) is not None:
            try:
                action()
            except Exception:
                LOGGER.exception("%s: a delayed call failed", self._name)

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._closed:
                wait = self._calls[0][0] - time.monotonic() if self._calls else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._calls)[2]
                self._changed.wait(wait)
        return None
