"""Ask the process that has a DuckDB store: the same calls, answers and errors as `Control` itself.

Nothing here needs DuckDB, so that a command is as quick as on any store.
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
from rota.door.address import connect, peer, store_of
from rota.door.messages import HELLO, LOOKS, Hello
from rota.errors import Conflict, RotaError, Unavailable
from rota.flow.control import Control
from rota.storage.protocol import Actor
from rota.version import VERSION

# A process that lives says so at once, unless the machine is very busy.
HELLO_SECONDS = 5.0
ANSWER_SECONDS = 120.0

NOBODY = Actor(by="", via="")


class Line:
    """A connection to the process behind a door."""

    def __init__(self, place: Path, sock: socket.socket) -> None:
        self._place, self._socket = place, sock
        self._answers = sock.makefile("rb")
        self.hello = Hello("", 0)

    def greet(self) -> bool:
        """False if nobody answers."""
        try:
            self.hello = msgspec.convert(self.ask(HELLO, {}, NOBODY), Hello)
        except Unavailable:
            return False
        except msgspec.ValidationError:
            raise Conflict(f"{self._place} is not the door of a Rota process") from None
        self._socket.settimeout(ANSWER_SECONDS)
        return True

    def ask(self, call: str, args: Mapping[str, Any], actor: Actor) -> Any:
        line = messages.encode_request(call, args, actor)
        try:
            self._socket.sendall(line)
            answer = self._answers.readline(messages.ANSWER_BYTES + 1)
        except TimeoutError:
            raise self._lost(
                call, f"did not answer within {self._socket.gettimeout():g} s"
            ) from None
        except OSError as fault:
            raise self._lost(call, f"broke off ({fault.strerror or fault})") from None
        if not answer.endswith(b"\n"):
            raise self._lost(call, "stopped before it answered")
        try:
            return messages.decode_answer(answer)
        except (msgspec.MsgspecError, KeyError, TypeError, AttributeError):
            raise Conflict(f"{self._place} is not the door of a Rota process") from None

    def _lost(self, call: str, what: str) -> Unavailable:
        who = f"process {self.hello.process}" if self.hello.process else "the process"
        told = f"{who}, which has {store_of(self._place)} open, {what}"
        self.close()  # what comes after all would be taken for the answer to the next call
        if call in (*LOOKS, HELLO):
            return Unavailable(f"{told}; ask again")
        fault = Unavailable(
            f"{told}: whether it did it ({call}) is not known; look before you try again"
        )
        fault.maybe_committed = True
        return fault

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


def knock(place: Path) -> Line | None:
    """The process behind this door; None if there is none."""
    try:
        sock = connect(place, HELLO_SECONDS)
    except PermissionError:
        raise Conflict(
            f"{place} may be used by its owner only; run this as the user of that process"
        ) from None
    if sock is None:
        return None
    line = Line(place, sock)
    try:
        _check_owner(place, sock)
        if line.greet():
            return line
    except BaseException:
        line.close()
        raise
    line.close()
    return None


def _check_owner(place: Path, sock: socket.socket) -> None:
    """Whoever may write to the folder could put a socket there, and hear what we say."""
    found = peer(sock)
    if found is None:
        return
    owners = {0, os.geteuid(), os.stat(store_of(place)).st_uid}
    if found[1] not in owners:
        raise Conflict(
            f"{place} belongs to process {found[0]} of another user (id {found[1]}), and so it is "
            "not asked; remove it, or run this as that user"
        )


class RemoteControl(Control):
    """A control whose store is in another process."""

    def __init__(self, line: Line, actor: Actor) -> None:
        self.line, self.actor = line, actor

    @property
    def dialect(self) -> str:
        return "duckdb"  # no other store has a door

    def close(self) -> None:
        self.line.close()

    def as_actor(self, actor: Actor) -> Control:
        return RemoteControl(self.line, actor)


def remote_control(place: Path, actor: Actor) -> RemoteControl | None:
    """None if no process answers at this door."""
    line = knock(place)
    if line is None:
        return None
    if line.hello.version != VERSION:
        line.close()
        raise Conflict(
            f"process {line.hello.process}, which has {store_of(place)} open, is Rota "
            f"{line.hello.version} and this is {VERSION}; start that process again"
        )
    return RemoteControl(line, actor)


def _asking(call: str) -> Callable[..., Any]:
    method = getattr(Control, call)

    def ask(self: RemoteControl, *args: Any, **options: Any) -> Any:
        told = dict(inspect.signature(method).bind(self, *args, **options).arguments)
        del told["self"]
        return self.line.ask(call, told, self.actor)

    return ask


def _elsewhere(call: str) -> Callable[..., Any]:
    def refuse(self: RemoteControl, *args: Any, **options: Any) -> Any:
        raise RotaError(f"{call} cannot be asked of another process; ask it there")

    return refuse


for _name, _method in inspect.getmembers(Control, inspect.isfunction):
    if not _name.startswith("_") and _name != "as_actor":
        _make = _asking if _name in messages.CALLS else _elsewhere
        setattr(RemoteControl, _name, _make(_name))
