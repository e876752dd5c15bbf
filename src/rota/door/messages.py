"""What goes through the door: one JSON object per line, a request and its answer.

{"call": "pause", "args": {"name": "nightly"}, "actor": {"by": "ada", "via": "cli"}}
{"ok": …}   or   {"error": "Unknown", "message": "schedule 'nightly' does not exist; …"}

A call is a method of `Control` by its own name and arguments, checked against its annotations.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, get_type_hints

import msgspec

from rota import errors
from rota.errors import Invalid, RotaError, Unavailable
from rota.flow.bulk import Bulk
from rota.flow.control import Control
from rota.flow.enqueue import Options
from rota.flow.explain import Coming, Explanation
from rota.flow.findings import Finding
from rota.model.job import Job
from rota.model.limits import KEY_LENGTH, clip
from rota.model.packing import Packing
from rota.model.redact import redact_text
from rota.model.result import Column, Result
from rota.model.retry import Retry
from rota.model.run import Enqueued, Run
from rota.model.schedule import Schedule
from rota.model.signature import Parameter, Signature
from rota.model.token import Token
from rota.storage.protocol import Actor

# A payload of the largest size and what is said beside it.
REQUEST_BYTES = 512 * 1024
# A page of the largest runs is more; who asks for it is told to ask for fewer.
ANSWER_BYTES = 64 * 1024 * 1024
SHOWN_LENGTH = 80  # of what nobody knows

HELLO = "hello"
LOOKS = (
    "now", "overview", "jobs", "job", "jobs_named", "schedules", "schedule", "schedule_name",
    "running_by_schedule", "runs", "run", "runs_beginning", "attempts", "steps", "logs", "events",
    "audit", "occurrences", "changes", "dropped", "queues", "workers", "locks", "explain", "why",
    "select", "count_runs", "doctor", "tokens", "log_tail", "counts", "problems", "timeline",
    "dead_groups", "texts", "schedule_names", "redo_notes",
)  # fmt: skip
ACTS = (
    "enqueue", "trigger", "trigger_job", "cancel", "redo", "delete", "pause_run", "resume_run",
    "put_schedule", "pause", "resume", "drop", "pause_runs", "resume_runs", "cancel_runs",
    "pause_queue", "resume_queue", "pause_dispatch", "resume_dispatch", "prune", "adopt",
    "bulk", "create_token", "revoke_token",
)  # fmt: skip
CALLS = frozenset(LOOKS + ACTS)

NOUNS = (
    Run, Schedule, Job, Retry, Signature, Parameter, Enqueued, Options, Explanation, Coming,
    Result, Column, Bulk, Finding, Token,
)  # fmt: skip

# Who asks must give a good schedule. Who answers may have a broken one, and shows it.
ASKED = Packing(NOUNS)
ANSWERED = Packing(
    NOUNS, {Schedule: lambda fields: Schedule.from_unreadable_row(fields, error=fields["error"])}
)


class Request(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    call: str
    args: dict[str, Any] = {}
    actor: dict[str, str] = {}


class Hello(msgspec.Struct):
    """Who is behind the door. Another version would misunderstand, and be misunderstood."""

    version: str
    process: int


_decode_request = msgspec.json.Decoder(Request).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def encode_request(call: str, args: Mapping[str, Any], actor: Actor) -> bytes:
    told = {name: ASKED.pack(value) for name, value in args.items()}
    request = Request(call, told, {"by": actor.by, "via": actor.via})
    try:
        line = _encode(request) + b"\n"
    except (TypeError, ValueError, UnicodeEncodeError) as fault:
        raise Invalid(f"{call}: this cannot be sent ({fault})") from None
    if len(line) > REQUEST_BYTES:
        raise Invalid(
            f"{call}: the request takes {len(line):,} bytes; the limit is {REQUEST_BYTES:,}"
        )
    return line


def decode_request(line: bytes) -> Request:
    try:
        return _decode_request(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as fault:
        raise Invalid(
            f"this line is no request ({fault}); "
            'send {"call": "runs", "args": {"limit": 5}} and a line end'
        ) from None


def arguments(call: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call as its method wants them; Invalid where they do not fit."""
    if call not in CALLS:
        known = ", ".join(sorted((*CALLS, HELLO)))
        raise Invalid(f"call {clip(call, SHOWN_LENGTH)!r} is unknown; known are {known}")
    signature, hints = _signature(call)
    try:
        signature.bind(**told)
    except TypeError as fault:
        raise Invalid(f"{call}: {fault}") from None
    made = {}
    for name, value in told.items():
        try:
            made[name] = msgspec.convert(ASKED.unpack(value), hints[name])
        except msgspec.ValidationError as fault:
            raise Invalid(f"{call}: {name}: {fault}") from None
    return made


@cache
def _signature(call: str) -> tuple[inspect.Signature, dict[str, Any]]:
    method = getattr(Control, call)
    found = inspect.signature(method)
    own = [one for name, one in found.parameters.items() if name != "self"]
    # Control knows some nouns by name only: to load them all is not for a command that lists.
    nouns = {noun.__name__: noun for noun in NOUNS}
    return found.replace(parameters=own), get_type_hints(method, localns=nouns)


def actor_of(told: Mapping[str, str], otherwise: str) -> Actor:
    """Whoever may open the door may say in whose name; else it is the user on the other side."""
    by, via = told.get("by") or otherwise, told.get("via") or "socket"
    return Actor(by=clip(by, KEY_LENGTH), via=clip(via, KEY_LENGTH))


def encode_answer(value: Any) -> bytes:
    line = _encode({"ok": ANSWERED.pack(value)}) + b"\n"
    if len(line) > ANSWER_BYTES:
        raise Invalid(
            f"the answer takes {len(line):,} bytes; the limit is {ANSWER_BYTES:,}: "
            "ask for fewer with --limit"
        )
    return line


def encode_error(fault: Exception) -> bytes:
    told = {"error": _public(fault).__name__, "message": redact_text(str(fault))}
    if getattr(fault, "maybe_committed", False):
        told["maybe_committed"] = "yes"
    return _encode(told) + b"\n"


def decode_answer(line: bytes) -> Any:
    """What the call returned; raises what it raised."""
    told = _decode(line)
    if "error" not in told:
        return ANSWERED.unpack(told["ok"])
    fault: RotaError = getattr(errors, told["error"], RotaError)(told["message"])
    if "maybe_committed" in told and isinstance(fault, Unavailable):
        fault.maybe_committed = True
    raise fault


def _public(fault: Exception) -> type[Exception]:
    """The error of `rota.errors` that it is; its users know no others."""
    return next(
        (kind for kind in type(fault).__mro__ if vars(errors).get(kind.__name__) is kind), RotaError
    )
