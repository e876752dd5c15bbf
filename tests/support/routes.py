"""The routes of the HTTP API by their roles."""

from __future__ import annotations

from rota.web.table import ROUTES

ROLES = {(route.method, route.path_format): route.role for route in ROUTES}
