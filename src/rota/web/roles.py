"""Who may call what: the one table. A route that is not here is closed, and a test finds it."""

from __future__ import annotations

from rota.model.roles import ADMIN, OPERATOR, VIEWER

PUBLIC = "public"
V1 = "/api/v1"

# Health, the document and the files of the dashboard say nothing about what runs here; who has no
# session yet must be able to begin one.
_PUBLIC = (
    ("GET", "/"),
    ("GET", "/static/{mark}/{file}"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", f"{V1}/openapi.json"),
    ("GET", f"{V1}/session"),
    ("POST", f"{V1}/session"),
    ("DELETE", f"{V1}/session"),
)
_LOOK = (
    "/overview", "/activity", "/timeline", "/timeline/density", "/schedules/{schedule}/durations",
    "/jobs", "/jobs/{job}", "/schedules", "/schedules/{schedule}",
    "/schedules/{schedule}/explain", "/schedules/{schedule}/why",
    "/schedules/{schedule}/occurrences", "/schedules/{schedule}/changes", "/runs", "/runs/count",
    "/runs/{run}", "/runs/{run}/attempts", "/runs/{run}/steps", "/runs/{run}/texts",
    "/runs/{run}/logs", "/runs/{run}/logs/stream", "/runs/{run}/events", "/queues", "/workers",
    "/locks", "/files", "/files/{file}/content", "/audit", "/events", "/dead",
    "/dead/{group}",
)  # fmt: skip
# Asked with POST, because what is asked is long; they change nothing, or look at each statement.
_ASK = ("/next", "/sql")
_OPERATE = (
    ("POST", "/jobs/{job}/runs"),
    ("POST", "/jobs/{job}/trigger"),
    ("POST", "/schedules"),
    ("PATCH", "/schedules/{schedule}"),
    ("DELETE", "/schedules/{schedule}"),
    ("POST", "/schedules/{schedule}/pause"),
    ("POST", "/schedules/{schedule}/resume"),
    ("POST", "/schedules/{schedule}/trigger"),
    ("POST", "/runs/cancel"),
    ("POST", "/runs/redo"),
    ("POST", "/runs/delete"),
    ("POST", "/runs/pause"),
    ("POST", "/runs/resume"),
    ("DELETE", "/runs/{run}"),
    ("POST", "/runs/{run}/cancel"),
    ("POST", "/runs/{run}/redo"),
    ("POST", "/runs/{run}/pause"),
    ("POST", "/runs/{run}/resume"),
    ("POST", "/queues/{queue}/pause"),
    ("POST", "/queues/{queue}/resume"),
    ("DELETE", "/files/{file}"),
    ("POST", "/dispatch/pause"),
    ("POST", "/dispatch/resume"),
    ("POST", "/prune"),
)
_ADMINISTER = (
    ("POST", "/adopt"),
    ("GET", "/tokens"),
    ("POST", "/tokens"),
    ("DELETE", "/tokens/{token}"),
)

ROLES: dict[tuple[str, str], str] = {
    **dict.fromkeys(_PUBLIC, PUBLIC),
    ("GET", "/metrics"): VIEWER,
    ("GET", "/events"): VIEWER,
    **{("GET", V1 + path): VIEWER for path in _LOOK},
    **{("POST", V1 + path): VIEWER for path in _ASK},
    **{(method, V1 + path): OPERATOR for method, path in _OPERATE},
    **{(method, V1 + path): ADMIN for method, path in _ADMINISTER},
}
