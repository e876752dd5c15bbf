"""Process state that a handler may change, restored before the next call.

A child whose state cannot be restored is not used again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import dataclass
from typing import Any

from rota.executors.processes import reap_orphans

SIGNALS = tuple(map(int, signal.valid_signals()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """Working directory, umask, environment, signal handlers and standard streams."""

    folder: str | None
    mask: int
    environment: dict[str, str]
    signals: dict[int, Any]
    blocked: set[int]
    streams: tuple[Any, Any, Any]

    @classmethod
    def capture(cls) -> ProcessState:
        mask = os.umask(0)
        os.umask(mask)
        return cls(
            folder=_folder(),
            mask=mask,
            environment=dict(os.environ),
            signals={number: signal.getsignal(number) for number in SIGNALS},
            blocked=set(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            streams=(sys.stdin, sys.stdout, sys.stderr),
        )

    def restore(self) -> str | None:
        """Restore the state; returns why the process is unfit for another call, or None."""
        try:
            self._restore()
        except Exception as error:
            return f"its process state could not be restored: {error}"
        if threads := [thread.name for thread in threading.enumerate() if _stays(thread)]:
            return f"thread {threads[0]!r} is still running"
        if reap_orphans():
            return "a process it started is still running"
        return None

    def _restore(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdin, sys.stdout, sys.stderr = self.streams
        sys.stdout.flush()
        sys.stderr.flush()
        os.umask(self.mask)
        if self.folder is not None and _folder() != self.folder:
            os.chdir(self.folder)
        if dict(os.environ) != self.environment:
            os.environ.clear()
            os.environ.update(self.environment)
        for number, action in self.signals.items():
            if signal.getsignal(number) is not action:
                signal.signal(number, action)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.blocked)


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # the folder was removed
        return None


def _stays(thread: threading.Thread) -> bool:
    return thread.is_alive() and not thread.daemon and thread is not threading.main_thread()
