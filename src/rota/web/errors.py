"""Errors as problem+json (RFC 9457): every answer that is not what was asked for is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from msgspec import UNSET
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
from rota.web.codec import ascii_json
from rota.web.models import Problem

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
# What Starlette itself refuses.
_CODES = {404: "no-route", 405: "method"}
RETRY_SECONDS = 1
MOST_ERRORS = 20


class Refused(HTTPException):
    """A request that is answered with a problem; `code` is the word for programs."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        *,
        errors: Sequence[dict[str, str]] = (),
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.code, self.errors = code, errors


def busy(detail: str, seconds: int = RETRY_SECONDS) -> Refused:
    return Refused(503, "busy", detail, {"Retry-After": str(seconds)})


def wrong(errors: Sequence[dict[str, str]]) -> Refused:
    """Fields that do not fit the document: each with its place, never with its value."""
    first = errors[0]
    detail = f"{first['where']}: {first['message']}"
    return Refused(422, "invalid", detail, errors=errors[:MOST_ERRORS])


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    errors: Sequence[dict[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    body = Problem(
        type="about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        code=code,
        detail=redact_text(detail),
        errors=list(errors) or UNSET,
    )
    return Response(ascii_json(body), status, headers=headers, media_type=MEDIA_TYPE)


def of_error(fault: RotaError) -> Response:
    for kind, status, code in _STATUS:
        if isinstance(fault, kind):
            headers = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else None
            return problem(status, code, str(fault), headers=headers)
    return problem(500, "internal", str(fault))


def of_refusal(fault: HTTPException) -> Response:
    if isinstance(fault, Refused):
        code, errors = fault.code, fault.errors
    else:
        code, errors = _CODES.get(fault.status_code, "refused"), ()
    detail, headers = str(fault.detail), fault.headers
    return problem(fault.status_code, code, detail, errors=errors, headers=headers)
