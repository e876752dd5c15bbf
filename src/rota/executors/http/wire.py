"""One request over one connection, to the very address that was looked at, within a deadline.

A name is resolved once. Every address it has must be allowed, and the connection goes to one of
them: a name that answers differently the second time is not asked a second time. Bytes that drip
in do not extend the deadline: at its end, or when the attempt should end, the connection is cut
from another thread.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rota.errors import Invalid
from rota.executors.http.address import Place
from rota.executors.http.request import Request
from rota.executors.networks import Address, Allowed, refusal
from rota.model.limits import ANSWER_BYTES, clip

CONNECT_SECONDS = 10.0  # for one of several addresses
ADDRESSES = 8
PIECE = 64 * 1024
REASON_SHOWN = 100
CHUNK_LINE = 1_024  # the size of a chunk and what a server says beside it
# int() takes a sign, blanks and underscores too; and a chunk of -1 bytes is all that ever comes.
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
_LENGTH = re.compile(r"[0-9]{1,18}")

# (host, port) -> addresses as text. Tests have one of their own.
Resolve = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`cut`: there was more than ANSWER_BYTES."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytes
    cut: bool = False


class Unanswered(Exception):
    """The server could not be reached, or did not answer as a web server does."""


class Cut(Exception):
    """The exchange was cut by us."""


def resolve(host: str, port: int) -> list[str]:
    """What the system says."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(one[4][0]) for one in found]


class Wire:
    """One exchange. `cut` may come from any thread; everything else belongs to one."""

    def __init__(self, *, seconds: float, allowed: tuple[Allowed, ...], resolve: Resolve) -> None:
        self._until = time.monotonic() + seconds
        self._allowed, self._resolve = allowed, resolve
        self._guard = threading.Lock()
        self._socket: socket.socket | None = None
        self._over = threading.Event()

    @property
    def is_cut(self) -> bool:
        return self._over.is_set()

    def cut(self) -> None:
        with self._guard:
            self._over.set()
            if self._socket is not None:
                with suppress(OSError):
                    # Not by the method of a TLS socket, which first forgets that it is one.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def send(self, request: Request) -> Answer:
        """The answer; Invalid for a place where no request may go."""
        try:
            return self._send(request)
        except (OSError, http.client.HTTPException, UnicodeError) as fault:
            if self.is_cut or time.monotonic() >= self._until:
                raise Cut from None
            raise Unanswered(_told(request.place, fault)) from None
        finally:
            self._close()

    def _send(self, request: Request) -> Answer:
        connection = self._connect(request.place)
        connection.putrequest(
            request.method, request.place.target, skip_host=True, skip_accept_encoding=True
        )
        connection.putheader("Host", request.place.authority)
        connection.putheader("Accept-Encoding", "identity")  # what is packed has no known size
        connection.putheader("Connection", "close")
        for name, value in request.headers.items():
            connection.putheader(name, value.encode("latin-1"))
        if request.body is not None:
            connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders(request.body)
        answer = _read(connection.getresponse())
        if self.is_cut:  # the end of the stream was our doing
            raise Cut
        return answer

    def _connect(self, place: Place) -> http.client.HTTPConnection:
        addresses = self._addresses(place)
        fault: OSError | None = None
        for address in addresses[:ADDRESSES]:
            try:
                made = self._open(place, address)
            except ssl.SSLError:
                raise
            except OSError as failed:
                if self.is_cut:
                    raise
                fault = failed
                continue
            connection = http.client.HTTPConnection(place.host, place.port)
            connection.response_class = _Response
            connection.sock = made
            connection.auto_open = 0
            return connection
        raise fault or OSError("it has no address")

    def _open(self, place: Place, address: Address) -> socket.socket:
        family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        made = self._hold(socket.socket(family, socket.SOCK_STREAM))
        made.settimeout(min(self._left(), CONNECT_SECONDS))
        made.connect((str(address), place.port))
        made.settimeout(self._left())
        if place.scheme == "https":
            context = ssl.create_default_context()
            made = self._hold(
                context.wrap_socket(made, server_hostname=place.host, do_handshake_on_connect=False)
            )
            made.do_handshake()  # type: ignore[attr-defined]
        return made

    def _addresses(self, place: Place) -> list[Address]:
        """Where the host is. One address that is not allowed is enough to refuse it."""
        if place.address is not None:
            found = [place.address]
        else:
            found = [ipaddress.ip_address(one) for one in self._ask(place)]
        for one in dict.fromkeys(found):
            if told := refusal(one, place.port, self._allowed):
                here = "" if place.address is not None else "its address "
                raise Invalid(f"{place.shown} is refused: {here}{told}")
        return list(dict.fromkeys(found))

    def _ask(self, place: Place) -> list[str]:
        """Nothing can interrupt a resolver: it has a thread of its own, and we do not wait."""
        found: list[str] = []
        faults: list[Exception] = []
        done = threading.Event()

        def ask() -> None:
            try:
                # An address of a link has the link's name behind a %.
                found.extend(one.partition("%")[0] for one in self._resolve(place.host, place.port))
            except Exception as fault:
                faults.append(fault)
            done.set()

        threading.Thread(target=ask, name="rota-resolve", daemon=True).start()
        while not done.wait(min(0.05, max(self._left(), 0.001))):
            if self.is_cut or self._left() <= 0:
                raise Cut
        if faults:
            raise OSError(f"its name could not be resolved: {faults[0]}")
        if not found:
            raise OSError("its name has no address")
        return found

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise Cut
        return left

    def _hold(self, made: socket.socket) -> socket.socket:
        with self._guard:
            before, self._socket = self._socket, made
            if before is not None and before.fileno() >= 0:
                before.close()
        if self.is_cut:
            raise Cut
        return made

    def _close(self) -> None:
        with self._guard:
            if self._socket is not None:
                self._socket.close()
                self._socket = None


class BadLength(http.client.HTTPException):
    """A length that is none, or several: where the answer ends is anybody's guess."""


class _Lines(io.BufferedReader):
    """Remembers its last line: the headers must end with an empty one, not with the stream."""

    last = b""

    def readline(self, size: int | None = -1) -> bytes:
        self.last = super().readline(size)
        return self.last


class _Response(http.client.HTTPResponse):
    def begin(self) -> None:
        self.fp = lines = _Lines(self.fp.detach())
        super().begin()
        if lines.last not in (b"\r\n", b"\n"):
            raise http.client.IncompleteRead(b"")
        told = self.headers.get_all("content-length", [])
        if told and (len(set(told)) > 1 or not _LENGTH.fullmatch(told[0].strip())):
            raise BadLength

    def _read_next_chunk_size(self) -> int:
        line = self.fp.readline(CHUNK_LINE)
        if not line:
            raise http.client.IncompleteRead(b"")
        if (found := _CHUNK_SIZE.fullmatch(line)) is None:
            raise BadLength
        return int(found[1], 16)


def _read(response: http.client.HTTPResponse) -> Answer:
    body, more = b"", True
    while len(body) <= ANSWER_BYTES and more:
        piece = response.read(min(PIECE, ANSWER_BYTES + 1 - len(body)))
        body, more = body + piece, bool(piece)
    if len(body) <= ANSWER_BYTES and response.length:
        raise http.client.IncompleteRead(body, response.length)
    return Answer(
        status=response.status,
        reason=clip(response.reason, REASON_SHOWN),
        headers={name.lower(): value for name, value in response.getheaders()},
        body=body[:ANSWER_BYTES],
        cut=len(body) > ANSWER_BYTES,
    )


def _told(place: Place, fault: Exception) -> str:
    match fault:
        case ssl.SSLCertVerificationError():
            return f"{place.shown}: its certificate is not valid: {fault.verify_message}"
        case http.client.IncompleteRead():
            return f"{place.shown}: its answer ended early"
        case http.client.HTTPException():
            return f"{place.shown}: did not answer as a web server does ({type(fault).__name__})"
        case OSError() if fault.strerror:
            return f"{place.shown}: {fault.strerror}"
        case _:
            return f"{place.shown}: {fault}"
