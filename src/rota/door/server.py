"""The local socket server of a process: it serves a store that no other process can open.

One thread listens; a few others perform the calls through the same `Control` as every surface. A
client cannot block the process: lines, replies, clients and waits all have a limit. The server runs
until the store is closed, so that a process which stops can still be inspected.
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
from rota.door.address import BACKLOG, ListeningSocket, peer, socket_path
from rota.door.client import connect
from rota.door.messages import HELLO
from rota.duckdb_instances import MEMORY, path_from_url
from rota.errors import Conflict, Invalid, RotaError, Unavailable
from rota.executors.event_loop import abandon_pool
from rota.version import VERSION

log = logging.getLogger("rota")

MAX_CLIENTS = 256
CONCURRENT_CALLS = 4
# A command calls several times a second while it waits; a script may pause longer.
IDLE_SECONDS = 60.0
SEND_SECONDS = 30.0
# Calls that run when the process stops may finish within this time.
STOP_SECONDS = 5.0

_open_paths: set[Path] = set()  # sockets of this process: two apps on one store share one
_open_paths_lock = threading.Lock()


class SocketServer:
    """The server of one app, started and stopped with it."""

    def __init__(self, app: Rota) -> None:
        self._app = app
        self.error: str | None = None
        self._path: Path | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to listen. On failure the process runs without a socket, and `error` says why."""
        path = path_from_url(self._app.settings.database)
        if path.startswith(MEMORY):
            return
        socket_file = socket_path(path, self._app.settings.schema)
        with _open_paths_lock:
            if socket_file in _open_paths:
                return
            _open_paths.add(socket_file)
        try:
            other = connect(socket_file)
            if other is not None:
                other.close()
                raise Conflict(f"process {other.hello.process} answers there")
            self._listening = ListeningSocket(socket_file)
        except (OSError, RotaError) as fault:
            with _open_paths_lock:
                _open_paths.discard(socket_file)
            self.error = f"commands cannot reach this process through {socket_file}: {fault}"
            log.warning("%s; it runs on without", self.error)
            return
        self._path = socket_file
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="rota-door", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let running calls finish, then close. May be called again."""
        if self._thread is None or self._path is None:
            return
        self._listening.remove()
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._thread = None
        with _open_paths_lock:
            _open_paths.discard(self._path)

    # The listening thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._pool = ThreadPoolExecutor(CONCURRENT_CALLS, thread_name_prefix="rota-door")
        self._clients: set[asyncio.Task[Any]] = set()
        self._answering: set[asyncio.Task[Any]] = set()
        server = await asyncio.start_unix_server(
            self._accept,
            sock=self._listening.socket,
            limit=messages.REQUEST_BYTES,
            backlog=BACKLOG,
        )
        await self._stopping.wait()
        server.close()
        # Clients that wait for a reply get it; idle clients are disconnected.
        for client in self._clients - self._answering:
            client.cancel()
        if self._clients:
            await asyncio.wait(self._clients, timeout=STOP_SECONDS)
        late = asyncio.all_tasks() - {asyncio.current_task()}
        for client in late:
            client.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the next turn of the loop
        abandon_pool(self._pool)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        user = _user_of(writer.get_extra_info("socket"))
        self._clients.add(task)
        try:
            if user is None:
                await _send(writer, messages.encode_error(Conflict(NOT_YOURS)))
            elif len(self._clients) > MAX_CLIENTS:
                await _send(writer, messages.encode_error(Unavailable(TOO_MANY)))
            else:
                await self._serve_client(task, reader, writer, user)
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # the client is gone or idle, or we stop: no reply is possible
        finally:
            self._clients.discard(task)
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()  # the client has not read it in time
            else:
                writer.close()

    async def _serve_client(
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
            self._answering.add(task)
            try:
                reply = self._loop.run_in_executor(self._pool, self._reply, line, user)
                await _send(writer, await reply)
            finally:
                self._answering.discard(task)

    # The threads that perform calls

    def _reply(self, line: bytes, user: str) -> bytes:
        try:
            return messages.encode_reply(self._perform(line, user))
        except RotaError as fault:
            return messages.encode_error(fault)
        except Exception as fault:
            log.exception("a request on the local socket failed")
            kind = type(fault).__name__
            return messages.encode_error(
                RotaError(
                    f"process {os.getpid()} failed to do it ({kind}); its log has the details"
                )
            )

    def _perform(self, line: bytes, user: str) -> Any:
        request = messages.decode_request(line)
        if request.call == HELLO:
            return {"version": VERSION, "process": os.getpid()}
        arguments = messages.arguments(request.call, request.args)
        control = self._app.control_as(messages.actor_of(request.actor, user))
        return getattr(control, request.call)(**arguments)


NOT_YOURS = "this store's process answers its own user only"
TOO_MANY = f"{MAX_CLIENTS} commands ask this process already; try again"
TOO_LONG = f"a request takes at most {messages.REQUEST_BYTES:,} bytes, on one line"


async def _send(writer: asyncio.StreamWriter, line: bytes) -> None:
    # Wait until the buffer is empty: what is left when the client is disconnected would be lost.
    writer.transport.set_write_buffer_limits(high=0)
    writer.write(line)
    async with asyncio.timeout(SEND_SECONDS):
        await writer.drain()


def _user_of(sock: socket.socket) -> str | None:
    """The name of the peer's user, None unless it is our own user or root.

    The mode of the socket says the same; this also covers a folder opened to others by mistake."""
    with suppress(OSError):
        peer_ids = peer(sock)
        if peer_ids is None:
            return "unknown"
        user = peer_ids[1]
        if user in (0, os.geteuid()):
            try:
                return pwd.getpwuid(user).pw_name
            except KeyError:
                return str(user)
    return None
