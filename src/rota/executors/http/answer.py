"""What is kept of an answer: enough to see what happened, without secrets, in bounded space."""

from __future__ import annotations

import re
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from rota.executors.attempt import encode_result
from rota.executors.http.wire import Answer
from rota.model.limits import ANSWER_HEADER_LENGTH, ANSWER_KEPT_LENGTH, clip
from rota.model.redact import SHAPE_LENGTH, redact, redact_text, shorten
from rota.model.secrets import Secrets, known

HEADERS = (
    "content-type", "content-length", "etag", "last-modified", "location", "retry-after",
    "request-id", "x-request-id",
)  # fmt: skip
SAID_LENGTH = 500
LONGEST_WAIT = timedelta(days=1)
_CHARSET = re.compile(r"charset=\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)


def kept(answer: Answer, secrets: Secrets) -> str:
    """The result of a run, as JSON."""
    body, cut = _body(answer, secrets)
    headers = {
        name: shorten(answer.headers[name], ANSWER_HEADER_LENGTH, secrets)
        for name in HEADERS
        if name in answer.headers
    }
    told = {"status": answer.status, "headers": headers, "body": body}
    return encode_result({**told, "cut": True} if cut else told)


def said(answer: Answer, secrets: Secrets) -> str:
    """The beginning of the body, in a line."""
    body, _ = _body(answer, secrets)
    text = body if isinstance(body, str) else "" if body is None else _json(body)
    return clip(" ".join(text.split()), SAID_LENGTH)


def retry_after(answer: Answer) -> timedelta | None:
    """How long the server asks to wait. A date counts from the server's own clock."""
    asked = answer.headers.get("retry-after", "").strip()
    if asked.isascii() and asked.isdigit():
        return min(timedelta(seconds=int(asked[:9])), LONGEST_WAIT)
    try:
        wait = parsedate_to_datetime(asked) - parsedate_to_datetime(answer.headers.get("date", ""))
    except (TypeError, ValueError):
        return None
    return min(max(wait, timedelta(0)), LONGEST_WAIT)


def _body(answer: Answer, secrets: Secrets) -> tuple[Any, bool]:
    """What is shown of it, and whether that is not all. JSON is looked through as a whole, by the
    names in it; a part of it cannot be, and is not kept."""
    if not answer.body:
        return None, answer.cut
    kind = answer.headers.get("content-type", "").lower()
    try:
        value = redact(msgspec.json.decode(answer.body), secrets)
        text = _json(value)
        if len(text) <= ANSWER_KEPT_LENGTH:
            return value, False
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if answer.cut and "json" in kind:
            return None, True
        text = _decode(answer.body, kind)
        if answer.cut:  # perhaps inside of a secret
            text = text[: -max(secrets.longest, known().longest, SHAPE_LENGTH)]
        text = redact_text(text, secrets)
    return clip(text[:ANSWER_KEPT_LENGTH], ANSWER_KEPT_LENGTH), len(text) > ANSWER_KEPT_LENGTH


def _decode(body: bytes, kind: str) -> str:
    found = _CHARSET.search(kind)
    try:
        return body.decode(found[1] if found else "utf-8", "replace")
    except (LookupError, UnicodeError):
        return body.decode("utf-8", "replace")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
