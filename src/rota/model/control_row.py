"""A control row: a statement that a client inserted into a table, and its answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from rota.errors import RotaError
from rota.model.limits import CONTROL_BYTES, CONTROL_ROWS, ERROR_LENGTH, clip
from rota.model.redact import redact_text

if TYPE_CHECKING:
    from rota.model.result import Result

DONE, FAILED = "done", "failed"
PAUSE, RESUME = "PAUSE", "RESUME"
# The opposite request supersedes such a statement: one schedule, by its name. PostgreSQL's
# functions use the same pattern.
_PAUSE_OR_RESUME: Final = re.compile(
    r"""\s*(PAUSE|RESUME)\s+SCHEDULE\s+(["']?)([A-Za-z0-9._/-]+)\2(?:[\s;]|$)""", re.I
)
UNEXPECTED = "could not be done: Rota met an error it did not expect; the log has the rest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRequest:
    """`role` is the role that the database gives the requester: admin or operator."""

    id: int
    statement: str
    requested_by: str | None
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlReply:
    """`redacted_text` is the statement without its secrets: the row is stored for a while."""

    status: str
    redacted_text: str
    rows: str | None = None
    more: bool = False
    error: str | None = None


def matches_request(statement: str, verb: str, schedule: str) -> bool:
    """True if this statement would pause (or resume, by `verb`) the schedule of this name."""
    match = _PAUSE_OR_RESUME.match(statement)
    return match is not None and (match[1].upper(), match[3]) == (verb, schedule)


def done(redacted_text: str, result: Result) -> ControlReply:
    """The reply with the first rows of a result, as a list of objects."""
    records = result.records()[:CONTROL_ROWS]
    encoded = _encode(records)
    while len(encoded) > CONTROL_BYTES and records:
        records = records[: len(records) // 2]
        encoded = _encode(records)
    more = result.more or len(records) < len(result.rows)
    return ControlReply(status=DONE, redacted_text=redacted_text, rows=encoded.decode(), more=more)


def failed(redacted_text: str, fault: Exception) -> ControlReply:
    """The reply for an error. Only RotaError has a message for users; others are logged."""
    message = redact_text(str(fault)) if isinstance(fault, RotaError) else UNEXPECTED
    return ControlReply(
        status=FAILED, redacted_text=redacted_text, error=clip(message, ERROR_LENGTH)
    )


_encode = msgspec.json.Encoder(enc_hook=str).encode
