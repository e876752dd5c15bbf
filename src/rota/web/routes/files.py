"""Files that handlers keep with `ctx.storage`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from rota.errors import Unknown
from rota.model.limits import KEY_LENGTH
from rota.web.models import END, Instant, Limit, Page, RequestModel, ResponseModel
from rota.web.routing import Ask

FileId = Annotated[str, Meta(pattern=f"^[0-9a-zA-Z_-]{{1,64}}{END}")]


class FilesQuery(RequestModel):
    prefix: Annotated[str, Meta(max_length=KEY_LENGTH, description="Of their names.")] = ""
    after: Annotated[
        str,
        Meta(pattern=f"^[0-9a-zA-Z_-]{{0,64}}{END}", description="`next` of the page before."),
    ] = ""
    limit: Limit = 100


class KeptFile(ResponseModel):
    id: str
    name: str
    content_type: str
    size: int
    sha256: str
    job: str | None
    run_id: str | None
    created_at: Instant
    until: Instant | None


def list_files(ask: Ask, query: FilesQuery) -> Page[KeptFile]:
    """Files that are kept, the oldest first."""
    rows = ask.control.files(query.prefix, after=query.after, limit=query.limit)
    items = [KeptFile(**row) for row in rows]
    return Page(items=items, next=rows[-1]["id"] if len(rows) == query.limit else None)


def read_file(ask: Ask, file: FileId) -> Response:
    """What a file holds. Always a download: a page that a job wrote is not shown as ours."""
    content = ask.control.file_content(file)
    return Response(
        content,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{file}"'},
    )


def delete_file(ask: Ask, file: FileId) -> None:
    """Delete a file."""
    if not ask.control.delete_file(file):
        raise Unknown(f"file {file!r} is not kept, or no longer")
