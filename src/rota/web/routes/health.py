"""Whether this process lives and can do its work."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from rota.errors import RotaError
from rota.version import VERSION
from rota.web.routing import Answer, Asked, Routes, to_response
from rota.web.shapes import Telling

routes = Routes("health", prefix="")


class Alive(Telling):
    status: str
    version: str


class Ready(Telling):
    """`parts` are the loops of this process: null where one works, else what keeps it."""

    status: str
    store: str
    parts: dict[str, str | None]


@routes.get("/healthz", Alive)
async def healthz() -> Response:
    """Whether the process answers. Asks nobody else."""
    # In the loop itself: the threads may all be waiting for the store.
    return to_response({"status": "ok", "version": VERSION})


@routes.get(
    "/readyz", Ready, responses={503: {"description": "The store is away, or a loop has ended."}}
)
def readyz(ask: Asked) -> Any:
    """Whether the store answers and every loop works. 503 while the process stops."""
    if ask.request.app.state.web.draining:
        return Answer(body={"status": "stopping", "store": "ok", "parts": {}}, status=503)
    try:
        ask.app.storage.now()
        store = "ok"
    except RotaError as fault:
        store = str(type(fault).__name__)
    parts = {
        name: None if error is None else "it fails; the log says why"
        for name, error in ask.app.health.items()
    }
    good = store == "ok" and not any(parts.values())
    body = {"status": "ok" if good else "failing", "store": store, "parts": parts}
    return Answer(body=body, status=200 if good else 503)
