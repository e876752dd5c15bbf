"""A request over a new connection, to a checked address, within a deadline.

A name is resolved once. All its addresses must be allowed, and the connection goes to an address of
that list: a name server that gives another answer later has no effect. Slow data does not extend
the deadline: at its end, or when the attempt should end, another thread cuts the connection.
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
from rota.executors.http.address import Url
from rota.executors.http.request import Request
from rota.executors.networks import Address, Allowed, refusal
from rota.model.limits import ANSWER_BYTES, clip

CONNECT_SECONDS = 10.0  # for each address
ADDRESSES = 8
PIECE = 64 * 1024
REASON_LENGTH = 100
CHUNK_LINE = 1_024  # the size of a chunk and its extensions
# int() also accepts a sign, blanks and underscores. A chunk of -1 bytes would read to the end.
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
_LENGTH = re.compile(r"[0-9]{1,18}")

# (host, port) -> addresses as text. Tests replace it.
Resolve = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The response of a server; `cut` if its body was longer than ANSWER_BYTES."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytes
    cut: bool = False


class NoResponse(Exception):
    """The server could not be reached, or did not answer as a web server does."""


class Cut(Exception):
    """The exchange was cut by `Exchange.cut` or its deadline."""


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, from the resolver of the system."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in entries]


class Exchange:
    """Requests of an attempt, in a row. Other threads may call `cut` only."""

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
                    # Not SSLSocket.shutdown(), which would drop the TLS state while another
                    # thread reads.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def send(self, request: Request) -> Response:
        """Send a request and return the response; raises Invalid for a refused address."""
        try:
            return self._send(request)
        except (OSError, http.client.HTTPException, UnicodeError) as fault:
            if self.is_cut or time.monotonic() >= self._until:
                raise Cut from None
            raise NoResponse(_message(request.url, fault)) from None
        finally:
            self._close()

    def _send(self, request: Request) -> Response:
        connection = self._connect(request.url)
        connection.putrequest(
            request.method, request.url.target, skip_host=True, skip_accept_encoding=True
        )
        connection.putheader("Host", request.url.authority)
        connection.putheader("Accept-Encoding", "identity")  # a compressed body has no known size
        connection.putheader("Connection", "close")
        for name, value in request.headers.items():
            connection.putheader(name, value.encode("latin-1"))
        if request.body is not None:
            connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders(request.body)
        response = _read(connection.getresponse())
        if self.is_cut:  # the end of the stream may be that of cut()
            raise Cut
        return response

    def _connect(self, url: Url) -> http.client.HTTPConnection:
        addresses = self._addresses(url)
        fault: OSError | None = None
        for address in addresses[:ADDRESSES]:
            try:
                opened = self._open(url, address)
            except ssl.SSLError:
                raise
            except OSError as failed:
                if self.is_cut:
                    raise
                fault = failed
                continue
            connection = http.client.HTTPConnection(url.host, url.port)
            connection.response_class = _StrictResponse
            connection.sock = opened
            connection.auto_open = 0
            return connection
        raise fault or OSError("it has no address")

    def _open(self, url: Url, address: Address) -> socket.socket:
        family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        opened = self._hold(socket.socket(family, socket.SOCK_STREAM))
        opened.settimeout(min(self._left(), CONNECT_SECONDS))
        opened.connect((str(address), url.port))
        opened.settimeout(self._left())
        if url.scheme == "https":
            context = ssl.create_default_context()
            opened = self._hold(
                context.wrap_socket(opened, server_hostname=url.host, do_handshake_on_connect=False)
            )
            opened.do_handshake()  # type: ignore[attr-defined]
        return opened

    def _addresses(self, url: Url) -> list[Address]:
        """The addresses of the host; raises Invalid if any of them is not allowed."""
        if url.address is not None:
            addresses = [url.address]
        else:
            addresses = [ipaddress.ip_address(text) for text in self._resolved(url)]
        for address in dict.fromkeys(addresses):
            if reason := refusal(address, url.port, self._allowed):
                subject = "" if url.address is not None else "its address "
                raise Invalid(f"{url.redacted} is refused: {subject}{reason}")
        return list(dict.fromkeys(addresses))

    def _resolved(self, url: Url) -> list[str]:
        """Resolve the host in another thread, because a resolver cannot be interrupted."""
        addresses: list[str] = []
        faults: list[Exception] = []
        done = threading.Event()

        def resolve() -> None:
            try:
                # A link-local address has its interface after a %.
                resolved = self._resolve(url.host, url.port)
                addresses.extend(text.partition("%")[0] for text in resolved)
            except Exception as fault:
                faults.append(fault)
            done.set()

        threading.Thread(target=resolve, name="rota-resolve", daemon=True).start()
        while not done.wait(min(0.05, max(self._left(), 0.001))):
            if self.is_cut or self._left() <= 0:
                raise Cut
        if faults:
            raise OSError(f"its name could not be resolved: {faults[0]}")
        if not addresses:
            raise OSError("its name has no address")
        return addresses

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise Cut
        return left

    def _hold(self, opened: socket.socket) -> socket.socket:
        with self._guard:
            before, self._socket = self._socket, opened
            if before is not None and before.fileno() >= 0:
                before.close()
        if self.is_cut:
            raise Cut
        return opened

    def _close(self) -> None:
        with self._guard:
            if self._socket is not None:
                self._socket.close()
                self._socket = None


class BadLength(http.client.HTTPException):
    """The length of the body is invalid or ambiguous."""


class _LastLineReader(io.BufferedReader):
    """Stores its last line: headers must end with an empty line, not with the stream."""

    last = b""

    def readline(self, size: int | None = -1) -> bytes:
        self.last = super().readline(size)
        return self.last


class _StrictResponse(http.client.HTTPResponse):
    def begin(self) -> None:
        self.fp = reader = _LastLineReader(self.fp.detach())
        super().begin()
        if reader.last not in (b"\r\n", b"\n"):
            raise http.client.IncompleteRead(b"")
        lengths = self.headers.get_all("content-length", [])
        if lengths and (len(set(lengths)) > 1 or not _LENGTH.fullmatch(lengths[0].strip())):
            raise BadLength

    def _read_next_chunk_size(self) -> int:
        line = self.fp.readline(CHUNK_LINE)
        if not line:
            raise http.client.IncompleteRead(b"")
        if (match := _CHUNK_SIZE.fullmatch(line)) is None:
            raise BadLength
        return int(match[1], 16)


def _read(response: http.client.HTTPResponse) -> Response:
    body, more = b"", True
    while len(body) <= ANSWER_BYTES and more:
        piece = response.read(min(PIECE, ANSWER_BYTES + 1 - len(body)))
        body, more = body + piece, bool(piece)
    if len(body) <= ANSWER_BYTES and response.length:
        raise http.client.IncompleteRead(body, response.length)
    return Response(
        status=response.status,
        reason=clip(response.reason, REASON_LENGTH),
        headers={name.lower(): value for name, value in response.getheaders()},
        body=body[:ANSWER_BYTES],
        cut=len(body) > ANSWER_BYTES,
    )


def _message(url: Url, fault: Exception) -> str:
    match fault:
        case ssl.SSLCertVerificationError():
            return f"{url.redacted}: its certificate is not valid: {fault.verify_message}"
        case http.client.IncompleteRead():
            return f"{url.redacted}: its answer ended early"
        case http.client.HTTPException():
            return f"{url.redacted}: did not answer as a web server does ({type(fault).__name__})"
        case OSError() if fault.strerror:
            return f"{url.redacted}: {fault.strerror}"
        case _:
            return f"{url.redacted}: {fault}"
