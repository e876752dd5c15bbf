"""The one place where secrets are taken out of what people see, before anything is cut short.

By name: what stands under a name like `password` in arguments, results and text. By shape: the
password of a URL. By value: what `model.secrets` knows. Whatever a run tells (errors, log lines,
results) is redacted before it is stored, because the views show what the rows hold. Arguments,
specs of jobs and the texts of SQL are stored as they are, because runs need them; they are in no
view, and redacted wherever they are shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rota.model.limits import clip
from rota.model.run import Run
from rota.model.secrets import HIDDEN, NO_SECRETS, Secrets, is_worth_hiding, known

SHAPE_LENGTH = 4_096  # of what is found by its shape
CREDENTIAL = re.compile(r"(?:Bearer|Basic|Token|Digest|ApiKey)\s+(\S+)", re.IGNORECASE)

_SECRET_NAME = re.compile(
    r"password|passwd|passphrase|pass$|[-_]pwd$|^pwd$|secret|token|api[-_]?key|access[-_]?key"
    r"|private[-_]?key|credential|authorization|cookie|session[-_]?id|^dsn$|connstr"
    r"|connection[-_]?string",
    re.IGNORECASE,
)
_NOT_SECRET = frozenset({"PWD", "OLDPWD"})  # of the environment: folders
# It begins with what is rare: a text of a hundred megabytes is looked through in no time, and
# meanwhile no thread of this process could do anything else.
_URL_PASSWORD = re.compile(
    r"(?P<head>://(?<=[A-Za-z0-9+.-]://)[^\s/:@]*:)(?P<password>[^\s/]+)(?=@)"
)

# A name that means a secret, followed by its value: `password=x`, `"token": "x"`, `?api_key=x`,
# `Authorization: x`, and `Key (password)=(x)` of PostgreSQL.
_WORDS = (
    "passw", "passphrase", "pwd", "secret", "token", "key", "credential", "authoriz", "cookie",
    "session", "bearer",
)  # fmt: skip
_MORE_WORDS = ("pass", "dsn", "connstr", "connection")  # of names, where nothing else is one
_VALUE = (
    r"\"(?:[^\"\\\n]|\\.){0,4096}\"|'(?:[^'\\\n]|\\.){0,4096}'|\([^)\n]{0,4096}\)"
    r"|[^\s\"'&;,)}\]]{1,4096}"
)
_PAIR = re.compile(
    r"(?P<name>password|passwd|passphrase|pwd|secret|token|api[-_]?key|access[-_]?key"
    r"|private[-_]?key|credential|session[-_]?id)[\w.-]{0,32}"
    rf"(?P<close>\\?[\"')]?)(?P<sep>\s{{0,3}}[:=]\s{{0,3}})(?P<value>{_VALUE})",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"(?P<head>(?:authorization|cookie)[\w-]{0,16}\\?[\"']?\s{0,3}[:=,]\s{0,3}\\?[\"']?)"
    r"(?P<value>[^\r\n\"']{1,4096})",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(?P<head>\bBearer\s+)(?P<value>[A-Za-z0-9._~+/=-]{8,4096})", re.IGNORECASE)
# `def connect(password: str)` in the line of a traceback.
_ANNOTATIONS = frozenset({"str", "bytes", "int", "object", "None", "Any", "SecretStr"})


def is_secret_name(name: str) -> bool:
    """True if a value of that name must not be seen."""
    return name not in _NOT_SECRET and _SECRET_NAME.search(name) is not None


def redact(value: Any, secrets: Secrets = NO_SECRETS) -> Any:
    """A copy of a JSON value without what its names, shape or value mark as secret."""
    match value:
        case dict():
            return {
                redact_text(str(name), secrets): HIDDEN
                if is_secret_name(str(name))
                else redact(inner, secrets)
                for name, inner in value.items()
            }
        case list() | tuple():
            return [redact(inner, secrets) for inner in value]
        case str():
            return redact_text(value, secrets)
        case _:
            return value


def redact_text(text: str, secrets: Secrets = NO_SECRETS) -> str:
    """Text without the secrets that this process knows, those given, and what looks like one."""
    text = known().hide(text)
    if secrets:
        text = secrets.hide(text)
    # Most texts are the short cells of an answer, and have nothing of what a pair needs.
    if "=" in text or ":" in text or "," in text or "earer" in text or "EARER" in text:
        text = _without_shapes(text)
    return text


def _without_shapes(text: str) -> str:
    if "://" in text:
        text = _URL_PASSWORD.sub(lambda found: found["head"] + HIDDEN, text)
    if _has_word(text):
        text = _HEADER.sub(lambda found: found["head"] + HIDDEN, text)
        text = _BEARER.sub(lambda found: found["head"] + HIDDEN, text)
        text = _PAIR.sub(_without_value, text)
    return text


def _has_word(text: str) -> bool:
    """A search for each is many times faster than an expression for all of them."""
    lower = text.lower()
    for word in _WORDS:  # noqa: SIM110  # a generator would cost more than the search
        if word in lower:
            return True
    return False


def shorten(text: str, limit: int, secrets: Secrets = NO_SECRETS) -> str:
    """Redacted, then cut to `limit` characters. Of a long text only the ends are looked at, and
    a secret that the cut would halve is not shown by half."""
    if len(text) <= limit:
        return clip(redact_text(text, secrets), limit)
    slack = max(secrets.longest, known().longest, SHAPE_LENGTH)
    if len(text) <= limit + 2 * slack:
        return clip(redact_text(text, secrets), limit)
    reach = limit // 2 + slack
    head, tail = redact_text(text[:reach], secrets), redact_text(text[-reach:], secrets)
    note = f"… [{len(text) - limit:,} characters cut] …"
    half = max(0, limit - len(note)) // 2
    # Where the middle was taken out, the half of a secret may stand.
    return clip(head[:-slack][:half], limit) + note + clip(tail[slack:][-half:], limit)


def redact_json(text: str, secrets: Secrets = NO_SECRETS) -> str:
    """JSON text that may be shown; other text as text."""
    if not _has_word(text) and not any(word in text.lower() for word in _MORE_WORDS):
        return redact_text(text, secrets)
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        shown = redact(value, secrets)
        if shown == value:
            return text
        return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    return redact_text(text, secrets)


def _without_value(found: re.Match[str]) -> str:
    value, name, close = found["value"], found["name"].lower(), found["close"]
    password = name in ("password", "passwd", "passphrase", "pwd")
    bare = value[0] not in "\"'("
    if value.startswith("[redacted") or value in _ANNOTATIONS:
        return found[0]
    if not close and bare and found["sep"] != "=" and not password:
        return found[0]  # `token = make()` in the line of a traceback, `token: it expired`
    if close == ")" and value[0] != "(":
        return found[0]
    quote = "" if bare else value[0]
    return found[0][: found.start("value") - found.start()] + f"{quote}{HIDDEN}{_CLOSING[quote]}"


_CLOSING = {"": "", '"': '"', "'": "'", "(": ")"}


# Which values are secret


def secret_values(value: Any, *, named: bool = False) -> Iterator[str]:
    """Every text in a JSON value that stands, at any depth, under a secret name; and the password
    of every URL in it."""
    match value:
        case Mapping():
            for name, inner in value.items():
                yield from secret_values(inner, named=named or is_secret_name(str(name)))
        case list() | tuple():
            for inner in value:
                yield from secret_values(inner, named=named)
        case str():
            if named:
                yield value
                yield from (found[1] for found in CREDENTIAL.finditer(value))
            yield from passwords_in(value)
        case int() | float() if named and not isinstance(value, bool):
            yield str(value)


def passwords_in(text: str) -> Iterator[str]:
    """The passwords of URLs and of `password=` in a connection string, as they are written and as
    they are meant."""
    if "://" in text:
        from urllib.parse import unquote

        for found in _URL_PASSWORD.finditer(text):
            yield found["password"]
            yield unquote(found["password"])
    if "=" in text:
        for found in _PAIR.finditer(text):
            if found["sep"].strip() == "=":
                yield found["value"].strip("\"'").replace("\\'", "'")


def secrets_of(*values: Any) -> Secrets:
    """What must not be seen of these values, wherever it turns up again."""
    found = {text for value in values for text in secret_values(value) if is_worth_hiding(text)}
    return Secrets(found) if found else NO_SECRETS


# Rows


def redact_columns(row: dict[str, Any], *columns: str) -> dict[str, Any]:
    """A row whose columns, JSON or plain text, may be shown."""
    shown = {name: redact_json(row[name]) for name in columns if row[name] is not None}
    return {**row, **shown}


def redact_args(run: Run) -> Run:
    """A run as it may be shown."""
    return replace(
        run,
        args=json.dumps(redact(json.loads(run.args))),
        error=None if run.error is None else redact_text(run.error),
        reason=None if run.reason is None else redact_text(run.reason),
        result=None if run.result is None else redact_json(run.result),
    )
