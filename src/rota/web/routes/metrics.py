"""Metrics for Prometheus, as `rota.web.metrics` writes them."""

from __future__ import annotations

from starlette.responses import Response

from rota.web.routing import Ask


def metrics(ask: Ask) -> Response:
    """Metrics as text, for Prometheus."""
    body, media_type = ask.request.app.state.metrics.page()
    return Response(body, media_type=media_type)
