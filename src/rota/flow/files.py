"""What a handler asks of `ctx.storage`, answered from the store."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.errors import Unknown
from rota.model.files import KeptFile, NewFile
from rota.model.limits import PAGE, check_whole
from rota.model.run import ClaimedRun
from rota.storage import operations
from rota.storage.store import AnyStore


def answer(store: AnyStore, run: ClaimedRun, request: str, params: dict[str, Any]) -> Any:
    """The same whether it was asked in this process or came out of a child's, as JSON."""
    match request:
        case "put_file":
            content = msgspec.convert(params["content"], bytes)
            named = {**params, "content": content, "job": run.job, "run_id": run.id}
            return store.write(operations.put_file, NewFile(**named))
        case "get_file":
            return store.read(operations.kept_file, params["id"])
        case "read_file":
            return store.read(operations.file_content, params["id"])
        case "delete_file":
            return store.write(operations.delete_file, params["id"])
        case "list_files":
            return list_files(store, **params)
        case _:
            raise Unknown(f"ctx.storage cannot be asked for {request!r}")


def list_files(store: AnyStore, prefix: str, after: str, limit: int) -> list[KeptFile]:
    return store.read(
        operations.list_files,
        prefix=prefix,
        after=after,
        limit=check_whole(limit, "limit", 1, PAGE),
    )
