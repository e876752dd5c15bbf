"""Whether this process lives and can do its work."""

from __future__ import annotations

import asyncio
import time

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.responses import Response

from rota.app import Rota
from rota.errors import RotaError
from rota.version import VERSION
from rota.web.routing import Asked, Routes, to_response
from rota.web.shapes import Telling

routes = Routes("health", prefix="")

STORE_SECONDS = 1.0


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


class StoreLook:
    """What the store last said. It is asked once a second at most, and by one thread beyond those
    of other requests: whoever may ask without a token cannot take those from the others."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()
        self._said, self._until = "", 0.0

    async def said(self, app: Rota) -> str:
        async with self._one:
            if time.monotonic() >= self._until:
                limiter = CapacityLimiter(1)
                self._said = await run_sync(_ask, app, limiter=limiter, abandon_on_cancel=True)
                self._until = time.monotonic() + STORE_SECONDS
            return self._said


@routes.get(
    "/readyz", Ready, responses={503: {"description": "The store is away, or a loop has ended."}}
)
async def readyz(ask: Asked) -> Response:
    """Whether the store answers and every loop works. 503 while the process stops."""
    state = ask.request.app.state
    if state.web.draining:
        return to_response({"status": "stopping", "store": "ok", "parts": {}}, 503)
    store = await state.store_look.said(ask.app)
    parts = {
        name: None if error is None else "it fails; the log says why"
        for name, error in ask.app.health.items()
    }
    good = store == "ok" and not any(parts.values())
    body = {"status": "ok" if good else "failing", "store": store, "parts": parts}
    return to_response(body, 200 if good else 503)


def _ask(app: Rota) -> str:
    try:
        app.storage.now()
    except RotaError as fault:
        return type(fault).__name__
    return "ok"
