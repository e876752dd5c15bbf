"""`ctx.storage`: files that outlive their run, shared by all runs.

It works in a thread, on the event loop and in a child process. Each call waits for the database; to
keep the event loop free, an async handler calls `await asyncio.to_thread(ctx.storage.put, …)`.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Callable
from typing import Any

import msgspec

from rota.errors import Invalid, Unknown
from rota.model.duration import parse_duration
from rota.model.files import KeptFile, NewFile

LIST = 100
TEXT = "text/plain; charset=utf-8"
BINARY = "application/octet-stream"


class Storage:
    def __init__(self, port: Callable[[str, dict[str, Any]], Any]) -> None:
        self._port = port

    def put(
        self,
        name: str,
        content: bytes | bytearray | memoryview | str,
        content_type: str | None = None,
        ttl: object = None,
    ) -> KeptFile:
        """Store a file under a new id, for `ttl` or until it is deleted."""
        data = _data(name, content)
        file = NewFile(  # checked here: it might not fit a message
            name=name,
            content=data,
            content_type=content_type or _guess(name, is_text=isinstance(content, str)),
            ttl_seconds=None if ttl is None else parse_duration(ttl, "ttl").total_seconds(),
        )
        params = {key: getattr(file, key) for key in ("name", "content_type", "ttl_seconds")}
        return msgspec.convert(self._port("put_file", {**params, "content": data}), KeptFile)

    def get(self, id: str) -> KeptFile | None:
        """The metadata of a file; None if it does not exist."""
        return msgspec.convert(self._port("get_file", {"id": str(id)}), KeptFile | None)

    def read(self, id: str) -> bytes:
        """The content of a file; raises Unknown if it does not exist."""
        content = msgspec.convert(self._port("read_file", {"id": str(id)}), bytes | None)
        if content is None:
            raise Unknown(f"file {id!r} is not kept, or no longer; `ctx.storage.list()` has all")
        return content

    def delete(self, id: str) -> bool:
        """Delete a file; False if it did not exist."""
        return bool(self._port("delete_file", {"id": str(id)}))

    def list(
        self, prefix: str = "", *, limit: int = LIST, after: str | KeptFile = ""
    ) -> list[KeptFile]:
        """Files whose name has this prefix, oldest first, from after the file `after`."""
        last = after.id if isinstance(after, KeptFile) else after
        params = {"prefix": prefix, "limit": limit, "after": last}
        return msgspec.convert(self._port("list_files", params), list[KeptFile])


def _data(name: str, content: object) -> bytes:
    match content:
        case str():
            try:
                return content.encode()
            except UnicodeEncodeError:
                raise Invalid(f"file {name!r} holds half of a surrogate pair; pass bytes") from None
        case bytes() | bytearray() | memoryview():
            return bytes(content)
        case _:
            kind = type(content).__name__
            raise Invalid(f"file {name!r}: its content is a {kind}; pass bytes or text")


def _guess(name: object, *, is_text: bool) -> str:
    """A content type from the extension of the name."""
    ending = name.rpartition(".")[2].lower() if isinstance(name, str) else ""
    known = mimetypes.types_map.get(f".{ending}") if ending else None
    return known or (TEXT if is_text else BINARY)
