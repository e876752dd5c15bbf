"""Call the process that has a DuckDB store open: same calls, results and errors as `Control`.

DuckDB is not imported here, so that commands start as fast as on any store.
"""

from __future__ import annotations

import inspect
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rota.door import messages
from rota.door.address import open_socket, peer, store_path
from rota.door.messages import HELLO, READS, Hello
from rota.errors import Conflict, RotaError, Unavailable
from rota.flow.control import Control
from rota.storage.operations.audit import Actor
from rota.version import VERSION

# A live process replies at once, unless the machine is very busy.
HELLO_SECONDS = 5.0
REPLY_SECONDS = 120.0

NO_ACTOR = Actor(by="", via="")


class Connection:
    """A connection to the process that listens on a local socket."""

    def __init__(self, path: Path, sock: socket.socket) -> None:
        self._path, self._socket = path, sock
        self._replies = sock.makefile("rb")
        self.hello = Hello("", 0)

    def handshake(self) -> bool:
        """Read the version of the process; False if it does not reply."""
        try:
            self.hello = msgspec.convert(self.call(HELLO, {}, NO_ACTOR), Hello)
        except Unavailable:
            return False
        except msgspec.ValidationError:
            raise Conflict(f"{self._path} is not the socket of a Rota process") from None
        self._socket.settimeout(REPLY_SECONDS)
        return True

    def call(self, name: str, args: Mapping[str, Any], actor: Actor) -> Any:
        request = messages.encode_request(name, args, actor)
        try:
            self._socket.sendall(request)
            reply = self._replies.readline(messages.REPLY_BYTES + 1)
        except TimeoutError:
            raise self._lost(
                name, f"did not answer within {self._socket.gettimeout():g} s"
            ) from None
        except OSError as fault:
            raise self._lost(name, f"broke off ({fault.strerror or fault})") from None
        if not reply.endswith(b"\n"):
            raise self._lost(name, "stopped before it answered")
        try:
            return messages.decode_reply(reply)
        except (msgspec.MsgspecError, KeyError, TypeError, AttributeError):
            raise Conflict(f"{self._path} is not the socket of a Rota process") from None

    def _lost(self, name: str, problem: str) -> Unavailable:
        process = f"process {self.hello.process}" if self.hello.process else "the process"
        message = f"{process}, which has {store_path(self._path)} open, {problem}"
        self.close()  # else a late reply would be read as the reply to the next call
        if name in (*READS, HELLO):
            return Unavailable(f"{message}; ask again")
        fault = Unavailable(
            f"{message}: whether it did it ({name}) is not known; check before you try again"
        )
        fault.maybe_committed = True
        return fault

    def close(self) -> None:
        self._replies.close()
        self._socket.close()


def connect(path: Path) -> Connection | None:
    """A connection to the process that listens on this path; None if there is none."""
    try:
        sock = open_socket(path, HELLO_SECONDS)
    except PermissionError:
        raise Conflict(
            f"{path} may be used by its owner only; run this as the user of that process"
        ) from None
    if sock is None:
        return None
    connection = Connection(path, sock)
    try:
        _check_owner(path, sock)
        if connection.handshake():
            return connection
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


def _check_owner(path: Path, sock: socket.socket) -> None:
    """Refuse a socket of another user: any user who may write to the folder could create one."""
    peer_ids = peer(sock)
    if peer_ids is None:
        return
    owners = {0, os.geteuid(), os.stat(store_path(path)).st_uid}
    if peer_ids[1] not in owners:
        raise Conflict(
            f"{path} belongs to process {peer_ids[0]} of another user (id {peer_ids[1]}), so it is "
            "not used; remove it, or run this as that user"
        )


class RemoteControl(Control):
    """A control whose store is in another process."""

    def __init__(self, connection: Connection, actor: Actor) -> None:
        self.connection, self.actor = connection, actor

    @property
    def dialect(self) -> str:
        return "duckdb"  # no other store has a local socket

    def close(self) -> None:
        self.connection.close()

    def as_actor(self, actor: Actor) -> Control:
        return RemoteControl(self.connection, actor)


def remote_control(path: Path, actor: Actor) -> RemoteControl | None:
    """A control over this socket; None if no process listens there."""
    connection = connect(path)
    if connection is None:
        return None
    if connection.hello.version != VERSION:
        connection.close()
        raise Conflict(
            f"process {connection.hello.process}, which has {store_path(path)} open, is Rota "
            f"{connection.hello.version} and this is {VERSION}; start that process again"
        )
    return RemoteControl(connection, actor)


def _remote_method(name: str) -> Callable[..., Any]:
    method = getattr(Control, name)

    def call_remote(self: RemoteControl, *args: Any, **options: Any) -> Any:
        arguments = dict(inspect.signature(method).bind(self, *args, **options).arguments)
        del arguments["self"]
        return self.connection.call(name, arguments, self.actor)

    return call_remote


def _local_only(name: str) -> Callable[..., Any]:
    def refuse(self: RemoteControl, *args: Any, **options: Any) -> Any:
        raise RotaError(f"{name} cannot be asked of another process; ask it there")

    return refuse


for _name, _method in inspect.getmembers(Control, inspect.isfunction):
    if not _name.startswith("_") and _name != "as_actor":
        _make = _remote_method if _name in messages.CALLS else _local_only
        setattr(RemoteControl, _name, _make(_name))
