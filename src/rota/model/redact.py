"""Redact secrets, before any text is cut. All redaction is done here.

By name: values under a name like `password` in arguments, results and text. By shape: the password
of a URL. By value: the secrets in `model.secrets`. Output of a run (errors, log lines, results) is
redacted before it is stored, because the views show the rows as they are. Arguments, specs of jobs
and the texts of SQL are stored unchanged, because runs need them; they are in no view, and
redacted wherever they are shown.
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

SHAPE_LENGTH = 4_096  # longest match by shape
CREDENTIAL = re.compile(r"(?:Bearer|Basic|Token|Digest|ApiKey)\s+(\S+)", re.IGNORECASE)

# Names of secrets, in JSON and in text: names that may be part of a longer name, and names that
# only match at its end (`passed` and `dsn_count` are no secrets).
_PART = (
    r"password|passwd|passphrase|pwd|secret|token|api[-_]?key|access[-_]?key|private[-_]?key"
    r"|credential|authorization|cookie|session[-_]?id|connstr|connection[-_]?string"
)
_END = r"(?<!com)(?<!by)(?<!tres)(?<!over)(?<!under)(?<!sur)pass|(?<![a-z0-9])dsn"
# Each of these names contains one of these words.
_SECRET_WORDS = (
    "pass", "pwd", "secret", "token", "key", "credential", "authoriz", "cookie", "session", "dsn",
    "connstr", "connection", "bearer",
)  # fmt: skip
_SECRET_NAME = re.compile(rf"{_PART}|(?:{_END})$", re.IGNORECASE)
_NOT_SECRET = frozenset({"PWD", "OLDPWD"})  # of the environment: folders
# It begins with a rare text, so that a search through 100 MB is fast: no other thread of this
# process can run meanwhile.
_URL_USER = re.compile(r"://(?<=[A-Za-z0-9+.-]://)[^\s/:@\"'<>?#]*")
# For these schemes everything between the user and the last @ is hidden: the password may contain
# @ itself. In `http://host:80/x?mail=a@b` and `git+ssh://git@host/x@v1` the last @ is no such end.
_DATABASE = re.compile(
    r"(?:postgres(?:ql)?|mysql|mariadb|mssql|oracle|mongodb|rediss?|valkeys?|amqps?|clickhouse"
    r"|snowflake|cockroachdb|redshift)(?:\+[A-Za-z0-9_.+-]{1,32})?$",
    re.IGNORECASE,
)
_SCHEME_LENGTH = 48
_PORT = re.compile(r"\d{1,5}(?:[/?#]|$)")
_URL_END = re.compile(r"\s|://")
_QUOTE = re.compile(r"[\"'<>]")

# The name of a secret, followed by its value: `password=x`, `"token": "x"`, `?api_key=x`,
# `Authorization: x`, and `Key (password)=(x)` of PostgreSQL. A pattern that can fail far from its
# start stops at its opening character, so that no part of a text is scanned repeatedly.
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
# Types, as in `def connect(password: str)` in the line of a traceback.
_ANNOTATIONS = frozenset({"str", "bytes", "int", "object", "None", "Any", "SecretStr"})


def is_secret_name(name: str) -> bool:
    """True if a value of that name must be hidden."""
    return name not in _NOT_SECRET and _SECRET_NAME.search(name) is not None


def redact(value: Any, secrets: Secrets = NO_SECRETS) -> Any:
    """A copy of a JSON value with secrets hidden, by name, shape and value."""
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
    """Text without known secrets, the given ones, and text in the shape of a secret."""
    text = known().hide(text)
    if secrets:
        text = secrets.hide(text)
    # Most texts are short cells without these characters, which every shape needs.
    if "=" in text or ":" in text or "," in text or "earer" in text or "EARER" in text:
        text = _without_shapes(text)
    return text


def _without_shapes(text: str) -> str:
    if "://" in text:
        text = _without_url_passwords(text)
    if _has_word(text):
        text = _HEADER.sub(lambda match: match["head"] + HIDDEN, text)
        text = _BEARER.sub(lambda match: match["head"] + HIDDEN, text)
        text = _PAIR.sub(_without_value, text)
    return text


def _has_word(text: str) -> bool:
    """True if the text contains a word of a secret's name.

    Many single searches are faster than a regular expression for all of them."""
    lower = text.lower()
    for word in _SECRET_WORDS:  # noqa: SIM110  # a generator would cost more than the search
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
    """The spans of passwords in URLs.

    A span reaches from the user to the last @ before the next URL, or before the quote that ends
    this one: a password should contain no @ and no /, but it may."""
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
    """The text redacted, then cut to `limit` characters.

    Of a long text only the ends are scanned. A secret that the cut would divide is hidden whole."""
    if len(text) <= limit:
        return clip(redact_text(text, secrets), limit)
    slack = max(secrets.longest, known().longest, SHAPE_LENGTH)
    if len(text) <= limit + 2 * slack:
        return clip(redact_text(text, secrets), limit)
    reach = limit // 2 + slack
    head, tail = redact_text(text[:reach], secrets), redact_text(text[-reach:], secrets)
    note = f"… [{len(text) - limit:,} characters cut] …"
    half = max(0, limit - len(note)) // 2
    # The cut edges may contain a part of a secret, so drop `slack` characters there.
    return clip(head[:-slack][:half], limit) + note + clip(tail[slack:][-half:], limit)


def redact_json(text: str, secrets: Secrets = NO_SECRETS) -> str:
    """JSON text redacted by its names; other text redacted as text."""
    if not _has_word(text):
        return redact_text(text, secrets)
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        redacted = redact(value, secrets)
        if redacted == value:
            return text
        return json.dumps(redacted, ensure_ascii=False, separators=(",", ":"))
    return redact_text(text, secrets)


def _without_value(match: re.Match[str]) -> str:
    value, name, close = match["value"], match["name"].lower(), match["close"]
    password = "pwd" in name or "passw" in name or "passph" in name or _is_part(match)
    opened = value[: 2 if value[0] == "\\" else 1] if value[0] in "\"'(\\" else ""
    if value.startswith("[redacted", len(opened)) or value in _ANNOTATIONS:
        return match[0]
    if not close and not opened and match["sep"] != "=" and not password:
        return match[0]  # `token = make()` in the line of a traceback, `token: it expired`
    if close == ")" and opened != "(":
        return match[0]
    closed = _CLOSING.get(opened, "") if len(value) > 1 and value[-1] in "\"')" else ""
    return match[0][: match.start("value") - match.start()] + opened + HIDDEN + closed


def _is_part(match: re.Match[str]) -> bool:
    """True for the `pass` of `db_pass`, which is not the verb."""
    return match["name"].lower() == "pass" and match.string.startswith("_", match.start() - 1)


_CLOSING = {'"': '"', "'": "'", "(": ")"}


# Restoring hidden values


def restore_hidden(args: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that a user sends back with hidden values, restored from the stored ones.

    Invalid if no value is stored under that name, or if another part of the same value was
    changed: then the intended value is unknown."""
    stored = dict(stored)
    restored = _restored(dict(args), stored, redact(stored), "")
    assert isinstance(restored, dict)
    return restored


def _restored(value: Any, stored: Any, redacted: Any, path: str) -> Any:
    if HIDDEN not in json.dumps(value) or value == stored:
        return value
    if value == redacted:
        return stored
    # Items of a list have no names: a list is either unchanged or given anew.
    if not isinstance(value, dict) or any(HIDDEN in name for name in value):
        where = f"argument {path}" if path else "the name of an argument"
        part = "" if value == HIDDEN else " in part"
        raise Invalid(f"{where} is {HIDDEN}{part}, which only stands for a value; give the value")
    inner_stored = stored if isinstance(stored, dict) else {}
    inner_shown = redacted if isinstance(redacted, dict) else {}
    return {
        name: _restored(
            inner, inner_stored.get(name), inner_shown.get(name), f"{path}.{name}" if path else name
        )
        for name, inner in value.items()
    }


# Secret values


def secret_values(value: Any, *, named: bool = False) -> Iterator[str]:
    """Every text under a secret name in a JSON value, at any depth, and all passwords in URLs."""
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
                yield from (credential[1] for credential in CREDENTIAL.finditer(value))
            yield from passwords_in(value)
        case int() | float() if named and not isinstance(value, bool):
            yield str(value)


def passwords_in(text: str) -> Iterator[str]:
    """Passwords of URLs, and of `password=` in connection strings, as written and decoded."""
    if "://" in text:
        from urllib.parse import unquote

        for start, stop in _url_passwords(text):
            whole = text[start:stop]
            # In `me@home:secret@host` the span is larger than the password.
            for password in (whole, whole.partition(":")[2] if whole[0] == "@" else ""):
                yield password
                yield unquote(password)
    if "=" in text:
        for match in _PAIR.finditer(text):
            if match["sep"].strip() == "=":
                yield match["value"].strip("\"'").replace("\\'", "'")


def secrets_of(*values: Any) -> Secrets:
    """The secrets in these values, to hide them in any other text."""
    texts = {text for value in values for text in secret_values(value) if is_worth_hiding(text)}
    return Secrets(texts) if texts else NO_SECRETS


# Rows


def redact_columns(row: dict[str, Any], *columns: str) -> dict[str, Any]:
    """A row with these columns redacted, as JSON or plain text."""
    redacted = {name: redact_json(row[name]) for name in columns if row[name] is not None}
    return {**row, **redacted}


def redact_args(run: Run) -> Run:
    """A run with its arguments, messages and result redacted."""
    return replace(
        run,
        args=json.dumps(redact(json.loads(run.args))),
        error=None if run.error is None else redact_text(run.error),
        reason=None if run.reason is None else redact_text(run.reason),
        result=None if run.result is None else redact_json(run.result),
    )


def redact_schedule(schedule: Schedule) -> Schedule:
    """A redacted schedule; its version is the version of the redacted definition."""
    changes = {
        name: redact_text(text)
        for name in ("state", "error", "paused_reason")
        if (text := getattr(schedule, name)) is not None
    }
    if schedule.registered is not None and '"args"' in schedule.registered:
        changes["registered"] = _redact_registered(schedule.registered)
    if not schedule.args and not changes:
        return schedule
    return schedule.copy_unchecked(args=redact(dict(schedule.args)), **changes)


def _redact_registered(text: str) -> str:
    """The registered definition redacted, in the same format so that equal texts stay equal."""
    try:
        return json.dumps(redact(json.loads(text)), sort_keys=True, separators=(",", ":"))
    except ValueError:
        return ""
