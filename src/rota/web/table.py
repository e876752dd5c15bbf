"""Every route: noun, method, path, who may call it, and the function that answers.

The one table: the server, the OpenAPI document and docs/http.md are made from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rota.model.roles import ADMIN, OPERATOR, VIEWER
from rota.web.routes import (
    audit,
    charts,
    dispatch,
    events,
    files,
    health,
    jobs,
    metrics,
    overview,
    pages,
    queues,
    run,
    runs,
    schedule,
    schedules,
    session,
    sql,
    tokens,
    workers,
)
from rota.web.routing import PUBLIC, Content, Route

GET, POST, PATCH, DELETE = "GET", "POST", "PATCH", "DELETE"

EVENTS = Content("Server-sent events, until one side ends it.", "text/event-stream")
LINES = Content(
    "Lines as server-sent events `log`, then `end` with the run's state.", "text/event-stream"
)
METRICS = Content("Metrics for Prometheus.", "text/plain")
BYTES = Content("What it holds, as bytes.", "application/octet-stream", "binary")
NOT_READY = {503: "The store is away, or a loop has ended."}
OUTDATED = {412: "Somebody else has changed it since it was read."}


def v1(
    noun: str, method: str, path: str, role: str, function: Callable[..., Any], **more: Any
) -> Route:
    return Route(noun, method, f"/api/v1{path}", role, function, **more)


# Health, the document and the files of the dashboard say nothing about what runs here; who has no
# session yet must be able to begin one.
ROUTES: tuple[Route, ...] = (
    Route("dashboard", GET, "/", PUBLIC, pages.page, documented=False),
    Route("dashboard", GET, "/static/{mark}/{file:path}", PUBLIC, pages.static_file,
          documented=False),
    v1("dashboard", GET, "/openapi.json", PUBLIC, pages.openapi, documented=False),
    Route("health", GET, "/healthz", PUBLIC, health.healthz),
    Route("health", GET, "/readyz", PUBLIC, health.readyz, problems=NOT_READY),
    Route("health", GET, "/metrics", VIEWER, metrics.metrics, content=METRICS),
    v1("session", GET, "/session", PUBLIC, session.who_am_i),
    v1("session", POST, "/session", PUBLIC, session.begin_session),
    v1("session", DELETE, "/session", PUBLIC, session.end_session),
    v1("overview", GET, "/overview", VIEWER, overview.overview),
    v1("overview", GET, "/timeline", VIEWER, overview.timeline),
    v1("overview", GET, "/activity", VIEWER, charts.activity),
    v1("overview", GET, "/timeline/density", VIEWER, charts.density),
    v1("overview", GET, "/schedules/{schedule:name}/durations", VIEWER, charts.list_durations),
    v1("jobs", GET, "/jobs", VIEWER, jobs.list_jobs),
    v1("jobs", GET, "/jobs/{job:name}", VIEWER, jobs.get_job),
    v1("jobs", POST, "/jobs/{job:name}/runs", OPERATOR, jobs.enqueue, status=201),
    v1("jobs", POST, "/jobs/{job:name}/trigger", OPERATOR, jobs.trigger_job, status=201),
    v1("schedules", GET, "/schedules", VIEWER, schedules.list_schedules),
    v1("schedules", GET, "/schedule-options", VIEWER, schedules.list_options),
    v1("schedules", POST, "/schedules", OPERATOR, schedules.create_schedule, status=201),
    # Asked with POST because it is long; it changes nothing.
    v1("schedules", POST, "/next", VIEWER, schedules.next_times),
    v1("schedules", GET, "/schedules/{schedule:name}", VIEWER, schedule.get_schedule),
    v1("schedules", PATCH, "/schedules/{schedule:name}", OPERATOR, schedule.edit_schedule,
       problems=OUTDATED),
    v1("schedules", DELETE, "/schedules/{schedule:name}", OPERATOR, schedule.drop_schedule),
    v1("schedules", POST, "/schedules/{schedule:name}/pause", OPERATOR, schedule.pause_schedule),
    v1("schedules", POST, "/schedules/{schedule:name}/resume", OPERATOR, schedule.resume_schedule),
    v1("schedules", POST, "/schedules/{schedule:name}/trigger", OPERATOR, schedule.trigger_schedule,
       status=201),
    v1("schedules", GET, "/schedules/{schedule:name}/explain", VIEWER, schedule.explain_schedule),
    v1("schedules", GET, "/schedules/{schedule:name}/why", VIEWER, schedule.why_schedule),
    v1("schedules", GET, "/schedules/{schedule:name}/occurrences", VIEWER,
       schedule.list_occurrences),
    v1("schedules", GET, "/schedules/{schedule:name}/changes", VIEWER, schedule.list_changes),
    v1("runs", GET, "/runs", VIEWER, runs.list_runs),
    v1("runs", GET, "/runs/count", VIEWER, runs.count_runs),
    v1("runs", POST, "/runs/cancel", OPERATOR, runs.cancel_runs),
    v1("runs", POST, "/runs/redo", OPERATOR, runs.redo_runs),
    v1("runs", POST, "/runs/delete", OPERATOR, runs.delete_runs),
    v1("runs", POST, "/runs/pause", OPERATOR, runs.pause_runs),
    v1("runs", POST, "/runs/resume", OPERATOR, runs.resume_runs),
    v1("runs", GET, "/runs/{run:run}", VIEWER, run.get_run),
    v1("runs", DELETE, "/runs/{run:run}", OPERATOR, run.delete_run),
    v1("runs", POST, "/runs/{run:run}/cancel", OPERATOR, run.cancel_run),
    v1("runs", POST, "/runs/{run:run}/redo", OPERATOR, run.redo_run),
    v1("runs", POST, "/runs/{run:run}/pause", OPERATOR, run.pause_run),
    v1("runs", POST, "/runs/{run:run}/resume", OPERATOR, run.resume_run),
    v1("runs", GET, "/runs/{run:run}/attempts", VIEWER, run.list_attempts),
    v1("runs", GET, "/runs/{run:run}/steps", VIEWER, run.list_steps),
    v1("runs", GET, "/runs/{run:run}/texts", VIEWER, run.list_texts),
    v1("runs", GET, "/runs/{run:run}/logs", VIEWER, run.list_logs),
    v1("runs", GET, "/runs/{run:run}/logs/stream", VIEWER, run.follow_logs, content=LINES),
    v1("runs", GET, "/runs/{run:run}/events", VIEWER, run.list_run_events),
    v1("queues", GET, "/queues", VIEWER, queues.list_queues),
    v1("queues", POST, "/queues/{queue:name}/pause", OPERATOR, queues.pause_queue),
    v1("queues", POST, "/queues/{queue:name}/resume", OPERATOR, queues.resume_queue),
    v1("workers", GET, "/workers", VIEWER, workers.list_workers),
    v1("workers", GET, "/locks", VIEWER, workers.list_locks),
    v1("files", GET, "/files", VIEWER, files.list_files),
    v1("files", GET, "/files/{file}/content", VIEWER, files.read_file, content=BYTES),
    v1("files", DELETE, "/files/{file}", OPERATOR, files.delete_file),
    # It asks for the role of each statement.
    v1("sql", POST, "/sql", VIEWER, sql.run_sql, own_thread=True),
    v1("audit", GET, "/audit", VIEWER, audit.list_audit),
    v1("audit", GET, "/events", VIEWER, audit.list_events),
    v1("audit", GET, "/dead", VIEWER, audit.list_dead),
    v1("audit", GET, "/dead/{group}", VIEWER, audit.list_dead_runs),
    v1("installation", POST, "/dispatch/pause", OPERATOR, dispatch.pause_dispatch),
    v1("installation", POST, "/dispatch/resume", OPERATOR, dispatch.resume_dispatch),
    v1("installation", POST, "/prune", OPERATOR, dispatch.prune),
    v1("installation", POST, "/adopt", ADMIN, dispatch.adopt),
    Route("events", GET, "/events", VIEWER, events.events, content=EVENTS),
    v1("tokens", GET, "/tokens", ADMIN, tokens.list_tokens),
    v1("tokens", POST, "/tokens", ADMIN, tokens.create_token, status=201),
    v1("tokens", DELETE, "/tokens/{token}", ADMIN, tokens.revoke_token),
)  # fmt: skip
