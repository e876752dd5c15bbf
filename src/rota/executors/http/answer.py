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
# Those that pages are written in. Python knows others, of which some take the square of a text's
# length to read, and nothing could end that.
CHARSETS = frozenset(
    ("utf8", "ascii", "usascii", "latin1", "iso88591", "iso88592", "iso885915", "utf16", "utf16le",
     "utf16be", "windows1250", "windows1251", "windows1252", "cp1250", "cp1251", "cp1252", "koi8r",
     "shiftjis", "eucjp", "euckr", "gb2312", "gbk", "gb18030", "big5")
)  # fmt: skip
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
    kind, cut = answer.headers.get("content-type", "").lower(), False
    try:
        value = redact(msgspec.json.decode(answer.body), secrets)
        text = _json(value)
        if len(text) <= ANSWER_KEPT_LENGTH:
            return value, False
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if answer.cut and "json" in kind:
            return None, True
        slack = max(secrets.longest, known().longest, SHAPE_LENGTH)
        text, reach = _decode(answer.body, kind), ANSWER_KEPT_LENGTH + 2 * slack
        cut = answer.cut or len(text) > reach
        text = redact_text(text[:reach], secrets)
        if cut:  # perhaps inside of a secret, and half of one is not recognised
            text = text[:-slack]
    cut = cut or len(text) > ANSWER_KEPT_LENGTH
    return clip(text[:ANSWER_KEPT_LENGTH], ANSWER_KEPT_LENGTH), cut


def _decode(body: bytes, kind: str) -> str:
    """What names no charset, or one that is not taken, is read as UTF-8."""
    found = _CHARSET.search(kind)
    name = found[1] if found else ""
    taken = re.sub("[-_]", "", name) in CHARSETS
    try:
        return body.decode(name if taken else "utf-8", "replace")
    except LookupError:  # iso88591: Python knows it with its hyphens only
        return body.decode("utf-8", "replace")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
