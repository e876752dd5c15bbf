"""Routes: how one is declared, who is let through to it, and where it runs.

A route is a function and its line in `table.py`; the rest stands in the function's signature. `ask`
is the request, `query`, `headers` and `body` are structs, every other parameter is part of the
path, and what is returned is the answer. A function runs in a thread, because it reads the store;
an `async` one runs in the loop. Who may call it is decided before the request's body is read.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from rota.app import Rota
from rota.flow.control import Control
from rota.model.roles import covers
from rota.web.codec import Decoder, fields_of, to_json
from rota.web.errors import Refused, wrong
from rota.web.guard import IDENTIFIED, LEAVE, STREAM, check_origin
from rota.web.models import RequestModel
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

T = TypeVar("T")

PUBLIC = "public"
SESSION_PATH = "/api/v1/session"
THREADS = 8


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
        """For what the route alone does not say: which statement, which body."""
        if not covers(self.who.role, role):
            raise _forbidden(self.who, role, what)


@dataclass(frozen=True, kw_only=True)
class Answer(Generic[T]):
    """An answer with more than a body, or with another status than its route's."""

    body: T
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Content:
    """What the document says of an answer that is no JSON."""

    description: str
    media_type: str
    format: str | None = None


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What a function takes and answers. `answer` is None where it makes the response itself."""

    path: Mapping[str, Any]
    query: type[RequestModel] | None
    headers: type[RequestModel] | None
    body: type[RequestModel] | None
    answer: Any

    @property
    def needs_body(self) -> bool:
        return self.body is not None and any(part.required for part in fields_of(self.body))


@dataclass(frozen=True)
class Route:
    """`problems`: what each further status says. `own_thread`: it may take long, so that it takes
    no thread from others."""

    noun: str
    method: str
    path: str
    role: str
    function: Callable[..., Any]
    status: int = 200
    content: Content | None = None
    problems: Mapping[int, str] = field(default_factory=dict)
    own_thread: bool = False
    documented: bool = True

    @functools.cached_property
    def path_format(self) -> str:
        """The path without the types of its parts."""
        return "/".join(part.partition(":")[0] + "}" if ":" in part else part
                        for part in self.path.split("/"))  # fmt: skip

    @functools.cached_property
    def signature(self) -> Signature:
        hints = get_type_hints(self.function, include_extras=True)
        answer = hints.pop("return")
        if get_origin(answer) is Answer:
            (answer,) = get_args(answer)
        del hints["ask"]
        query, headers, body = (hints.pop(name, None) for name in ("query", "headers", "body"))
        return Signature(
            path=hints,
            query=query,
            headers=headers,
            body=body,
            answer=None if answer is Response else answer,
        )

    async def respond(self, request: Request) -> Response:
        ask = await self._admit(request)
        self._check_query(request)
        arguments = await self._arguments(request)
        if inspect.iscoroutinefunction(self.function):
            return to_response(await self.function(ask, **arguments), self.status)
        # Abandoned when the request has taken too long: the store's own limits end the thread.
        return await anyio.to_thread.run_sync(
            lambda: to_response(self.function(ask, **arguments), self.status),
            abandon_on_cancel=True,
            limiter=CapacityLimiter(1) if self.own_thread else None,
        )

    async def _admit(self, request: Request) -> Ask:
        """Who asks is found, and let through or not."""
        headers, state = request.headers, request.app.state
        check_origin(request.method in SAFE_METHODS, headers, request.scope["scheme"])
        # The same for everybody: the store is not asked who looks.
        same_for_all = self.role == PUBLIC and self.method == "GET" and self.path != SESSION_PATH
        who = await _identify(request, state.doorkeeper, by_place=same_for_all)
        request.state.who = who
        if same_for_all:  # answered at once, out of memory: it takes nobody's place
            request.scope["state"][LEAVE]()
        else:
            request.scope["state"][IDENTIFIED](who)
        if request.method not in SAFE_METHODS:
            check_csrf(headers, who)
        if self.role != PUBLIC and not covers(who.role, self.role):
            raise _forbidden(who, self.role, f"{self.method} {self.path_format}")
        return Ask(state.rota, who, state.doorkeeper, request)

    def _check_query(self, request: Request) -> None:
        """A filter that no route has would silently find everything."""
        query = self.signature.query
        known = sorted(part.encode_name for part in fields_of(query)) if query else []
        seen: set[str] = set()
        for name, _ in request.query_params.multi_items():
            if name not in known:
                names = ", ".join(known) or "none"
                detail = f"parameter {name[:80]!r} is unknown; known are {names}"
                raise Refused(422, "invalid", detail)
            if name in seen:
                raise Refused(422, "invalid", f"parameter {name!r} is given twice; give it once")
            seen.add(name)

    async def _arguments(self, request: Request) -> dict[str, Any]:
        """What the function is called with. Refuses with all that is wrong, not the first only."""
        signature, decoder = self.signature, Decoder()
        arguments: dict[str, Any] = {
            name: decoder.value(kind, request.path_params[name], f"path.{name}", text=True)
            for name, kind in signature.path.items()
        }
        if signature.query is not None:
            arguments["query"] = decoder.model(
                signature.query, request.query_params, "query", text=True
            )
        if signature.headers is not None:
            names = {part.encode_name for part in fields_of(signature.headers)}
            values = {name: request.headers[name] for name in names if name in request.headers}
            arguments["headers"] = decoder.model(signature.headers, values, "header", text=True)
        if signature.body is not None:
            arguments["body"] = await self._body(request, signature.body, decoder)
        if decoder.errors:
            raise wrong(decoder.errors)
        return arguments

    async def _body(
        self, request: Request, model: type[RequestModel], decoder: Decoder
    ) -> RequestModel | None:
        try:
            content = await request.body()
        except ClientDisconnect:
            raise Refused(400, "malformed", "the body has no end") from None
        if content and not _is_json(request.headers.get("content-type", "")):
            header = "send the header Content-Type: application/json"
            decoder.refuse("body", f"Expected JSON; {header}")
            return None
        if not content:
            if not self.signature.needs_body:  # it may be left out
                return model()
            decoder.refuse("body", "Missing")
            return None
        value = _parse(content)
        if isinstance(value, dict):
            return decoder.model(model, value, "body")
        decoder.refuse("body", "Expected `object`" + (", got `null`" if value is None else ""))
        return None


def to_response(result: Any, status: int = 200) -> Response:
    """The answer of a function; None has no content."""
    if isinstance(result, Response):
        return result
    if not isinstance(result, Answer):
        result = Answer(body=result)
    headers = dict(result.headers)
    if result.body is None:
        return Response(status_code=204, headers=headers)
    return Response(
        to_json(result.body),
        result.status or status,
        headers=headers,
        media_type="application/json",
    )


def _is_json(content_type: str) -> bool:
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == "application/json" or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )


def _parse(content: bytes) -> Any:
    try:
        # Not msgspec: arguments of jobs may have numbers of any size.
        return json.loads(content)
    except json.JSONDecodeError as fault:
        message = f"Expected JSON: {fault.msg} at character {fault.pos}"
        raise wrong([{"where": f"body.{fault.pos}", "message": message}]) from None
    except (ValueError, RecursionError):
        detail = (
            "the body is no JSON in UTF-8, is nested too deep, or has a number with too many digits"
        )
        raise Refused(400, "malformed", detail) from None


async def _identify(request: Request, doorkeeper: Doorkeeper, *, by_place: bool) -> Who:
    """`by_place`: only where the request comes from counts, whatever token comes along."""
    address = request.client.host if request.client is not None else "unknown"
    headers, local = request.headers, request.state.local
    if by_place or ("authorization" not in headers and "cookie" not in headers):
        return of_place(address, local=local)
    identify = functools.partial(doorkeeper.identify, headers, address, local=local)
    return await anyio.to_thread.run_sync(identify, abandon_on_cancel=True)


def _forbidden(who: Who, role: str, what: str) -> Refused:
    if who.kind in (NOBODY, LOCAL):
        return no_token()
    return Refused(403, "forbidden", f"{what} is for the role {role}; {who.name} is {who.role}")


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
