"""Whether this process lives and can do its work."""

from __future__ import annotations

import asyncio
import time

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from rota.app import Rota
from rota.errors import RotaError
from rota.version import VERSION
from rota.web.models import ResponseModel
from rota.web.routing import Answer, Ask

STORE_SECONDS = 1.0


class Alive(ResponseModel):
    status: str
    version: str


class Ready(ResponseModel):
    """`parts` are the loops of this process: null where one works, else what keeps it."""

    status: str
    store: str
    parts: dict[str, str | None]


async def healthz(ask: Ask) -> Alive:
    """Whether the process answers. Asks nobody else."""
    # In the loop itself: the threads may all be waiting for the store.
    return Alive(status="ok", version=VERSION)


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


async def readyz(ask: Ask) -> Answer[Ready]:
    """Whether the store answers and every loop works. 503 while the process stops."""
    state = ask.request.app.state
    if state.web.draining:
        return Answer(body=Ready(status="stopping", store="ok", parts={}), status=503)
    store = await state.store_look.said(ask.app)
    parts = {
        name: None if error is None else "it fails; the log says why"
        for name, error in ask.app.health.items()
    }
    ready = store == "ok" and not any(parts.values())
    body = Ready(status="ok" if ready else "failing", store=store, parts=parts)
    return Answer(body=body, status=200 if ready else 503)


def _ask(app: Rota) -> str:
    try:
        app.storage.now()
    except RotaError as fault:
        return type(fault).__name__
    return "ok"
