"""Inspects Python files as jobs, in a child process.

Importing a file runs it. A file that loops, exits, crashes or prints therefore harms only the
child; the worker and the other files are unaffected. The text is read here, once, so that the
facts, the hash and the text that a job will run agree.
"""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import stat
from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

import msgspec

from rota.errors import Invalid
from rota.executors.child_process import ChildProcess
from rota.executors.examine import OPTIONS
from rota.executors.file_facts import FileError, FileFacts
from rota.executors.messages import Examine
from rota.executors.output import Output
from rota.model.duration import format_duration
from rota.model.limits import PYTHON_FILE_BYTES

__all__ = ["OPTIONS", "FileError", "FileFacts", "Inspector", "inspect_files"]

SECONDS_PER_FILE = 10.0
STOP_SECONDS = 1.0  # for the child to report the line at which it was stopped
SILENT = logging.Logger("rota.inspection", logging.CRITICAL + 1)

Path = TypeVar("Path", str, os.PathLike[str])


def inspect_files(
    paths: Sequence[Path], timeout: float = SECONDS_PER_FILE
) -> dict[Path, FileFacts | FileError]:
    """Import each file, for at most `timeout` seconds each, and report on it.

    An error of a file is returned, never raised."""
    facts: dict[Path, FileFacts | FileError] = {}
    inspector = Inspector(timeout)
    try:
        for path in paths:
            facts[path] = inspector.inspect(os.fspath(path))
    finally:
        inspector.close()
    return facts


class Inspector:
    """Inspects many files in a single child, replaced after a file has harmed it."""

    def __init__(self, timeout: float = SECONDS_PER_FILE) -> None:
        self.timeout = timeout
        self._child: ChildProcess | None = None

    def inspect(self, path: str) -> FileFacts | FileError:
        try:
            source = _read(path)
        except (Invalid, OSError) as fault:
            message = fault.strerror if isinstance(fault, OSError) else str(fault)
            return FileError(path=path, error=f"{path}: {message}")
        digest = hashlib.sha256(source).hexdigest()
        facts = self._ask(path, source)
        return msgspec.structs.replace(facts, hash=digest, source=source)

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.reap()

    def _ask(self, path: str, source: bytes) -> FileFacts | FileError:
        try:
            child = self._child = self._child or ChildProcess()
        except OSError as fault:
            return FileError(path=path, error=f"{path}: no process to import it in: {fault}")
        child.calls += 1
        child.working = True
        output = Output(SILENT, child.mark)
        file = Examine(number=child.calls, path=path, source=source)
        answer = child.examine(file, output, self.timeout)
        if answer is None and not child.ended:
            # Too long. SIGTERM lets it report the line where it was.
            child.send_signal(signal.SIGTERM, child.calls)
            answer = child.wait(output, STOP_SECONDS)
        child.end_call()
        facts = self._without_answer(child, path, output) if answer is None else answer.facts
        if answer is None or answer.unfit_reason or child.signalled:
            self.close()
        return facts

    def _without_answer(self, child: ChildProcess, path: str, output: Output) -> FileError:
        if child.ended:
            message = f"it ended the process that imported it: {child.finish(output)}"
        else:
            limit = format_duration(timedelta(seconds=self.timeout))
            message = f"its import did not end within {limit}; do the work in the handler"
        return FileError(path=path, error=f"{path}: {message}")


def _read(path: str) -> bytes:
    # Not blocking: opening a FIFO without a writer would wait for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Invalid("it is not a regular file")
        source = file.read(PYTHON_FILE_BYTES + 1)
    if len(source) > PYTHON_FILE_BYTES:
        raise Invalid(
            f"it has {max(status.st_size, len(source)):,} bytes; a job's Python file may have "
            f"{PYTHON_FILE_BYTES:,}. Move data elsewhere, and code into a package"
        )
    return source
