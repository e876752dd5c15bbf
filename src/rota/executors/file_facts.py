"""The job that a Python file defines, or the error that it has instead."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.model.signature import Signature


class FileFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="facts"):
    """A file that defines a job.

    `options` are JSON values from the file; only their shape is checked. `lines` has the line of
    each. `hash` is that of `source`, the text that was inspected; the file may have changed."""

    path: str
    function: str  # run or default
    is_async: bool = False
    signature: Signature = msgspec.field(default_factory=Signature)
    description: str = ""
    options: dict[str, Any] = {}
    lines: dict[str, int] = {}
    warnings: tuple[str, ...] = ()
    hash: str = ""
    source: bytes = b""


class FileError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="error"):
    """A file that defines no job.

    `error` is a single line with the file and, if known, the line number. `traceback` has the
    user's frames only."""

    path: str
    error: str
    line: int | None = None
    traceback: str = ""
    hash: str = ""
    source: bytes = b""
