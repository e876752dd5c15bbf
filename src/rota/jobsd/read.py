"""Read one file of a job, and refuse links out of the folder, pipes, and large or binary files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rota.errors import Invalid
from rota.jobsd.scan import is_inside


def read_bytes(path: Path, *, within: Path, limit: int) -> bytes:
    """The content; Invalid unless it is a regular file of bounded size inside `within`."""
    try:
        is_link = os.path.islink(path)
        if is_link and not is_inside(path, within):
            raise Invalid("is a link out of its folder; copy the file into it")
        # O_NONBLOCK: opening a pipe without a writer would block for ever.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        # O_NOFOLLOW: the file may have been replaced by a link since the check above.
        descriptor = os.open(path, flags if is_link else flags | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Invalid("is not a regular file; replace it by one, or rename it")
            content = file.read(limit + 1)
    except OSError as fault:
        raise Invalid(f"cannot be read: {fault.strerror}") from None
    if len(content) > limit:
        size = max(path.stat().st_size, len(content))
        raise Invalid(f"has {size:,} bytes; the limit is {limit:,}. Keep data in tables or files")
    return content


def decode(content: bytes) -> str:
    if (nul := content.find(0)) >= 0:
        line = content.count(b"\n", 0, nul) + 1
        raise Invalid(f"holds a NUL character (line {line}); save it as text in UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = content.count(b"\n", 0, fault.start) + 1
        raise Invalid(f"is not UTF-8 (line {line}); save it as UTF-8") from None
