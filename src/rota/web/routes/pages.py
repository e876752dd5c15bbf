"""The dashboard: one page, and the files it is made of; and the OpenAPI document.

Answered in the loop itself, out of memory: whoever loads it does not wait for the threads that ask
the store.
"""

from __future__ import annotations

from typing import Annotated

from anyio.to_thread import run_sync
from msgspec import Meta
from starlette.responses import Response

from rota.web.codec import to_json
from rota.web.errors import Refused
from rota.web.files import dashboard
from rota.web.routing import Ask

FOR_EVER = "public, max-age=31536000, immutable"


async def page(ask: Ask) -> Response:
    """The page of the dashboard."""
    made = dashboard()
    headers = {
        "Cache-Control": "no-cache",
        "ETag": made.etag,
        "Content-Security-Policy": made.policy,
    }
    if ask.request.headers.get("if-none-match") == made.etag:
        return Response(status_code=304, headers=headers)
    return Response(made.page, headers=headers, media_type="text/html; charset=utf-8")


async def static_file(
    ask: Ask,
    mark: Annotated[str, Meta(max_length=64)],
    file: Annotated[str, Meta(max_length=200)],
) -> Response:
    """A file of the dashboard, for ever the same under this address."""
    made = dashboard()
    found = made.files.get(file) if mark == made.mark else None
    if found is None:
        raise Refused(404, "no-route", "the dashboard has no such file, or no longer: load it anew")
    headers = {"Cache-Control": FOR_EVER, "Vary": "Accept-Encoding"}
    if found.packed is not None and "gzip" in ask.request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(found.packed, headers=headers, media_type=found.media_type)
    return Response(found.content, headers=headers, media_type=found.media_type)


async def openapi(ask: Ask) -> Response:
    """The OpenAPI document."""
    state = ask.request.app.state
    if state.openapi is None:  # only to make it takes long
        state.openapi = await run_sync(_make_openapi)
    return Response(state.openapi, media_type="application/json")


def _make_openapi() -> bytes:
    from rota.web.openapi import describe  # not loaded until then

    return to_json(describe())
