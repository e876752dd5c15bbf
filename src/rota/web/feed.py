"""The event stream: one reader of the store, one ring of events, any number of clients.

A client is a place in the ring, nothing more: no queue of its own, so that one who does not read
costs what one who reads costs. Who falls behind the ring is told to look anew (`resync`), and who
takes nothing for SEND_SECONDS is sent away. The reader works only while somebody listens.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec

from rota.errors import RotaError
from rota.flow.follow import Follow
from rota.flow.loop import Loop
from rota.model.limits import STREAMS
from rota.storage.store import Store
from rota.web.errors import Refused, busy

RING = 5_000
CHUNK_BYTES = 32 * 1024  # written at a time: no client has much more than this in memory
LOOP_SECONDS = 5.0
LEAST_SECONDS = 0.2  # between two looks
IDLE_SECONDS = 1.0

_encode = msgspec.json.Encoder().encode


class Feed:
    def __init__(self, storage: Callable[[], Store]) -> None:
        self._storage = storage
        self._ring: deque[bytes] = deque(maxlen=RING)
        self._told = 0  # how many events there were
        self._epoch = secrets.token_hex(4)  # numbers of another process mean nothing here
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: asyncio.Event | None = None
        self._reader: Loop | None = None
        self._unlisten: Callable[[], None] = lambda: None
        self.clients = 0
        self.begun = False  # whether the reader knows where the rows end, and misses nothing more
        self.stopping = False

    # The side of the event loop

    def bind(self) -> None:
        """Called inside the loop that serves the clients."""
        self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        if self.stopping:
            self._news.set()

    def join(self) -> None:
        """One more client; the first one starts the reader."""
        if self.stopping:
            raise Refused(503, "stopping", "this process is about to stop; try again")
        if self.clients >= STREAMS:
            raise busy(f"there are {STREAMS} streams already", seconds=5)
        with self._guard:
            self.clients += 1
        if self._reader is None:
            self._start()
        elif not self.begun:
            self._reader.wake()

    def leave(self) -> None:
        self.clients -= 1

    async def news(self, seconds: float) -> None:
        """Until something was told, the stop began, or so many seconds have passed."""
        assert self._news is not None
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return

    # The ring

    def position(self, last_event_id: str | None) -> int | None:
        """Where a client goes on; None if what it missed is not known here any more."""
        if last_event_id is None:
            return self._told
        epoch, _, number = last_event_id.partition("-")
        if epoch != self._epoch or not number.isascii() or not number.isdigit():
            return None
        place = int(number[:18])
        with self._guard:
            return place if self._told - len(self._ring) <= place <= self._told else None

    def after(self, place: int) -> tuple[list[bytes], int] | None:
        """The next events and the place after them; None for who is behind the ring."""
        with self._guard:
            first = self._told - len(self._ring)
            if place < first:
                return None
            found: list[bytes] = []
            size = 0
            for event in islice(self._ring, place - first, None):
                found.append(event)
                size += len(event)
                if size > CHUNK_BYTES:
                    break
            return found, place + len(found)

    @property
    def head(self) -> tuple[int, str]:
        """The place of who has seen everything, and its id."""
        return self._told, f"{self._epoch}-{self._told}"

    # The side of the reader

    def tell(self, name: str, said: Mapping[str, Any]) -> None:
        with self._guard:
            self._told += 1
            line = f"id: {self._epoch}-{self._told}\nevent: {name}\ndata: ".encode()
            self._ring.append(line + _encode(said) + b"\n\n")
        self._wake()

    def stop(self) -> None:
        """End every stream, and the reader. May be called from any thread, and again."""
        self.stopping = True
        self._wake()
        reader, self._reader = self._reader, None
        if reader is not None:
            self._unlisten()
            reader.stop(LOOP_SECONDS)

    def _start(self) -> None:
        follow = Follow(self._storage, self.tell)

        looked_at = 0.0

        def step() -> float:
            nonlocal looked_at
            with self._guard:
                if not self.clients:
                    if follow.forget():
                        self._begin_anew()
                    return IDLE_SECONDS
            # A busy store wakes us a thousand times a second.
            pause = looked_at + LEAST_SECONDS - time.monotonic()
            if pause > 0:
                return pause
            looked_at = time.monotonic()
            seconds = follow.step()
            if not self.begun:
                self.begun = True
                self._wake()
            return seconds

        self._reader = Loop("feed", step)
        try:
            self._unlisten = self._storage().listen(self._reader.wake)
        except RotaError:  # the loop looks twice a second anyway
            self._unlisten = lambda: None
        self._reader.start()

    def _begin_anew(self) -> None:
        """Nobody listened for a while, and nothing was told: who was here before must look anew.
        Called under the guard: whoever joins does so before, and is seen, or after, and waits."""
        self.begun = False
        self._epoch = secrets.token_hex(4)
        self._ring.clear()

    def _wake(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: no client is left
                self._loop.call_soon_threadsafe(self._ring_the_bell)

    def _ring_the_bell(self) -> None:
        assert self._news is not None
        self._news.set()
        if not self.stopping:
            self._news = asyncio.Event()
