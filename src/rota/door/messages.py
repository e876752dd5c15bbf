"""Messages of the local socket: one JSON object per line, a request and its reply.

{"call": "pause", "args": {"name": "nightly"}, "actor": {"by": "ada", "via": "cli"}}
{"ok": …}   or   {"error": "Unknown", "message": "schedule 'nightly' does not exist; …"}

A call is a method of `Control` by name and arguments, which are checked against its annotations.
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
from rota.storage.operations.audit import Actor

# A payload of the largest size and the fields beside it.
REQUEST_BYTES = 512 * 1024
# A page of the largest runs is larger; the error asks for a smaller page.
REPLY_BYTES = 64 * 1024 * 1024
QUOTED_LENGTH = 80  # of an unknown call, in the error

HELLO = "hello"
READS = (
    "now", "overview", "jobs", "job", "jobs_named", "schedules", "schedule", "schedule_name",
    "running_by_schedule", "runs", "run", "runs_beginning", "attempts", "steps", "logs", "events",
    "audit", "occurrences", "changes", "dropped", "queues", "workers", "locks", "explain", "why",
    "select", "count_runs", "doctor", "tokens", "log_tail", "counts", "problems", "timeline",
    "dead_groups", "texts", "schedule_names", "redo_notes",
)  # fmt: skip
WRITES = (
    "enqueue", "trigger", "trigger_job", "cancel", "redo", "delete", "pause_run", "resume_run",
    "put_schedule", "pause", "resume", "drop", "pause_runs", "resume_runs", "cancel_runs",
    "pause_queue", "resume_queue", "pause_dispatch", "resume_dispatch", "prune", "adopt",
    "bulk", "create_token", "revoke_token",
)  # fmt: skip
CALLS = frozenset(READS + WRITES)

MODELS = (
    Run, Schedule, Job, Retry, Signature, Parameter, Enqueued, Options, Explanation, Coming,
    Result, Column, Bulk, Finding, Token,
)  # fmt: skip

# A request must hold a valid schedule. A reply may hold a broken one, which is shown.
REQUEST_PACKING = Packing(MODELS)
REPLY_PACKING = Packing(
    MODELS, {Schedule: lambda fields: Schedule.from_unreadable_row(fields, error=fields["error"])}
)


class Request(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    call: str
    args: dict[str, Any] = {}
    actor: dict[str, str] = {}


class Hello(msgspec.Struct):
    """Version and process id of the server. Client and server must have the same version."""

    version: str
    process: int


_decode_request = msgspec.json.Decoder(Request).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def encode_request(call: str, args: Mapping[str, Any], actor: Actor) -> bytes:
    packed = {name: REQUEST_PACKING.pack(value) for name, value in args.items()}
    request = Request(call, packed, {"by": actor.by, "via": actor.via})
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


def arguments(call: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, converted to the types of its method; Invalid if they do not fit."""
    if call not in CALLS:
        known = ", ".join(sorted((*CALLS, HELLO)))
        raise Invalid(f"call {clip(call, QUOTED_LENGTH)!r} is unknown; known are {known}")
    signature, hints = _signature(call)
    try:
        signature.bind(**args)
    except TypeError as fault:
        raise Invalid(f"{call}: {fault}") from None
    converted = {}
    for name, value in args.items():
        try:
            converted[name] = msgspec.convert(REQUEST_PACKING.unpack(value), hints[name])
        except msgspec.ValidationError as fault:
            raise Invalid(f"{call}: {name}: {fault}") from None
    return converted


@cache
def _signature(call: str) -> tuple[inspect.Signature, dict[str, Any]]:
    method = getattr(Control, call)
    signature = inspect.signature(method)
    parameters = [parameter for name, parameter in signature.parameters.items() if name != "self"]
    # Control imports some of these for type checkers only, to keep the start of commands fast.
    models = {model.__name__: model for model in MODELS}
    return signature.replace(parameters=parameters), get_type_hints(method, localns=models)


def actor_of(actor: Mapping[str, str], user: str) -> Actor:
    """The actor that a request names, else the user of the peer process.

    Every client that may connect may act in any name."""
    by, via = actor.get("by") or user, actor.get("via") or "socket"
    return Actor(by=clip(by, KEY_LENGTH), via=clip(via, KEY_LENGTH))


def encode_reply(value: Any) -> bytes:
    line = _encode({"ok": REPLY_PACKING.pack(value)}) + b"\n"
    if len(line) > REPLY_BYTES:
        raise Invalid(
            f"the answer takes {len(line):,} bytes; the limit is {REPLY_BYTES:,}: "
            "ask for fewer with --limit"
        )
    return line


def encode_error(fault: Exception) -> bytes:
    error = {"error": _public(fault).__name__, "message": redact_text(str(fault))}
    if getattr(fault, "maybe_committed", False):
        error["maybe_committed"] = "yes"
    return _encode(error) + b"\n"


def decode_reply(line: bytes) -> Any:
    """The return value of the call, or its exception raised again."""
    reply = _decode(line)
    if "error" not in reply:
        return REPLY_PACKING.unpack(reply["ok"])
    fault: RotaError = getattr(errors, reply["error"], RotaError)(reply["message"])
    if "maybe_committed" in reply and isinstance(fault, Unavailable):
        fault.maybe_committed = True
    raise fault


def _public(fault: Exception) -> type[Exception]:
    """The class of `rota.errors` for an exception; RotaError if it has none of its own."""
    return next(
        (kind for kind in type(fault).__mro__ if vars(errors).get(kind.__name__) is kind), RotaError
    )
