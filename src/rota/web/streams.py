"""Answers without an end: server-sent events.

A stream ends when its client goes, when it takes nothing for SEND_SECONDS, when its token is not
good any more, after STREAM_SECONDS, and when the process stops. It holds nothing but its place.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio.to_thread
import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rota.errors import RotaError
from rota.model.limits import LOG_STREAMS, PAGE, SEND_SECONDS, STREAM_SECONDS
from rota.model.roles import VIEWER, covers
from rota.model.transitions import TERMINAL
from rota.version import VERSION
from rota.web.errors import Refused, busy
from rota.web.feed import Feed
from rota.web.routing import Ask, begin_stream

BEAT_SECONDS = 15.0
RETRY_MILLISECONDS = 2_000
LOG_LOOK_SECONDS = 0.5
BEGIN_SECONDS = 0.25
# Lines are written a few times a second: the last ones come shortly after the end.
QUIET_LOOKS = 3

_encode = msgspec.json.Encoder().encode


class Stream(Response):
    """What streams share. Subclasses say what is sent."""

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self.ask = ask
        self.feed: Feed = ask.request.app.state.feed
        self._last_event_id = ask.request.headers.get("last-event-id")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.place():
            begin_stream(self.ask.request)
            headers = [
                (b"content-type", b"text/event-stream; charset=utf-8"),
                (b"cache-control", b"no-store"),
                (b"x-accel-buffering", b"no"),
                (b"connection", b"close"),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            gone = asyncio.ensure_future(_gone(receive))
            talk = asyncio.ensure_future(self._talk(send))
            try:
                await asyncio.wait((gone, talk), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (gone, talk):
                    task.cancel()
                with suppress(asyncio.CancelledError, TimeoutError):
                    await asyncio.gather(gone, talk)
            if not gone.done() or gone.cancelled():
                with suppress(TimeoutError):
                    await _send(send, b"", more=False)

    async def _talk(self, send: Send) -> None:
        self._until = time.monotonic() + STREAM_SECONDS
        self._beat_at = time.monotonic() + BEAT_SECONDS
        await _send(send, f"retry: {RETRY_MILLISECONDS}\n\n".encode())
        await self.talk(send)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        raise NotImplementedError
        yield

    async def talk(self, send: Send) -> None:
        raise NotImplementedError

    async def goes_on(self, send: Send) -> bool:
        """False when it is time to end. A line now and then tells both sides whether the other is
        there, and is the moment to ask whether this one may still listen."""
        if self.feed.stopping or time.monotonic() > self._until:
            return False
        if time.monotonic() < self._beat_at:
            return True
        self._beat_at = time.monotonic() + BEAT_SECONDS
        await _send(send, b": still here\n\n")
        return await anyio.to_thread.run_sync(self._may_listen, abandon_on_cancel=True)

    def _may_listen(self) -> bool:
        request = self.ask.request
        try:
            who = self.ask.doorkeeper.identify(
                request.headers, self.ask.who.address, local=request.state.local
            )
        except Refused:
            return False
        except RotaError:  # the store is away: nobody can say, and there is nothing to hear
            return True
        return covers(who.role, VIEWER)


class EventStream(Stream):
    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        self.feed.join()
        try:
            yield
        finally:
            self.feed.leave()

    async def talk(self, send: Send) -> None:
        # Whoever hears the first word may read: all that happens from then on is told.
        while not self.feed.begun:
            if not await self.goes_on(send):
                return
            await self.feed.news(BEGIN_SECONDS)
        place = self.feed.position(self._last_event_id)
        if place is None:
            place = await self._resync(send)
        elif self._last_event_id is None:
            mark = self.feed.head[1]
            await _send(send, _event("hello", {"version": VERSION}, mark))
        while await self.goes_on(send):
            found = self.feed.after(place)
            if found is None:
                place = await self._resync(send)
            elif found[0]:
                await _send(send, b"".join(found[0]))
                place = found[1]
            else:
                await self.feed.news(max(0.05, self._beat_at - time.monotonic()))

    async def _resync(self, send: Send) -> int:
        place, mark = self.feed.head
        await _send(send, _event("resync", {}, mark))
        return place


class LogStream(Stream):
    """The lines of one run, as they come."""

    _open = 0

    @classmethod
    async def open(cls, ask: Ask, run_id: str, *, after: int, tail: int) -> LogStream:
        """Unknown before anything is sent."""
        await anyio.to_thread.run_sync(ask.control.run, run_id)
        made = cls(ask)
        made._run_id, made._after, made._tail = run_id, after, tail
        told = made._last_event_id
        if told is not None and told.isascii() and told.isdigit():
            made._after, made._tail = int(told[:18]), 0
        return made

    _run_id: str
    _after: int
    _tail: int

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        if LogStream._open >= LOG_STREAMS:
            raise busy(f"{LOG_STREAMS} logs are followed already")
        LogStream._open += 1
        try:
            yield
        finally:
            LogStream._open -= 1

    async def talk(self, send: Send) -> None:
        quiet = 0
        while await self.goes_on(send):
            try:
                state, lines = await anyio.to_thread.run_sync(self._look, abandon_on_cancel=True)
            except RotaError:
                await _send(send, _event("end", {"state": None}))
                return
            if lines:
                await _send(send, b"".join(_event("log", line, str(line["id"])) for line in lines))
                continue
            quiet = quiet + 1 if state in TERMINAL else 0
            if quiet > QUIET_LOOKS:
                await _send(send, _event("end", {"state": state}))
                return
            await asyncio.sleep(LOG_LOOK_SECONDS)

    def _look(self) -> tuple[str, list[dict[str, Any]]]:
        # The state first: a line that is written before the end is read after it.
        state = self.ask.control.run(self._run_id).state
        if self._tail:
            lines = self.ask.control.log_tail(self._run_id, limit=self._tail)
            self._tail = 0
        else:
            lines = self.ask.control.logs(self._run_id, after=self._after, limit=PAGE)
        if lines:
            self._after = lines[-1]["id"]
        return state, lines


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(send: Send, body: bytes, *, more: bool = True) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await send({"type": "http.response.body", "body": body, "more_body": more})


def _event(name: str, said: Any, mark: str | None = None) -> bytes:
    head = "" if mark is None else f"id: {mark}\n"
    return f"{head}event: {name}\ndata: ".encode() + _encode(said) + b"\n\n"
