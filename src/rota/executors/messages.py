"""Messages between a worker and its child process: one line of JSON each.

A call is sent here, never in argv or the environment, which other users can read.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.errors import Invalid
from rota.executors.file_facts import FileError, FileFacts
from rota.model.job import Job
from rota.model.outcome import Outcome

# Above every message that we send: the largest file of ctx.storage as base64, and all else that has
# a limit. A longer line is therefore not one of our messages.
LONGEST = 16 * 1024 * 1024
PIECE = 64 * 1024
# Exit code of a child whose handler closed the channel or replaced its descriptor.
CHANNEL_LOST = 70


class Message(msgspec.Struct, tag_field="is", omit_defaults=True):
    """Base of all messages."""


# From the worker


class Hello(Message, tag="hello"):
    """The first message: gives the child its worker's `sys.path` and `sys.argv`.

    `mark` precedes a log record in the child's output, so that records and printed lines keep
    their order."""

    path: list[str]
    argv: list[str]
    mark: str


class Call(Message, tag="call"):
    """Run this job once. A child gets its next call after it has answered this one."""

    number: int
    definition: Job
    version: str
    run_id: str
    attempt: int
    args: dict[str, Any]
    scheduled_at: datetime
    queue: str
    target: str
    timeout: timedelta | None
    missed_count: int
    correlation_id: str | None
    trace: str | None = None
    source: bytes | None = None


class Examine(Message, tag="examine"):
    """Import this file and report what it defines. Sent like a call, one at a time."""

    number: int
    path: str
    source: bytes


class Answer(Message, tag="answer"):
    """The answer to an Ask; `error` is an exception's type and text."""

    number: int
    value: Any = None
    error: tuple[str, str] | None = None


class Stop(Message, tag="stop"):
    """The call should end: `ctx.cancelled` becomes true."""

    call: int
    reason: str


class End(Message, tag="end"):
    """Exit: no more calls follow."""


# From the child


class Ready(Message, tag="ready"):
    """The child has started."""


class Begun(Message, tag="begun"):
    """The child has begun the call. Before that, another child may safely run it."""


class Ask(Message, tag="ask"):
    """A request of the handler's context; number 0 expects no answer."""

    number: int
    request: str
    params: dict[str, Any]


class Examined(Message, tag="examined"):
    """The facts of the file, or its error; `unfit_reason` as in Done."""

    number: int
    facts: FileFacts | FileError
    unfit_reason: str | None = None


class Done(Message, tag="done"):
    """The call has ended; without an outcome, because it was stopped.

    `unfit_reason` names what the handler left behind that rules out another call."""

    number: int
    outcome: Outcome | None = None
    unfit_reason: str | None = None


FROM_WORKER = msgspec.json.Decoder(Hello | Call | Examine | Answer | Stop | End)
FROM_CHILD = msgspec.json.Decoder(Ready | Begun | Ask | Examined | Done)
_ENCODER = msgspec.json.Encoder(enc_hook=dict)  # a spec may be any mapping


def encode(message: Message) -> bytes:
    """One line of JSON. Raises Invalid if it is longer than LONGEST."""
    line = _ENCODER.encode(message)
    if len(line) > LONGEST:
        raise Invalid(
            f"{len(line):,} bytes cannot pass at once between a child process and its worker, "
            f"{LONGEST:,} is the most; pass less at a time, or give the job isolation='thread'"
        )
    return line + b"\n"


class Lines:
    """Assembles lines from the pieces that are read."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        first, *others = piece.split(b"\n")
        self._rest.append(first)  # joined once: a long message arrives in hundreds of pieces
        self._size += len(first)
        lines = []
        if others:
            lines = [b"".join(self._rest), *others[:-1]]
            self._rest, self._size = [others[-1]], len(others[-1])
        if self._size > LONGEST:
            raise msgspec.DecodeError(f"a message of more than {LONGEST:,} bytes")
        return iter(lines)
