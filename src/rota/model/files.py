"""Files that handlers store with `ctx.storage`, shared by all runs."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.errors import Invalid
from rota.model.limits import KEPT_FILE_BYTES, check_key


class KeptFile(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of a stored file. Only its id is unique; names may repeat."""

    id: str
    name: str
    content_type: str
    size: int
    sha256: str
    created_at: datetime
    until: datetime | None = None  # None: until it is deleted
    job: str | None = None
    run_id: str | None = None


class NewFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file about to be stored."""

    name: str
    content: bytes
    content_type: str
    ttl_seconds: float | None = None
    job: str | None = None
    run_id: str | None = None

    def __post_init__(self) -> None:
        check_key(self.name, "file name")
        check_key(self.content_type, "content_type")
        if len(self.content) > KEPT_FILE_BYTES:
            raise Invalid(
                f"file {self.name!r} has {len(self.content):,} bytes; the limit is "
                f"{KEPT_FILE_BYTES:,}. Keep large data elsewhere, and its address here"
            )
