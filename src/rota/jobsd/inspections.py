"""Python files looked at by threads of their own, so that one whose import hangs keeps nobody.

A file that takes its time is left to its thread, and another takes up what still waits. Whoever
asked does not wait for long, and is woken when more is known.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from rota.executors.inspection import FileError, FileFacts, Inspector

log = logging.getLogger("rota.jobsd")

# An import that takes this long may well take for ever: another thread goes on.
SLOW_SECONDS = 0.5
# Files whose imports hang at the same time; those after them wait until one is given up.
THREADS = 8

Fact = FileFacts | FileError
File = tuple[str, object]  # its path, and its fingerprint as it was to be looked at


class Inspections:
    def __init__(self, answered: Callable[[], None], *, slow_seconds: float = SLOW_SECONDS) -> None:
        self._answered, self.slow_seconds = answered, slow_seconds
        self._change = threading.Condition()
        self._waiting: deque[File] = deque()
        self._begun: dict[File, float] = {}
        self._facts: dict[File, Fact] = {}
        self._threads = 0
        self._looking = False

    def look(self, paths: Mapping[str, object], within: float | None) -> dict[str, Fact]:
        """What there is to say of files, given with their fingerprints. What is not known within
        so many seconds is missing: ask for it again. None waits for everything."""
        wanted = dict.fromkeys(paths.items())
        until = math.inf if within is None else time.monotonic() + within
        with self._change:
            self._looking = True
            self._waiting = deque(one for one in wanted if self._is_new(one))
            self._facts = {one: fact for one, fact in self._facts.items() if one in wanted}
            try:
                while any(one not in self._facts for one in wanted):
                    if self._waiting and not self._quick() and self._threads < THREADS:
                        self._start()
                    if (left := until - time.monotonic()) <= 0:
                        break
                    self._change.wait(min(left, self.slow_seconds))
            finally:
                self._looking = False
            found = [one for one in wanted if one in self._facts]
            return {one[0]: self._facts.pop(one) for one in found}

    def _is_new(self, file: File) -> bool:
        return file not in self._begun and file not in self._facts

    def _quick(self) -> list[File]:
        """Those that have begun, and not too long ago."""
        late = time.monotonic() - self.slow_seconds
        return [one for one, begun in self._begun.items() if begun > late]

    def _start(self) -> None:
        file = self._waiting.popleft()
        name = "rota-jobs.d-inspection"
        # First of all, as it may fail; it tells nothing before whoever looks lets go of the lock.
        threading.Thread(target=self._serve, args=(file,), name=name, daemon=True).start()
        self._begun[file] = time.monotonic()
        self._threads += 1

    def _serve(self, file: File | None) -> None:
        """One child for many files."""
        inspector = Inspector()
        try:
            while file is not None:
                file = self._next(file, _inspect(inspector, file[0]))
        finally:
            inspector.close()

    def _next(self, done: File, fact: Fact) -> File | None:
        with self._change:
            del self._begun[done]
            self._facts[done] = fact
            file = self._waiting.popleft() if self._waiting else None
            if file is None:
                self._threads -= 1
            else:
                self._begun[file] = time.monotonic()
            self._change.notify_all()
            is_awaited = self._looking
        if not is_awaited:
            self._answered()
        return file


def _inspect(inspector: Inspector, path: str) -> Fact:
    """Whatever happens, there is an answer: a file without one would be waited for."""
    try:
        return inspector.inspect(path)
    except Exception as fault:
        log.exception("%s could not be looked at", path)
        with suppress(Exception):
            inspector.close()  # nobody knows what its child is at
        return FileError(path=path, error=f"{path}: {type(fault).__name__}: {fault}")
