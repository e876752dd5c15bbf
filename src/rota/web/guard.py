"""What every request passes before anything reads it, and every answer on its way out.

Host, sizes, time and how many at once are checked here; who may do what is checked by the route
(`routing.py`), before the body is read. Nothing leaves without the headers below, and nothing that
goes wrong leaves as anything but a problem.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import secrets
from collections.abc import Collection, MutableMapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.model.limits import (
    BODY_BYTES,
    BODY_SECONDS,
    HEADER_BYTES,
    REQUEST_SECONDS,
    REQUESTS_AT_ONCE,
    UNKNOWN_AT_ONCE,
    UNKNOWN_BODY_SECONDS,
    URL_LENGTH,
)
from rota.web.errors import Refused, busy, of_refusal, problem
from rota.web.who import SESSION, TOKEN, Who, is_loopback, no_token

log = logging.getLogger("rota.web")

LOOPBACK_NAMES = frozenset({"localhost", "localhost."})
# Paths whose answers have no end; they count themselves, and end themselves.
STREAM = "rota.stream"
IDENTIFIED = "rota.identified"
LEAVE = "rota.leave"
# Asked by those who restart what does not answer: they are answered however much there is to do.
HEALTH = (b"/healthz", b"/readyz")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=()",
    "Cache-Control": "no-store",
}
PASS_OVER_BYTES = 8 * BODY_BYTES
PASS_OVER_SECONDS = 2.0
# What proxies say of those they ask for.
FORWARDED = frozenset(
    ("forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip",
     "client-ip", "fastly-client-ip", "x-envoy-external-address", "x-proxyuser-ip")
)  # fmt: skip
FORWARDED_HEADS = ("x-forwarded", "x-original-", "cf-")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%[\w.~-]+)?\]|[^\[\]:@/?#\\\s]+)(?::[0-9]{0,5})?")


class Guard:
    """`hosts` are the names that this server is called by, beside those of the machine itself;
    `any_address`: it listens on more than the loopback, and may be called by its address."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str] = (),
        any_address: bool = False,
        tls: bool = False,
    ) -> None:
        self.app, self._any_address, self._tls = app, any_address, tls
        self._hosts = frozenset(host.lower() for host in hosts)
        self._under_way: set[Turn] = set()
        self._unknown: dict[str, set[Turn]] = {}  # by address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        if scope["raw_path"] in HEALTH:
            turn = Turn(set(), {}, "")
        else:
            client = scope.get("client")
            turn = Turn(self._under_way, self._unknown, client[0] if client else "unknown")
        with turn:
            await self._pass(scope, receive, Answer(send, self._tls), turn)

    async def _pass(self, scope: Scope, receive: Receive, answer: Answer, turn: Turn) -> None:
        mark = scope["state"]["mark"] = secrets.token_hex(4)
        body = Body(receive, scope)
        try:
            headers = Headers(scope=scope)
            self._check(scope, headers)
            scope["path"] = canonical_path(scope["raw_path"])
            scope["state"]["local"] = self._is_local(scope, headers)
            body.check()
            turn.timer = asyncio.timeout(REQUEST_SECONDS)
            scope["state"][STREAM] = turn.let_stream
            scope["state"][IDENTIFIED] = turn.identified
            scope["state"][LEAVE] = turn.leave
            async with turn.timer:
                await self.app(scope, body.receive, answer.send)
        except HTTPException as fault:
            turn.leave()  # who sends slowly what nobody wants keeps a connection, and nothing else
            await body.pass_over()
            await answer.instead(of_refusal(fault), scope, receive)
        except TimeoutError:
            detail = f"this took longer than {REQUEST_SECONDS:g} s; ask for less"
            await answer.instead(problem(503, "timeout", detail), scope, receive)
        except Exception as fault:
            if not answer.ended:  # Starlette answers before it hands the error on
                await answer.instead(internal(scope, fault, mark), scope, receive)

    def _check(self, scope: Scope, headers: Headers) -> None:
        if len(self._under_way) > REQUESTS_AT_ONCE and scope["raw_path"] not in HEALTH:
            raise busy(f"{REQUESTS_AT_ONCE} requests are being answered already; try again")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES:
            raise Refused(431, "too-large", f"the headers take more than {HEADER_BYTES:,} bytes")
        if len(scope["raw_path"]) + len(scope["query_string"]) > URL_LENGTH:
            raise Refused(414, "too-large", f"the URL has more than {URL_LENGTH:,} characters")
        self._check_host(headers)

    def _check_host(self, headers: Headers) -> None:
        """A page of another site can make its own name point here; it cannot make a browser say
        another name than that."""
        told = headers.getlist("host")
        name = host_name(told[0]) if len(told) == 1 else None
        if name is None or not (
            name in LOOPBACK_NAMES
            or name in self._hosts
            or is_loopback(name)
            or (self._any_address and _is_address(name))
        ):
            shown = repr(told[0][:80]) if told else "missing"
            raise Refused(
                421,
                "host",
                f"Host {shown} is not a name of this server; add it to `hosts` in rota.toml",
            )

    def _is_local(self, scope: Scope, headers: Headers) -> bool:
        """Asked from this machine, under a name of this machine, with nobody in between."""
        name = host_name(headers["host"]) or ""
        client = scope.get("client")
        return (
            client is not None
            and is_loopback(client[0])
            and (name in LOOPBACK_NAMES or is_loopback(name))
            and not is_forwarded(headers)
        )


class Turn:
    """One of those that are answered now. A stream lets go of its turn and of the clock when it
    begins: it has limits of its own."""

    def __init__(self, under_way: set[Turn], unknown: dict[str, set[Turn]], address: str) -> None:
        self._under_way, self._unknown, self._address = under_way, unknown, address
        self.timer = asyncio.timeout(None)

    def __enter__(self) -> Turn:
        self._under_way.add(self)
        self._unknown.setdefault(self._address, set()).add(self)
        return self

    def __exit__(self, *fault: object) -> None:
        self.leave()

    def identified(self, who: Who) -> None:
        """Called once it is known who asks. One address that shows no token cannot take the
        places of all others."""
        if is_known(who):
            self._become_known()
        elif len(self._unknown.get(self._address, ())) > UNKNOWN_AT_ONCE:
            raise busy(
                f"{UNKNOWN_AT_ONCE} requests of {self._address} without a token are being "
                "answered already; try again, or show one"
            )

    def let_stream(self) -> None:
        self.timer.reschedule(None)
        self.leave()

    def leave(self) -> None:
        self._under_way.discard(self)
        self._become_known()

    def _become_known(self) -> None:
        there = self._unknown.get(self._address, set())
        there.discard(self)
        if not there:
            self._unknown.pop(self._address, None)


def internal(scope: Scope, fault: Exception, mark: str) -> Response:
    """Logged before it is answered: who looks for the mark finds it."""
    log.error("%s %s failed (%s)", scope["method"], scope["path"], mark, exc_info=fault)
    return problem(500, "internal", f"Rota failed to do it; its log says why, under {mark}")


class Answer:
    """What is sent, with our headers; and how far it is."""

    def __init__(self, send: Send, tls: bool) -> None:
        self._send, self._tls = send, tls
        self.begun = self.ended = False

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if self._tls:
                headers.setdefault("Strict-Transport-Security", "max-age=31536000")
            message["headers"] = headers.raw
        elif message["type"] == "http.response.body":
            self.ended = not message.get("more_body", False)
        await self._send(message)

    async def instead(self, response: Response, scope: Scope, receive: Receive) -> None:
        """Send this, unless an answer has begun: then nobody can tell any more."""
        if self.begun:
            raise ConnectionResetError("the answer could not be finished")
        # The rest of the request is not read; the connection cannot be used for another one.
        response.headers["Connection"] = "close"
        await response(scope, receive, self.send)


class Body:
    """What is received, within its size and time."""

    def __init__(self, receive: Receive, scope: Scope) -> None:
        headers = Headers(scope=scope)
        self._receive, self._bytes, self._state = receive, 0, scope["state"]
        self._seconds = self._until = 0.0
        self._length = headers.get("content-length", "0")
        self._done = self._length == "0" and "transfer-encoding" not in headers

    def check(self) -> None:
        """What says that it is too large is not read."""
        told = self._length
        if not told.isascii() or not told.isdigit() or int(told[:20]) > BODY_BYTES:
            raise _too_large()

    async def pass_over(self) -> None:
        """Read on for a moment: a connection that is closed while its client still sends is reset,
        and the answer is lost with it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PASS_OVER_SECONDS):
                while not self._done and self._bytes < PASS_OVER_BYTES:
                    message = await self._receive()
                    self._bytes += len(message.get("body", b""))
                    self._done = not message.get("more_body", False)

    async def receive(self) -> Message:
        if self._done:  # what comes now is the client's going, whenever that is
            return await self._receive()
        if not self._until:  # from here on for all of it: a byte now and then gains no time
            self._seconds = (
                BODY_SECONDS if is_known(self._state.get("who")) else UNKNOWN_BODY_SECONDS
            )
            self._until = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise Refused(
                408, "timeout", f"the body did not arrive within {self._seconds:g} s"
            ) from None
        self._bytes += len(message.get("body", b""))
        self._done = not message.get("more_body", False)
        if self._bytes > BODY_BYTES:
            raise _too_large()
        return message


def is_known(who: Who | None) -> bool:
    """By a token, or by the session that one began."""
    return who is not None and who.kind in (TOKEN, SESSION)


def is_forwarded(headers: Headers) -> bool:
    """Somebody in between asks for somebody else."""
    return any(name in FORWARDED or name.startswith(FORWARDED_HEADS) for name in headers)


def _too_large() -> Refused:
    return Refused(413, "too-large", f"the body takes more than {BODY_BYTES:,} bytes")


def check_origin(method_is_safe: bool, headers: Headers, scheme: str) -> None:
    """A browser says from which page it asks: only our own may change something. What sends no
    Origin is no browser, and must show a token. `scheme` is that of the request."""
    if method_is_safe:
        return
    told = headers.getlist("origin")
    if not told:
        if "authorization" in headers:
            return
        if "cookie" in headers:
            raise Refused(403, "origin", "a session must send its Origin; a program shows a token")
        raise no_token()
    try:
        asked = urlsplit(told[0])
        same = (
            len(told) == 1
            and asked.scheme in _schemes(headers, scheme)
            and asked.netloc.lower() == headers["host"].lower()
            and not asked.path
        )
    except ValueError:
        same = False
    if not same:
        raise Refused(403, "origin", f"Origin {told[0][:80]!r} is another site")


def _schemes(headers: Headers, scheme: str) -> tuple[str, ...]:
    """What our own pages may have. A proxy may speak TLS for us, and may not say so."""
    if scheme == "https":
        return ("https",)
    if told := headers.get("x-forwarded-proto"):
        return (told.strip().lower(),)
    return ("http", "https") if is_forwarded(headers) else ("http",)


def host_name(host: str) -> str | None:
    """The name in a Host header, without its port; None if it is none."""
    if not _HOST.fullmatch(host):
        return None
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
        name = parts.hostname
    except ValueError:
        return None
    clean = name is not None and parts.netloc == host and "@" not in host
    return name.lower() if name is not None and clean else None


def canonical_path(raw: bytes) -> str:
    """The path with one spelling for each name. A name may hold a slash, which arrives as %2F and
    must not divide the path: `/` and `%` inside a part are written as %2F and %25."""
    parts = [
        unquote_to_bytes(part).decode("utf-8", "replace").replace("%", "%25").replace("/", "%2F")
        for part in raw.split(b"/")
    ]
    return "/".join(parts)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
