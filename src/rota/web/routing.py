"""Routes: how an endpoint is declared, who is let through to it, and where it runs.

Endpoints are plain functions that run in a thread, because the store is asked there. Who may call
one is decided by `roles.ROLES` before the request's body is read.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import anyio.to_thread
import msgspec
from anyio import CapacityLimiter
from fastapi import Body, Depends, FastAPI, Request
from fastapi.routing import APIRoute
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import Response

from rota.app import Rota
from rota.flow.control import Control
from rota.model.roles import covers
from rota.web.guard import IDENTIFIED, LEAVE, STREAM, check_origin
from rota.web.problems import Refused
from rota.web.roles import PUBLIC, ROLES
from rota.web.shapes import Asking
from rota.web.who import (
    LOCAL,
    NOBODY,
    SAFE_METHODS,
    Doorkeeper,
    Who,
    check_csrf,
    no_token,
    of_place,
)

API = "/api/v1"
SESSION_PATH = f"{API}/session"
THREADS = 8

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Ask:
    """One request: who asks, of which app."""

    app: Rota
    who: Who
    doorkeeper: Doorkeeper
    request: Request

    @functools.cached_property
    def control(self) -> Control:
        return self.app.control_as(self.who.actor)

    def need(self, role: str, what: str) -> None:
        """For what the route alone does not tell: which statement, which body."""
        if not covers(self.who.role, role):
            raise _forbidden(self.who, role, what)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer with more than a body. `Answer(status=204)` has none."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


async def _ask(request: Request) -> Ask:
    state = request.app.state
    return Ask(state.rota, request.state.who, state.doorkeeper, request)


Asked = Annotated[Ask, Depends(_ask)]


class Routes:
    """The endpoints of one noun."""

    def __init__(self, tag: str, prefix: str = API) -> None:
        self._tag, self._prefix = tag, prefix
        self._kept: list[tuple[str, str, Callable[..., Any], dict[str, Any]]] = []

    def get(self, path: str, answers: Any, **more: Any) -> Callable[..., Any]:
        return self._route("GET", path, answers, more)

    def post(self, path: str, answers: Any, **more: Any) -> Callable[..., Any]:
        return self._route("POST", path, answers, more)

    def patch(self, path: str, answers: Any, **more: Any) -> Callable[..., Any]:
        return self._route("PATCH", path, answers, more)

    def delete(self, path: str, answers: Any = None, **more: Any) -> Callable[..., Any]:
        return self._route("DELETE", path, answers, more)

    def _route(
        self, method: str, path: str, answers: Any, more: dict[str, Any]
    ) -> Callable[..., Any]:
        def keep(function: Callable[..., Any]) -> Callable[..., Any]:
            self._kept.append((method, self._prefix + path, function, {"answers": answers, **more}))
            return function

        return keep

    def add_to(self, app: FastAPI) -> None:
        for method, path, function, options in self._kept:
            more = dict(options)
            answers = more.pop("answers")
            app.add_api_route(
                path,
                in_thread(function, status=more.get("status_code", 200)),
                methods=[method],
                response_model=answers,
                tags=[self._tag],
                name=function.__name__,
                operation_id=function.__name__,
                summary=_summary(function),
                description=inspect.getdoc(function),
                **more,
            )


def in_thread(function: Callable[..., Any], *, status: int = 200) -> Callable[..., Any]:
    """The endpoint as the framework calls it. What it returns becomes JSON in the thread, too."""
    if inspect.iscoroutinefunction(function):
        return function

    def answer(**told: Any) -> Response:
        found = function(**told)
        return found if isinstance(found, Response) else to_response(found, status)

    @functools.wraps(function)
    async def endpoint(**told: Any) -> Response:
        # Abandoned when the request has taken too long: the store's own limits end the thread.
        return await anyio.to_thread.run_sync(
            functools.partial(answer, **told), abandon_on_cancel=True
        )

    endpoint.__signature__ = _signature(function)  # type: ignore[attr-defined]
    return endpoint


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """What the framework reads. A body of which nothing is needed may be left out."""
    found = inspect.signature(function, eval_str=True)
    named = [one.replace(kind=one.KEYWORD_ONLY) for one in found.parameters.values()]
    return found.replace(
        parameters=[
            one.replace(default=Body(default_factory=one.annotation)) if _is_spare(one) else one
            for one in named
        ]
    )


def _is_spare(parameter: inspect.Parameter) -> bool:
    shape = parameter.annotation
    return (
        isinstance(shape, type)
        and issubclass(shape, Asking)
        and not any(field.is_required() for field in shape.model_fields.values())
    )


def to_response(value: Any, status: int = 200) -> Response:
    if not isinstance(value, Answer):
        value = Answer(body=value, status=status)
    if value.status == 204:
        return Response(status_code=204, headers=dict(value.headers))
    return Response(
        _encode(value.body),
        value.status,
        headers=dict(value.headers),
        media_type="application/json",
    )


class GuardedRoute(APIRoute):
    """Who asks is found, and let through or not, before the framework reads anything."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        method = next(iter(self.methods or ()))
        # A route that nobody gave a role is closed to all.
        role = ROLES.get((method, self.path_format), math.inf)
        parameters = {one.alias for one in self.dependant.query_params}
        # The same for everybody: the store is not asked who looks.
        same_for_all = role == PUBLIC and method == "GET" and self.path_format != SESSION_PATH

        async def guarded(request: Request) -> Response:
            headers = request.headers
            check_origin(request.method in SAFE_METHODS, headers, request.scope["scheme"])
            who = await _identify(request, shown=not same_for_all)
            request.state.who = who
            if same_for_all:  # answered at once, out of memory: it takes nobody's place
                request.scope["state"][LEAVE]()
            else:
                request.scope["state"][IDENTIFIED](who)
            if request.method not in SAFE_METHODS:
                check_csrf(headers, who)
            if role != PUBLIC and not (isinstance(role, str) and covers(who.role, role)):
                raise _forbidden(who, str(role), f"{request.method} {self.path_format}")
            _check_query(request, parameters)
            return await handle(request)

        return guarded


async def _identify(request: Request, *, shown: bool) -> Who:
    """Without what was `shown`, only where the request comes from says who it is."""
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    address = request.client.host if request.client is not None else "unknown"
    headers, local = request.headers, request.state.local
    if not shown or ("authorization" not in headers and "cookie" not in headers):
        return of_place(address, local=local)
    look = functools.partial(doorkeeper.identify, headers, address, local=local)
    return await anyio.to_thread.run_sync(look, abandon_on_cancel=True)


def _forbidden(who: Who, role: str, what: str) -> Refused:
    if who.kind in (NOBODY, LOCAL):
        return no_token()
    return Refused(403, "forbidden", f"{what} is for the role {role}; {who.name} is {who.role}")


def _check_query(request: Request, known: set[str]) -> None:
    """A filter that nobody knows would silently find everything."""
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise Refused(422, "invalid", f"parameter {name[:80]!r} is unknown; known are {there}")
        if name in seen:
            raise Refused(422, "invalid", f"parameter {name!r} is given twice; give it once")
        seen.add(name)


def begin_stream(request: Request) -> None:
    """This answer has no end: the guard's clock and count are not for it."""
    request.scope["state"][STREAM]()


def set_threads() -> None:
    """Called inside the loop: so many threads ask the store at once."""
    limiter: CapacityLimiter = anyio.to_thread.current_default_thread_limiter()
    limiter.total_tokens = THREADS


class NameConvertor(Convertor[str]):
    """A name in a path, in the spelling of `canonical_path`."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return value.replace("%2F", "/").replace("%25", "%")

    def to_string(self, value: str) -> str:
        return value.replace("%", "%25").replace("/", "%2F")


class RunConvertor(Convertor[str]):
    """The id of a run; `/runs/count` is none."""

    regex = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("name", NameConvertor())
register_url_convertor("run", RunConvertor())


def _summary(function: Callable[..., Any]) -> str:
    """The first sentence, however it is broken into lines."""
    words = " ".join((inspect.getdoc(function) or function.__name__).split())
    return words.partition(". ")[0].rstrip(".")
