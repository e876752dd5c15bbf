"""A control row: a statement that somebody inserted into a table, and its answer."""

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
# What is withdrawn when the opposite is said: one schedule, by its name. PostgreSQL's functions
# know the same pattern.
_WORD: Final = re.compile(
    r"""\s*(PAUSE|RESUME)\s+SCHEDULE\s+(["']?)([A-Za-z0-9._/-]+)\2(?:[\s;]|$)""", re.I
)
UNEXPECTED = "could not be done: Rota met an error it did not expect; the log has the rest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """`role` is what the database says of who asks: admin or operator."""

    id: int
    statement: str
    requested_by: str | None
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`kept` is the statement without its secrets: the row stays for a while."""

    status: str
    kept: str
    rows: str | None = None
    more: bool = False
    error: str | None = None


def asks_for(statement: str, verb: str, schedule: str) -> bool:
    """True if this statement would pause, or resume, the schedule of this name."""
    word = _WORD.match(statement)
    return word is not None and (word[1].upper(), word[3]) == (verb, schedule)


def done(kept: str, result: Result) -> Reply:
    """The first rows of a result, as a list of objects."""
    records = result.records()[:CONTROL_ROWS]
    told = _encode(records)
    while len(told) > CONTROL_BYTES and records:
        records = records[: len(records) // 2]
        told = _encode(records)
    more = result.more or len(records) < len(result.rows)
    return Reply(status=DONE, kept=kept, rows=told.decode(), more=more)


def failed(kept: str, fault: Exception) -> Reply:
    """Only our own errors are written for who asks; any other is for who reads the log."""
    told = redact_text(str(fault)) if isinstance(fault, RotaError) else UNEXPECTED
    return Reply(status=FAILED, kept=kept, error=clip(told, ERROR_LENGTH))


_encode = msgspec.json.Encoder(enc_hook=str).encode
