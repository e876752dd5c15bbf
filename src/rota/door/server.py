"""The door of a running process: it answers for a store that no other process can open.

One thread listens; a few others do what is asked, through the same `Control` as every surface.
Nobody at the door can hold up the process: lines, answers, clients and waits all have a limit. It
is open until the store is closed, so that a process which stops can still be looked at.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from rota.app import Rota
from rota.door import messages
from rota.door.address import BACKLOG, Listening, door_of, peer
from rota.door.client import knock
from rota.door.messages import HELLO
from rota.duckdb_instances import MEMORY, path_from_url
from rota.errors import Conflict, Invalid, RotaError, Unavailable
from rota.executors.event_loop import abandon_pool
from rota.version import VERSION

log = logging.getLogger("rota")

MOST_CLIENTS = 256
CALLS_AT_ONCE = 4
# A command asks several times a second while it waits; a person's script may think longer.
IDLE_SECONDS = 60.0
TAKE_SECONDS = 30.0
# What was begun when the process stops may end.
STOP_SECONDS = 5.0

_places: set[Path] = set()  # the doors of this process: two apps on one store need one
_places_lock = threading.Lock()


class Door:
    """Started and stopped with its app."""

    def __init__(self, app: Rota) -> None:
        self._app = app
        self.error: str | None = None
        self._place: Path | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open it. A process that cannot have one runs without, and says so."""
        path = path_from_url(self._app.settings.database)
        if path.startswith(MEMORY):
            return
        place = door_of(path, self._app.settings.schema)
        with _places_lock:
            if place in _places:
                return
            _places.add(place)
        try:
            other = knock(place)
            if other is not None:
                other.close()
                raise Conflict(f"process {other.hello.process} answers there")
            self._listening = Listening(place)
        except (OSError, RotaError) as fault:
            with _places_lock:
                _places.discard(place)
            self.error = f"commands cannot reach this process through {place}: {fault}"
            log.warning("%s; it runs on without", self.error)
            return
        self._place = place
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="rota-door", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let what was begun end, and close it. May be called again."""
        if self._thread is None or self._place is None:
            return
        self._listening.remove()
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._thread = None
        with _places_lock:
            _places.discard(self._place)

    # The thread that listens

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._pool = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="rota-door")
        self._clients: set[asyncio.Task[Any]] = set()
        self._asking: set[asyncio.Task[Any]] = set()
        server = await asyncio.start_unix_server(
            self._client,
            sock=self._listening.socket,
            limit=messages.REQUEST_BYTES,
            backlog=BACKLOG,
        )
        await self._stopping.wait()
        server.close()
        # Who waits for an answer gets it; who does not ask anything is sent away.
        for client in self._clients - self._asking:
            client.cancel()
        if self._clients:
            await asyncio.wait(self._clients, timeout=STOP_SECONDS)
        late = asyncio.all_tasks() - {asyncio.current_task()}
        for client in late:
            client.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        await asyncio.sleep(0)  # what was closed just now is closed when the loop comes around
        abandon_pool(self._pool)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        user = _user_of(writer.get_extra_info("socket"))
        self._clients.add(task)
        try:
            if user is None:
                await _send(writer, messages.encode_error(Conflict(NOT_YOURS)))
            elif len(self._clients) > MOST_CLIENTS:
                await _send(writer, messages.encode_error(Unavailable(TOO_MANY)))
            else:
                await self._converse(task, reader, writer, user)
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # gone, asleep, or we stop: there is nobody to tell
        finally:
            self._clients.discard(task)
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()  # what it has not taken until now it does not want
            else:
                writer.close()

    async def _converse(
        self,
        task: asyncio.Task[Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        user: str,
    ) -> None:
        while not self._stopping.is_set():
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    line = await reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return
            except asyncio.LimitOverrunError:
                return await _send(writer, messages.encode_error(Invalid(TOO_LONG)))
            self._asking.add(task)
            try:
                answer = self._loop.run_in_executor(self._pool, self._answer, line, user)
                await _send(writer, await answer)
            finally:
                self._asking.discard(task)

    # The threads that do what is asked

    def _answer(self, line: bytes, user: str) -> bytes:
        try:
            return messages.encode_answer(self._perform(line, user))
        except RotaError as fault:
            return messages.encode_error(fault)
        except Exception as fault:
            log.exception("a request at the door failed")
            kind = type(fault).__name__
            return messages.encode_error(
                RotaError(f"process {os.getpid()} failed to do it ({kind}); its log says more")
            )

    def _perform(self, line: bytes, user: str) -> Any:
        request = messages.decode_request(line)
        if request.call == HELLO:
            return {"version": VERSION, "process": os.getpid()}
        told = messages.arguments(request.call, request.args)
        control = self._app.control_as(messages.actor_of(request.actor, user))
        return getattr(control, request.call)(**told)


NOT_YOURS = "this store's process answers its own user only"
TOO_MANY = f"{MOST_CLIENTS} commands ask this process already; try again"
TOO_LONG = f"a request takes at most {messages.REQUEST_BYTES:,} bytes, on one line"


async def _send(writer: asyncio.StreamWriter, line: bytes) -> None:
    # All of it, and not most of it: what is left when the client is sent away would be lost.
    writer.transport.set_write_buffer_limits(high=0)
    writer.write(line)
    async with asyncio.timeout(TAKE_SECONDS):
        await writer.drain()


def _user_of(sock: socket.socket) -> str | None:
    """The user at the other end, if it may ask: ourselves, or root. The mode of the socket says
    so too; a folder that was opened to others by mistake says it here."""
    with suppress(OSError):
        found = peer(sock)
        if found is None:
            return "unknown"
        user = found[1]
        if user in (0, os.geteuid()):
            try:
                return pwd.getpwuid(user).pw_name
            except KeyError:
                return str(user)
    return None
