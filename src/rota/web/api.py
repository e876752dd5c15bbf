"""The API: every route, one document, one way for things to go wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from rota.app import Rota
from rota.errors import RotaError
from rota.model.limits import WRONG_TOKENS
from rota.version import VERSION
from rota.web import document
from rota.web.feed import Feed
from rota.web.guard import internal
from rota.web.metrics import Metrics
from rota.web.problems import of_error, of_refusal, of_validation, problem
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
from rota.web.routing import API, GuardedRoute, set_threads
from rota.web.who import Doorkeeper

if TYPE_CHECKING:
    from rota.web.server import Web

MODULES = (
    pages, health, metrics, session, overview, charts, jobs, schedules, schedule, runs, run,
    queues, workers, files, sql, audit, dispatch, events, tokens,
)  # fmt: skip


def make_api(app: Rota, web: Web, feed: Feed, *, wrong_tokens: int | None = None) -> FastAPI:
    @asynccontextmanager
    async def living(api: FastAPI) -> AsyncIterator[None]:
        set_threads()
        feed.bind()
        web.begun()
        yield

    api = FastAPI(
        title="Rota",
        version=VERSION,
        summary="Jobs, schedules and runs: look at them, and operate them.",
        description=document.DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=living,
    )
    api.router.route_class = GuardedRoute
    api.state.rota, api.state.web, api.state.feed = app, web, feed
    api.state.metrics, api.state.store_look = Metrics(app), health.StoreLook()
    api.state.doorkeeper = Doorkeeper(
        lambda: app.storage,
        port=web.port,
        open_local=app.settings.open_local,
        wrong_tokens=WRONG_TOKENS if wrong_tokens is None else wrong_tokens,
    )
    for module in MODULES:
        module.routes.add_to(api)
    document.add_to(api, f"{API}/openapi.json")
    _add_handlers(api)
    return api


def _add_handlers(api: FastAPI) -> None:
    @api.exception_handler(RotaError)
    async def refused(request: Request, fault: RotaError) -> Response:
        return of_error(fault)

    @api.exception_handler(RequestValidationError)
    async def invalid(request: Request, fault: RequestValidationError) -> Response:
        return of_validation(fault.errors())

    @api.exception_handler(HTTPException)
    async def answered(request: Request, fault: HTTPException) -> Response:
        if fault.status_code == 405:
            return _not_offered(request)
        if fault.status_code == 404 and fault.detail == "Not Found":
            return problem(404, "no-route", f"there is nothing at {request.url.path}")
        return of_refusal(fault)

    @api.exception_handler(Exception)
    async def failed(request: Request, fault: Exception) -> Response:
        return internal(request.scope, fault, request.state.mark)


def _not_offered(request: Request) -> Response:
    """With every method that the path has, whichever route each belongs to."""
    methods: set[str] = set()
    for route in request.app.routes:
        for method in getattr(route, "methods", None) or ():
            scope: dict[str, Any] = {**request.scope, "method": method}
            if route.matches(scope)[0] is Match.FULL:
                methods.add(method)
    allowed = ", ".join(sorted(methods))
    detail = f"{request.method} is not offered here; {allowed} is"
    return problem(405, "method", detail, headers={"Allow": allowed})
