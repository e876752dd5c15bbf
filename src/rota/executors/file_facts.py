"""What is known of a Python file that defines a job, or why nothing is."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.model.signature import Signature


class FileFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="facts"):
    """A file that can be a job. `options` are plain JSON values as the file gives them, unchecked
    but for their shape; `lines` says where each is. `source` is the text that was looked at:
    what the hash is of, whatever is in the file by now."""

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
    """A file that cannot be a job. `error` is one line that names the file, and the line if there
    is one; `traceback` has the user's frames only."""

    path: str
    error: str
    line: int | None = None
    traceback: str = ""
    hash: str = ""
    source: bytes = b""
