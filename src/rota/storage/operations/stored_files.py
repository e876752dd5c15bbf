"""Files that handlers keep. An id rises with the time it was made, so pages go on where the last
one ended also when what was there is deleted meanwhile. What has run out is gone for everybody
at once, and its row a little later."""

from __future__ import annotations

import hashlib
import secrets

from rota.errors import Invalid
from rota.model.duration import micros
from rota.model.files import KeptFile, NewFile
from rota.model.limits import KEPT_FILES, KEPT_FILES_BYTES
from rota.storage.engine import Row, Transaction
from rota.storage.operation import only_if
from rota.storage.operations.audit import Actor, audit
from rota.storage.operations.installation import read_clock


def put_file(tx: Transaction, file: NewFile) -> KeptFile:
    """Keep a file; Invalid if there is no room for it."""
    luck = secrets.token_hex(8)
    digest = hashlib.sha256(file.content).hexdigest()
    # To send it may take long: a full store refuses it before.
    _check_room(tx, file, files=1, size=len(file.content))
    row = tx.one(
        "insert_file",
        id=f"{micros(read_clock(tx)):014x}{luck}",
        name=file.name,
        content_type=file.content_type,
        size=len(file.content),
        digest=digest,
        job=file.job,
        run_id=file.run_id,
        ttl_seconds=file.ttl_seconds,
        content=file.content,
    )
    assert row is not None
    # This count decides: it has the file in it, and they come one after the other for it.
    tx.all("lock_files")
    _check_room(tx, file)
    return KeptFile(**row)


def kept_file(tx: Transaction, file_id: str) -> KeptFile | None:
    row = tx.one("kept_file", id=file_id)
    return None if row is None else KeptFile(**row)


def file_content(tx: Transaction, file_id: str) -> bytes | None:
    row = tx.one("file_content", id=file_id)
    return None if row is None else bytes(row["content"])


def list_files(tx: Transaction, *, prefix: str = "", after: str = "", limit: int) -> list[KeptFile]:
    """The oldest first; `after` is the id of the last one seen."""
    found = tx.all("list_files", prefix=prefix, after=after, limit=limit)
    return [KeptFile(**row) for row in found]


def delete_file(tx: Transaction, file_id: str, actor: Actor | None = None) -> bool:
    """False if there is no such file. What an operator deletes is audited."""
    row = tx.one("delete_file", id=file_id)
    if row is not None and actor is not None:
        audit(tx, actor, "delete_file", file_id, before=row["name"])
    return row is not None


def expired_files(tx: Transaction, *, limit: int) -> list[Row]:
    """The ids of files whose time has run out."""
    return tx.all("expired_files", limit=limit)


@only_if(expired_files, nothing=0)
def prune_files(tx: Transaction, *, limit: int) -> int:
    """Delete a bounded number of files whose time has run out; how many."""
    expired = expired_files(tx, limit=limit)
    for row in expired:
        tx.one("delete_file", id=row["id"])
    return len(expired)


def _check_room(tx: Transaction, file: NewFile, *, files: int = 0, size: int = 0) -> None:
    """Invalid if there is no room for what is kept, and for this much more."""
    usage = tx.one("file_usage")
    assert usage is not None
    if usage["files"] + files > KEPT_FILES:
        raise Invalid(
            f"file {file.name!r} cannot be kept: there are {KEPT_FILES:,} already; delete some, or "
            "keep them for a time only (ttl=)"
        )
    if usage["bytes"] + size > KEPT_FILES_BYTES:
        raise Invalid(
            f"file {file.name!r} cannot be kept: all files together may have "
            f"{KEPT_FILES_BYTES:,} bytes; delete some, or keep them for a time only (ttl=)"
        )
