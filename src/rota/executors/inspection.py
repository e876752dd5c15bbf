"""What Python files say of themselves as jobs, found out in a child process.

Importing a file runs it, so nothing of it happens in the worker: a file that loops, exits, crashes
or prints costs the child its life, and the other files nothing. The text that is looked at is read
here, once, so that the facts, the hash and the text that a job will run are of one moment.
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
STOP_SECONDS = 1.0  # to say at which line it was stopped
SILENT = logging.Logger("rota.inspection", logging.CRITICAL + 1)

Path = TypeVar("Path", str, os.PathLike[str])


def inspect_files(
    paths: Sequence[Path], timeout: float = SECONDS_PER_FILE
) -> dict[Path, FileFacts | FileError]:
    """Import each file, at most `timeout` seconds for each, and say what it is. Never raises for
    what a file is or does."""
    found: dict[Path, FileFacts | FileError] = {}
    inspector = Inspector(timeout)
    try:
        for path in paths:
            found[path] = inspector.inspect(os.fspath(path))
    finally:
        inspector.close()
    return found


class Inspector:
    """One child for many files, replaced when a file has harmed it."""

    def __init__(self, timeout: float = SECONDS_PER_FILE) -> None:
        self.timeout = timeout
        self._child: ChildProcess | None = None

    def inspect(self, path: str) -> FileFacts | FileError:
        try:
            source = _read(path)
        except (Invalid, OSError) as fault:
            told = fault.strerror if isinstance(fault, OSError) else str(fault)
            return FileError(path=path, error=f"{path}: {told}")
        digest = hashlib.sha256(source).hexdigest()
        found = self._ask(path, source)
        return msgspec.structs.replace(found, hash=digest, source=source)

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.bury()

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
            # Too long. Asked to end, it can still say where it was.
            child.send_signal(signal.SIGTERM, child.calls)
            answer = child.wait(output, STOP_SECONDS)
        child.rest()
        found = self._without_answer(child, path, output) if answer is None else answer.found
        if answer is None or answer.strange or child.signalled:
            self.close()
        return found

    def _without_answer(self, child: ChildProcess, path: str, output: Output) -> FileError:
        if child.ended:
            told = f"it ended the process that imported it: {child.finish(output)}"
        else:
            limit = format_duration(timedelta(seconds=self.timeout))
            told = f"its import did not end within {limit}; do the work in the handler"
        return FileError(path=path, error=f"{path}: {told}")


def _read(path: str) -> bytes:
    # Not blocking: to open a pipe that nobody writes would wait for ever.
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
