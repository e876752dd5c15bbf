"""What a worker and its child say to each other: lines of JSON, one message each.

A call travels here, never in argv or the environment, where others could read it.
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

# The largest file that ctx.storage takes, as base64, and all else that has a limit of its own stay
# below this. More is not sent, so what comes with more is not one of our messages.
LONGEST = 16 * 1024 * 1024
PIECE = 64 * 1024
# The exit code that says: the handler has closed the channel, or put something else in its place.
CHANNEL_LOST = 70


class Message(msgspec.Struct, tag_field="is", omit_defaults=True):
    """Base of all messages."""


# From the worker


class Hello(Message, tag="hello"):
    """First: what makes the child's interpreter like its worker's. `mark` begins a log record in
    the child's output, where it keeps its place among the lines that the handler prints."""

    path: list[str]
    argv: list[str]
    mark: str


class Call(Message, tag="call"):
    """Run this job once. One at a time."""

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
    """Import this file and say what it is. One at a time, as calls are."""

    number: int
    path: str
    source: bytes


class Answer(Message, tag="answer"):
    """To an Ask; `error` is an exception's type and text."""

    number: int
    value: Any = None
    error: tuple[str, str] | None = None


class Stop(Message, tag="stop"):
    """The call should end: `ctx.cancelled` becomes true."""

    call: int
    reason: str


class End(Message, tag="end"):
    """Exit, there will be no more calls."""


# From the child


class Ready(Message, tag="ready"):
    """The child has started."""


class Begun(Message, tag="begun"):
    """A call was taken up; before that, it is safe to give it to another child."""


class Ask(Message, tag="ask"):
    """A request of the handler's context; number 0 wants no answer."""

    number: int
    request: str
    params: dict[str, Any]


class Examined(Message, tag="examined"):
    """What was found; `strange` as below."""

    number: int
    found: FileFacts | FileError
    strange: str | None = None


class Done(Message, tag="done"):
    """The call has ended. No outcome: because it was asked to. `strange` says what the handler
    left behind that makes this child unfit for another call."""

    number: int
    outcome: Outcome | None = None
    strange: str | None = None


FROM_WORKER = msgspec.json.Decoder(Hello | Call | Examine | Answer | Stop | End)
FROM_CHILD = msgspec.json.Decoder(Ready | Begun | Ask | Examined | Done)
_ENCODER = msgspec.json.Encoder(enc_hook=dict)  # a spec may be any mapping


def encode(message: Message) -> bytes:
    """Invalid if it would be longer than the other side hears."""
    line = _ENCODER.encode(message)
    if len(line) > LONGEST:
        raise Invalid(
            f"{len(line):,} bytes cannot pass at once between a child process and its worker, "
            f"{LONGEST:,} is the most; pass less at a time, or give the job isolation='thread'"
        )
    return line + b"\n"


class Lines:
    """Whole lines out of pieces."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        first, *others = piece.split(b"\n")
        self._rest.append(first)  # joined once: a long message comes in hundreds of pieces
        self._size += len(first)
        lines = []
        if others:
            lines = [b"".join(self._rest), *others[:-1]]
            self._rest, self._size = [others[-1]], len(others[-1])
        if self._size > LONGEST:
            raise msgspec.DecodeError(f"a message of more than {LONGEST:,} bytes")
        return iter(lines)
