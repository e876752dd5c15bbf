"""The dashboard: one page, and the files it is made of.

Answered in the loop itself, out of memory: whoever loads it does not wait for the threads that ask
the store.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Path
from starlette.responses import Response

from rota.web.files import dashboard
from rota.web.problems import Refused
from rota.web.routing import Routes

routes = Routes("dashboard", prefix="")

FOR_EVER = "public, max-age=31536000, immutable"


@routes.get("/", None, include_in_schema=False)
async def page(if_none_match: Annotated[str | None, Header(max_length=512)] = None) -> Response:
    """The page of the dashboard."""
    made = dashboard()
    headers = {
        "Cache-Control": "no-cache",
        "ETag": made.etag,
        "Content-Security-Policy": made.policy,
    }
    if if_none_match == made.etag:
        return Response(status_code=304, headers=headers)
    return Response(made.page, headers=headers, media_type="text/html; charset=utf-8")


@routes.get("/static/{mark}/{file:path}", None, include_in_schema=False)
async def static_file(
    mark: Annotated[str, Path(max_length=64)],
    file: Annotated[str, Path(max_length=200)],
    accept_encoding: Annotated[str, Header(max_length=512)] = "",
) -> Response:
    """A file of the dashboard, for ever the same under this address."""
    made = dashboard()
    found = made.files.get(file) if mark == made.mark else None
    if found is None:
        raise Refused(404, "no-route", "the dashboard has no such file, or no longer: load it anew")
    headers = {"Cache-Control": FOR_EVER, "Vary": "Accept-Encoding"}
    if found.packed is not None and "gzip" in accept_encoding:
        headers["Content-Encoding"] = "gzip"
        return Response(found.packed, headers=headers, media_type=found.media_type)
    return Response(found.content, headers=headers, media_type=found.media_type)
