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

from rota.errors import Invalid
from rota.model.limits import clip
from rota.model.run import Run
from rota.model.schedule import Schedule
from rota.model.secrets import HIDDEN, NO_SECRETS, Secrets, is_worth_hiding, known

SHAPE_LENGTH = 4_096  # of what is found by its shape
CREDENTIAL = re.compile(r"(?:Bearer|Basic|Token|Digest|ApiKey)\s+(\S+)", re.IGNORECASE)

# Names that mean a secret, in JSON and in text alike: those that may be a part of a longer name,
# and those that end one (`passed` and `dsn_count` are none).
_PART = (
    r"password|passwd|passphrase|pwd|secret|token|api[-_]?key|access[-_]?key|private[-_]?key"
    r"|credential|authorization|cookie|session[-_]?id|connstr|connection[-_]?string"
)
_END = r"(?<!com)(?<!by)(?<!tres)(?<!over)(?<!under)(?<!sur)pass|(?<![a-z0-9])dsn"
# Each of these names holds one of these words.
_WORDS = (
    "pass", "pwd", "secret", "token", "key", "credential", "authoriz", "cookie", "session", "dsn",
    "connstr", "connection", "bearer",
)  # fmt: skip
_SECRET_NAME = re.compile(rf"{_PART}|(?:{_END})$", re.IGNORECASE)
_NOT_SECRET = frozenset({"PWD", "OLDPWD"})  # of the environment: folders
# It begins with what is rare: a text of a hundred megabytes is looked through in no time, and
# meanwhile no thread of this process could do anything else.
_URL_USER = re.compile(r"://(?<=[A-Za-z0-9+.-]://)[^\s/:@\"'<>?#]*")
# Of these all goes that stands between the user and the last @: where a password ends is in doubt.
# In `http://host:80/x?mail=a@b` and `git+ssh://git@host/x@v1` the last @ means something else.
_DATABASE = re.compile(
    r"(?:postgres(?:ql)?|mysql|mariadb|mssql|oracle|mongodb|rediss?|valkeys?|amqps?|clickhouse"
    r"|snowflake|cockroachdb|redshift)(?:\+[A-Za-z0-9_.+-]{1,32})?$",
    re.IGNORECASE,
)
_SCHEME_LENGTH = 48
_PORT = re.compile(r"\d{1,5}(?:[/?#]|$)")
_URL_END = re.compile(r"\s|://")
_QUOTE = re.compile(r"[\"'<>]")

# A name that means a secret, followed by its value: `password=x`, `"token": "x"`, `?api_key=x`,
# `Authorization: x`, and `Key (password)=(x)` of PostgreSQL. What can fail far from its beginning
# stops at the sign it began with, so that no part of a text is looked through again and again.
_VALUE = (
    r"\"(?:[^\"\\\n]|\\.|\"\"){0,4096}\"|'(?:[^'\\\n]|\\.|''){0,4096}'|\([^()\n]{0,4096}\)"
    r"|\\[\"'][^\"'\\\n]{0,4096}|[\"']?[^\s\"'&;,)}\]]{1,4096}"
)
_PAIR = re.compile(
    rf"(?P<name>(?:{_PART})[\w.-]{{0,32}}|(?:{_END}))"
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
        text = _without_url_passwords(text)
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


def _without_url_passwords(text: str) -> str:
    pieces, done = [], 0
    for start, stop in _url_passwords(text):
        pieces += [text[done:start], HIDDEN]
        done = stop
    return "".join([*pieces, text[done:]]) if pieces else text


def _url_passwords(text: str) -> Iterator[tuple[int, int]]:
    """Where they stand: from the user up to the last @ before the next URL, or before the quote
    that ends this one. A password should hold no @ and no /, but it may."""
    for head in _URL_USER.finditer(text):
        start = head.end()
        ended = _URL_END.search(text, start)
        end = ended.start() if ended else len(text)
        sign = text[start : start + 1]
        slash = text.find("/", start, end)
        at = text.rfind("@", start, end if slash < 0 else slash)
        if sign == ":":
            start += 1
        before = text[max(0, head.start() - _SCHEME_LENGTH) : head.start()]
        if _DATABASE.search(before) or (
            sign == ":" and slash >= 0 and not _PORT.match(text, start, end)
        ):
            quote = _QUOTE.search(text, start, end)
            at = max(at, text.rfind("@", start, quote.start() if quote else end))
        if at > start:
            yield start, at


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
    if not _has_word(text):
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
    password = "pwd" in name or "passw" in name or "passph" in name or _is_part(found)
    opened = value[: 2 if value[0] == "\\" else 1] if value[0] in "\"'(\\" else ""
    if value.startswith("[redacted", len(opened)) or value in _ANNOTATIONS:
        return found[0]
    if not close and not opened and found["sep"] != "=" and not password:
        return found[0]  # `token = make()` in the line of a traceback, `token: it expired`
    if close == ")" and opened != "(":
        return found[0]
    closed = _CLOSING.get(opened, "") if len(value) > 1 and value[-1] in "\"')" else ""
    return found[0][: found.start("value") - found.start()] + opened + HIDDEN + closed


def _is_part(found: re.Match[str]) -> bool:
    """`db_pass`, where `pass` is no verb."""
    return found["name"].lower() == "pass" and found.string.startswith("_", found.start() - 1)


_CLOSING = {'"': '"', "'": "'", "(": ")"}


# Back again


def restore_hidden(told: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that somebody sends back as they were shown: what is hidden in them is as it is
    stored. Invalid where there is nothing at that place, or where something else was changed in
    the same value: nobody can tell then what is meant."""
    stored = dict(stored)
    restored = _restored(dict(told), stored, redact(stored), "")
    assert isinstance(restored, dict)
    return restored


def _restored(told: Any, stored: Any, shown: Any, path: str) -> Any:
    if HIDDEN not in json.dumps(told) or told == stored:
        return told
    if told == shown:
        return stored
    # The parts of a list have no names: it is as it was, or it is told anew.
    if not isinstance(told, dict) or any(HIDDEN in name for name in told):
        where = f"argument {path}" if path else "the name of an argument"
        part = "" if told == HIDDEN else " in part"
        raise Invalid(f"{where} is {HIDDEN}{part}, which only stands for a value; give the value")
    inner_stored = stored if isinstance(stored, dict) else {}
    inner_shown = shown if isinstance(shown, dict) else {}
    return {
        name: _restored(
            value, inner_stored.get(name), inner_shown.get(name), f"{path}.{name}" if path else name
        )
        for name, value in told.items()
    }


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

        for start, stop in _url_passwords(text):
            whole = text[start:stop]
            # Of `me@home:secret@host` more than the password is hidden.
            for one in (whole, whole.partition(":")[2] if whole[0] == "@" else ""):
                yield one
                yield unquote(one)
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


def redact_schedule(schedule: Schedule) -> Schedule:
    """A schedule as it may be shown; its version is that of what is shown."""
    told = {
        name: redact_text(text)
        for name in ("state", "error", "paused_reason")
        if (text := getattr(schedule, name)) is not None
    }
    if schedule.registered is not None and '"args"' in schedule.registered:
        told["registered"] = _redact_registered(schedule.registered)
    if not schedule.args and not told:
        return schedule
    return schedule.like(args=redact(dict(schedule.args)), **told)


def _redact_registered(text: str) -> str:
    """Written as it was, so that what did not differ before does not differ now."""
    try:
        return json.dumps(redact(json.loads(text)), sort_keys=True, separators=(",", ":"))
    except ValueError:
        return ""
