"""A TCP proxy of our own, to do to connections what networks do to them."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

PIECE = 65_536
LOOK_SECONDS = 0.2
# Closed with this, a connection ends with RST, and what was not sent yet is lost.
_RESET = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Proxy:
    """Stands before a server. What it does can be changed at any time, also to open connections.

    `delay`      seconds that each piece waits, in either direction
    `blackhole`  nothing gets through in either direction, and nothing is closed
    `half_open`  what the server says is lost; what the client says arrives
    `cut_after`  bytes the server may still say, over all connections, before they are all reset
    `dribble`    what the server says arrives byte by byte
    """

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self.delay = 0.0
        self.blackhole = self.half_open = self.dribble = False
        self.cut_after: int | None = None
        self.cuts = 0
        self._guard = threading.Lock()
        self._pairs: set[Pair] = set()
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        port = self._listener.getsockname()[1]
        account, _, _ = self._url.netloc.rpartition("@")
        return urlunsplit(self._url._replace(netloc=f"{account}@127.0.0.1:{port}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        # A connection of our own ends the wait for the next one.
        with suppress(OSError):
            socket.create_connection(self._listener.getsockname()[:2]).close()
        self._thread.join()
        self._listener.close()
        self.reset_all()

    def heal(self) -> None:
        """Let everything through again. Connections that a fault ate stay as they are."""
        self.delay, self.cut_after = 0.0, None
        self.blackhole = self.half_open = self.dribble = False

    def reset_all(self) -> None:
        """End every connection, as a firewall does: what was not sent yet is lost."""
        with self._guard:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            pair.reset()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._closing.is_set():
                client.close()
                return
            try:
                server = socket.create_connection((self._url.hostname or "", self._url.port or 0))
            except OSError:
                client.setsockopt(*_RESET)
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = Pair(client, server)
            with self._guard:
                self._pairs.add(pair)
            for source, target in ((client, server), (server, client)):
                threading.Thread(
                    target=self._serve, args=(pair, source, target), name="pump", daemon=True
                ).start()

    def _serve(self, pair: Pair, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            self._pump(pair, source, target)
        pair.leave()

    def _pump(self, pair: Pair, source: socket.socket, target: socket.socket) -> None:
        server_talks = source is pair.server
        while piece := source.recv(PIECE):
            if self.delay:
                self._closing.wait(self.delay)
            while self.blackhole and not self._closing.wait(LOOK_SECONDS):
                pass
            if server_talks and self.half_open:
                continue
            if server_talks and self.cut_after is not None:
                piece = self._cut(piece)
                if piece is None:
                    self.reset_all()
                    return
            for part in dribbled(piece) if server_talks and self.dribble else (piece,):
                target.sendall(part)

    def _cut(self, piece: bytes) -> bytes | None:
        """What may still be said; None if this was too much."""
        with self._guard:
            if self.cut_after is None:
                return piece
            self.cut_after -= len(piece)
            if self.cut_after >= 0:
                return piece
            self.cut_after = None
            self.cuts += 1
            return None


class Pair:
    """A connection of a client and ours to the server. Its sockets are closed by whoever of its two
    threads ends last: a number that is closed too early may be another connection's when the
    other thread reads from it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self._guard = threading.Lock()
        self._readers = 2

    def reset(self) -> None:
        """Nothing gets through from now on, and both end with RST as soon as nobody reads."""
        with self._guard:
            if self._readers:
                for end in (self.client, self.server):
                    end.setsockopt(*_RESET)
                self._shut()

    def leave(self) -> None:
        with self._guard:
            self._shut()
            self._readers -= 1
            if not self._readers:
                self.client.close()
                self.server.close()

    def _shut(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def dribbled(piece: bytes) -> Iterator[bytes]:
    for at in range(len(piece)):
        yield piece[at : at + 1]
