"""HTTP/1.1 as uvicorn speaks it, with limits on those who do not speak: a head that does not come,
one that is too long, one that is no HTTP, and too many connections."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from rota.model.limits import CONNECTIONS, HEAD_SECONDS, HEADER_BYTES

# Beyond what the guard refuses with its name: from here on nothing more is read.
HEAD_BYTES = 2 * HEADER_BYTES
LAST_SECONDS = 2.0  # for a client that was refused to take the answer


class Protocol(H11Protocol):
    _head_timer: asyncio.TimerHandle | None = None
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()
            return
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._no_head)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def eof_received(self) -> None:
        if self._refused:
            self.transport.abort()

    def shutdown(self) -> None:
        if self._refused:
            self.transport.abort()
        else:
            super().shutdown()

    def handle_events(self) -> None:
        super().handle_events()
        # Between requests the time to keep a connection alive counts; within a head, ours does.
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(HEAD_SECONDS, self._no_head)
        elif self.conn.their_state is not h11.IDLE:
            self._forget_timer()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP. A head that is too long ends here, too."""
        long = len(self.conn.trailing_data[0]) > HEAD_BYTES
        self._refuse(431 if long else 400, "too-large" if long else "malformed", msg)

    def _no_head(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self._refuse(408, "timeout", f"no request within {HEAD_SECONDS:g} s")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        phrase = HTTPStatus(status).phrase
        told: dict[str, Any] = {"type": "about:blank", "title": phrase, "status": status}
        body = json.dumps({**told, "code": code, "detail": detail}).encode()
        head = (
            f"HTTP/1.1 {status} {phrase}\r\nContent-Type: application/problem+json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        # Past h11, which may be in no state to say anything.
        self.transport.write(head.encode() + body)
        self._refused = True
        # Closed while the client still sends, the connection would be reset and the answer lost.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LAST_SECONDS, self.transport.abort)

    def _forget_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
