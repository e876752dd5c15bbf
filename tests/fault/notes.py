"""What happened, as told by those it happened to: lines in a file outside the database under test.

A line is one write at the end of the file: lines of several processes do not mix, and a process
that is killed leaves a whole line or none. `mono` is the machine's monotonic clock, the same for
all its processes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Note = dict[str, Any]


class Notebook:
    def __init__(self, path: Path | str, by: str) -> None:
        self.by = by
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)

    def write(self, what: str, **facts: object) -> None:
        note = {"what": what, "by": self.by, "mono": time.monotonic(), "wall": time.time(), **facts}
        os.write(self._descriptor, json.dumps(note).encode() + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


def read_notes(path: Path) -> Iterator[Note]:
    """All lines so far; one that is just being written is not there yet."""
    with path.open() as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)
