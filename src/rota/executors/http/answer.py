"""The stored part of a response: bounded, and without secrets."""

from __future__ import annotations

import re
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from rota.executors.attempt import encode_result
from rota.executors.http.wire import Response
from rota.model.limits import ANSWER_HEADER_LENGTH, ANSWER_KEPT_LENGTH, clip
from rota.model.redact import SHAPE_LENGTH, redact, redact_text, shorten
from rota.model.secrets import Secrets, known

HEADERS = (
    "content-type", "content-length", "etag", "last-modified", "location", "retry-after",
    "request-id", "x-request-id",
)  # fmt: skip
EXCERPT_LENGTH = 500
LONGEST_WAIT = timedelta(days=1)
# Charsets in common use. Python has others; decoding some of them takes quadratic time, which
# nothing could interrupt.
CHARSETS = frozenset(
    ("utf8", "ascii", "usascii", "latin1", "iso88591", "iso88592", "iso885915", "utf16", "utf16le",
     "utf16be", "windows1250", "windows1251", "windows1252", "cp1250", "cp1251", "cp1252", "koi8r",
     "shiftjis", "eucjp", "euckr", "gb2312", "gbk", "gb18030", "big5")
)  # fmt: skip
_CHARSET = re.compile(r"charset=\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)


def result_of(response: Response, secrets: Secrets) -> str:
    """The result of a run, as JSON."""
    body, cut = _body(response, secrets)
    headers = {
        name: shorten(response.headers[name], ANSWER_HEADER_LENGTH, secrets)
        for name in HEADERS
        if name in response.headers
    }
    result = {"status": response.status, "headers": headers, "body": body}
    return encode_result({**result, "cut": True} if cut else result)


def excerpt(response: Response, secrets: Secrets) -> str:
    """The beginning of the body, on a single line."""
    body, _ = _body(response, secrets)
    text = body if isinstance(body, str) else "" if body is None else _json(body)
    return clip(" ".join(text.split()), EXCERPT_LENGTH)


def retry_after(response: Response) -> timedelta | None:
    """The wait that Retry-After asks for. A date is relative to the Date header."""
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(timedelta(seconds=int(value[:9])), LONGEST_WAIT)
    date = response.headers.get("date", "")
    try:
        wait = parsedate_to_datetime(value) - parsedate_to_datetime(date)
    except (TypeError, ValueError):
        return None
    return min(max(wait, timedelta(0)), LONGEST_WAIT)


def _body(response: Response, secrets: Secrets) -> tuple[Any, bool]:
    """The redacted body to store, and whether it was cut.

    JSON is redacted by the names in it, which needs the whole text: cut JSON is not stored."""
    if not response.body:
        return None, response.cut
    kind, cut = response.headers.get("content-type", "").lower(), False
    try:
        value = redact(msgspec.json.decode(response.body), secrets)
        text = _json(value)
        if len(text) <= ANSWER_KEPT_LENGTH:
            return value, False
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if response.cut and "json" in kind:
            return None, True
        slack = max(secrets.longest, known().longest, SHAPE_LENGTH)
        text, reach = _decode(response.body, kind), ANSWER_KEPT_LENGTH + 2 * slack
        cut = response.cut or len(text) > reach
        text = redact_text(text[:reach], secrets)
        if cut:  # perhaps inside a secret, and part of a secret is not recognised
            text = text[:-slack]
    cut = cut or len(text) > ANSWER_KEPT_LENGTH
    return clip(text[:ANSWER_KEPT_LENGTH], ANSWER_KEPT_LENGTH), cut


def _decode(body: bytes, kind: str) -> str:
    """Decode a body by its charset; UTF-8 if it names none, or an unsupported one."""
    match = _CHARSET.search(kind)
    name = match[1] if match else ""
    supported = re.sub("[-_]", "", name) in CHARSETS
    try:
        return body.decode(name if supported else "utf-8", "replace")
    except LookupError:  # such as iso88591, which Python knows only with hyphens
        return body.decode("utf-8", "replace")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
