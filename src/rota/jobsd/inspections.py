"""Inspect Python files on separate threads, so that a hanging import delays no other file.

A slow file stays with its thread, and another thread takes the next file. The caller waits for a
bounded time, and `answered` is called when more results arrive.
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

# An import that takes this long may never end: start another thread for the next file.
SLOW_SECONDS = 0.5
# At most so many imports may hang at the same time; further files wait until one ends.
THREADS = 8

Fact = FileFacts | FileError
File = tuple[str, object]  # path, and fingerprint at the time of the request


class Inspections:
    def __init__(self, answered: Callable[[], None], *, slow_seconds: float = SLOW_SECONDS) -> None:
        self._answered, self.slow_seconds = answered, slow_seconds
        self._change = threading.Condition()
        self._waiting: deque[File] = deque()
        self._begun: dict[File, float] = {}
        self._facts: dict[File, Fact] = {}
        self._threads = 0
        self._is_awaited = False

    def inspect(self, paths: Mapping[str, object], within: float | None) -> dict[str, Fact]:
        """The facts of files, which are given with their fingerprints.

        A file that is not inspected within so many seconds is missing from the result: call again.
        None waits for all files."""
        files = dict.fromkeys(paths.items())
        until = math.inf if within is None else time.monotonic() + within
        with self._change:
            self._is_awaited = True
            self._waiting = deque(file for file in files if self._is_new(file))
            self._facts = {file: fact for file, fact in self._facts.items() if file in files}
            try:
                while any(file not in self._facts for file in files):
                    if self._waiting and not self._quick() and self._threads < THREADS:
                        self._start()
                    if (left := until - time.monotonic()) <= 0:
                        break
                    self._change.wait(min(left, self.slow_seconds))
            finally:
                self._is_awaited = False
            known = [file for file in files if file in self._facts]
            return {file[0]: self._facts.pop(file) for file in known}

    def _is_new(self, file: File) -> bool:
        return file not in self._begun and file not in self._facts

    def _quick(self) -> list[File]:
        """Files whose inspection started less than `slow_seconds` ago."""
        late = time.monotonic() - self.slow_seconds
        return [file for file, begun in self._begun.items() if begun > late]

    def _start(self) -> None:
        file = self._waiting.popleft()
        name = "rota-jobs.d-inspection"
        # Start before the bookkeeping: it may fail. The thread reports only after the caller of
        # `inspect` releases the lock.
        threading.Thread(target=self._serve, args=(file,), name=name, daemon=True).start()
        self._begun[file] = time.monotonic()
        self._threads += 1

    def _serve(self, file: File | None) -> None:
        """Inspect files until none is waiting, in one child process."""
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
            is_awaited = self._is_awaited
        if not is_awaited:
            self._answered()
        return file


def _inspect(inspector: Inspector, path: str) -> Fact:
    """The facts, or an error for any exception: the caller would wait for a missing answer."""
    try:
        return inspector.inspect(path)
    except Exception as fault:
        log.exception("%s could not be inspected", path)
        with suppress(Exception):
            inspector.close()  # its child may be in any state
        return FileError(path=path, error=f"{path}: {type(fault).__name__}: {fault}")
