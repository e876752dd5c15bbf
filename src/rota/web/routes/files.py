"""Files that handlers keep with `ctx.storage`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path, Query
from starlette.responses import Response

from rota.errors import Unknown
from rota.model.limits import KEY_LENGTH
from rota.web.routing import Answer, Asked, Routes
from rota.web.shapes import Limit, Page, Telling

routes = Routes("files")

FileId = Annotated[str, Path(pattern="^[0-9a-zA-Z_-]{1,64}$")]


class KeptFile(Telling):
    id: str
    name: str
    content_type: str
    size: int
    sha256: str
    job: str | None
    run_id: str | None
    created_at: datetime
    until: datetime | None


@routes.get("/files", Page[KeptFile])
def list_files(
    ask: Asked,
    prefix: Annotated[str, Query(max_length=KEY_LENGTH, description="Of their names.")] = "",
    after: Annotated[
        str, Query(pattern="^[0-9a-zA-Z_-]{0,64}$", description="`next` of the page before.")
    ] = "",
    limit: Limit = 100,
) -> Any:
    """Files that are kept, the oldest first."""
    found = ask.control.files(prefix, after=after, limit=limit)
    return {"items": found, "next": found[-1]["id"] if len(found) == limit else None}


@routes.get(
    "/files/{file}/content",
    None,
    responses={
        200: {
            "description": "What it holds, as bytes.",
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        }
    },
)
def read_file(ask: Asked, file: FileId) -> Response:
    """What a file holds. Always a download: a page that a job wrote is not shown as ours."""
    content = ask.control.file_content(file)
    return Response(
        content,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{file}"'},
    )


@routes.delete("/files/{file}", status_code=204)
def delete_file(ask: Asked, file: FileId) -> Any:
    """Delete a file."""
    if not ask.control.delete_file(file):
        raise Unknown(f"file {file!r} is not kept, or no longer")
    return Answer(status=204)
