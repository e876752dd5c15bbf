"""The API: every route of the table, and one way for things to go wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Mount
from starlette.types import Receive, Scope, Send

from rota.app import Rota
from rota.errors import RotaError
from rota.model.limits import WRONG_TOKENS
from rota.web.errors import Refused, of_error, of_refusal
from rota.web.feed import Feed
from rota.web.guard import internal
from rota.web.metrics import Metrics
from rota.web.routes import health
from rota.web.routing import Route, set_threads
from rota.web.table import ROUTES
from rota.web.who import Doorkeeper

if TYPE_CHECKING:
    from rota.web.server import Web


def make_api(app: Rota, web: Web, feed: Feed, *, wrong_tokens: int | None = None) -> Starlette:
    @asynccontextmanager
    async def living(api: Starlette) -> AsyncIterator[None]:
        set_threads()
        feed.bind()
        web.begun()
        yield

    paths: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method] = route
    handlers: dict[Any, Any] = {
        RotaError: _refused,
        HTTPException: _answered,
        Exception: _failed,
    }
    api = Starlette(
        routes=[Mount(path, Resource(routes)) for path, routes in paths.items()],
        exception_handlers=handlers,
        lifespan=living,
    )
    api.router.redirect_slashes = False
    api.state.rota, api.state.web, api.state.feed = app, web, feed
    api.state.openapi = None
    api.state.metrics, api.state.store_look = Metrics(app), health.StoreLook()
    api.state.doorkeeper = Doorkeeper(
        lambda: app.storage,
        port=web.port,
        open_local=app.settings.open_local,
        wrong_tokens=WRONG_TOKENS if wrong_tokens is None else wrong_tokens,
    )
    return api


class Resource:
    """One path, with a route for each of its methods.

    To Starlette it is an application: a function would get a HEAD for its GET, which is none of our
    methods.
    """

    def __init__(self, routes: dict[str, Route]) -> None:
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        route = self._routes.get(request.method)
        if route is None:
            allowed = ", ".join(sorted(self._routes))
            detail = f"{request.method} is not offered here; {allowed} is"
            raise Refused(405, "method", detail, {"Allow": allowed})
        response = await route.respond(request)
        await response(scope, receive, send)


async def _refused(request: Request, fault: RotaError) -> Response:
    return of_error(fault)


async def _answered(request: Request, fault: HTTPException) -> Response:
    if isinstance(fault, Refused) or fault.status_code != 404:
        return of_refusal(fault)
    return of_refusal(Refused(404, "no-route", f"there is nothing at {request.url.path}"))


async def _failed(request: Request, fault: Exception) -> Response:
    return internal(request.scope, fault, request.state.mark)
