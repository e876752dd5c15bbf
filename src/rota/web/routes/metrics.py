"""Metrics for Prometheus, as `rota.web.metrics` tells them."""

from __future__ import annotations

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
    body, media_type = ask.request.app.state.metrics.page()
    return Response(body, media_type=media_type)
