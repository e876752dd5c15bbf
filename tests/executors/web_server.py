"""A web server on loopback that answers as a test says, byte by byte if it has to."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

# Given the connection, after the request was read.
Answering = Callable[[socket.socket], None]


@dataclass(slots=True)
class Received:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


def answer(
    status: str = "200 OK", body: bytes | str = b"", **headers: str
) -> Callable[[socket.socket], None]:
    content = body.encode() if isinstance(body, str) else body
    told = {"Content-Length": str(len(content)), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in told.items())
    text = f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + content
    return lambda connection: connection.sendall(text)


@dataclass
class WebServer:
    """`answers` by target; what was asked is in `received`."""

    answers: dict[str, Answering] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.stopped = threading.Event()
        self.busy = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.stopped.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # who waits for a connection wakes up
        self._listening.close()

    def _serve(self) -> None:
        while not self.stopped.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection:
            try:
                if self.tls is not None:
                    connection = self.tls.wrap_socket(connection, server_side=True)
                request = _read(connection)
                if request is None:
                    return
                self.received.append(request)
                self.busy.set()
                self.answers.get(request.target, answer("404 Not Found", "no such page"))(
                    connection
                )
            except OSError:
                pass  # it has hung up


def _read(connection: socket.socket) -> Received | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    return Received(method, target, headers, body)
