"""Errors as problem+json (RFC 9457): every answer that is not what was asked for is one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from rota.errors import (
    Conflict,
    Invalid,
    LockNotHeld,
    Outdated,
    RotaError,
    StorageError,
    Unavailable,
    Unknown,
)
from rota.model.redact import redact_text

MEDIA_TYPE = "application/problem+json"

# The first that fits. What is not here went wrong on our side.
_STATUS: tuple[tuple[type[RotaError], int, str], ...] = (
    (Outdated, 412, "outdated"),
    (Invalid, 422, "invalid"),
    (Unknown, 404, "unknown"),
    (Conflict, 409, "conflict"),
    (LockNotHeld, 409, "conflict"),
    (Unavailable, 503, "unavailable"),
    (StorageError, 503, "storage"),
)
RETRY_SECONDS = 1


class Refused(HTTPException):
    """A request that is answered with a problem; `code` is the word for programs."""

    def __init__(
        self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.code = code


def busy(detail: str, seconds: int = RETRY_SECONDS) -> Refused:
    return Refused(503, "busy", detail, {"Retry-After": str(seconds)})


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    errors: Sequence[Mapping[str, Any]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    told: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": redact_text(detail),
    }
    if errors:
        told["errors"] = list(errors)
    # In ASCII: a text that holds half of a character is told, too.
    body = json.dumps(told).encode()
    return Response(body, status, headers=headers, media_type=MEDIA_TYPE)


def of_error(fault: RotaError) -> Response:
    for kind, status, code in _STATUS:
        if isinstance(fault, kind):
            headers = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else None
            return problem(status, code, str(fault), headers=headers)
    return problem(500, "internal", str(fault))


def of_refusal(fault: HTTPException) -> Response:
    """Also what the framework itself refuses: no such route, a method that is not offered."""
    code = fault.code if isinstance(fault, Refused) else _CODES.get(fault.status_code, "refused")
    return problem(fault.status_code, code, str(fault.detail), headers=fault.headers)


def of_validation(errors: Sequence[Mapping[str, Any]]) -> Response:
    """What does not fit the document: each with its place, never with the value itself."""
    told = [
        {"where": ".".join(str(part) for part in one["loc"]), "message": str(one["msg"])}
        for one in errors[:MOST_ERRORS]
    ]
    first = told[0] if told else {"where": "request", "message": "does not fit"}
    detail = f"{first['where']}: {first['message']}"
    return problem(422, "invalid", detail, errors=told)


MOST_ERRORS = 20
_CODES = {
    400: "malformed", 404: "no-route", 405: "method", 413: "too-large", 415: "media-type",
    422: "invalid", 431: "too-large",
}  # fmt: skip
