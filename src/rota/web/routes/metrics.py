"""Metrics for Prometheus. What they say is in `rota.observe`; here is where they are read."""

from __future__ import annotations

from importlib import import_module

from starlette.responses import Response

from rota.web.routing import Asked, Routes

routes = Routes("health", prefix="")


@routes.get(
    "/metrics",
    None,
    responses={
        200: {
            "description": "Metrics for Prometheus.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
)
def metrics(ask: Asked) -> Response:
    """Metrics as text, for Prometheus."""
    try:
        metrics = import_module("rota.observe.metrics")
    except ModuleNotFoundError:
        return Response("", media_type="text/plain")
    body, media_type = metrics.exposition(ask.app)
    return Response(body, media_type=media_type)
