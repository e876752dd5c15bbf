"""The spec of an http job: its keys, and what is refused before it is stored."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rota.errors import Invalid
from rota.executors.http.address import check_template
from rota.executors.networks import Allowed, refusal
from rota.model.bodies import HTTP_KEYS, OF_FILES
from rota.model.fill import texts_in, variables
from rota.model.interpolate import variable_of
from rota.model.job import Job
from rota.model.limits import REDIRECTS, REQUEST_HEADERS, check_payload, check_whole
from rota.model.options import named, refuse_unknown
from rota.model.redact import is_secret_name

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")
OK_CODES = ("2xx",)
# Headers that Rota sets.
SET_BY_ROTA = frozenset(
    ("host", "connection", "content-length", "transfer-encoding", "expect", "upgrade", "te",
     "trailer", "keep-alive", "accept-encoding")
)  # fmt: skip
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_CLASS = re.compile(r"[1-5]xx")


def check_spec(job: Job, allowed: tuple[Allowed, ...]) -> None:
    """Refuse a spec that no worker could run."""
    spec = job.spec
    with named(f"job {job.name!r}"):
        refuse_unknown([key for key in spec if key not in OF_FILES], HTTP_KEYS)
        _check_url(spec, arguments_of(job), allowed)
        for name, value in headers_of(spec).items():
            _check_header(name, value)
        _check_body(spec)
        ok_codes(spec)
        check_whole(spec.get("redirects", 0), "redirects", 0, REDIRECTS)
        check_payload({key: spec[key] for key in HTTP_KEYS if key in spec}, "job")
        for text in texts(spec):
            variables(text)


def texts(spec: Mapping[str, Any]) -> Iterator[str]:
    """All texts that may hold variables."""
    yield spec["url"]
    yield from headers_of(spec).values()
    yield spec.get("body") or ""
    yield from texts_in(spec.get("json"))


def arguments_of(job: Job) -> set[str]:
    """Names of the variables that hold arguments of a run."""
    parameters = (parameter.name for parameter in job.signature.parameters)
    return {variable_of(name) for name in (*parameters, *job.spec.get("params", {}))}


def method_of(spec: Mapping[str, Any]) -> str:
    has_body = "body" in spec or "json" in spec
    method = spec.get("method", "POST" if has_body else "GET")
    if not isinstance(method, str) or method.upper() not in METHODS:
        raise Invalid(f"method {method!r} is unknown; use {', '.join(METHODS)}")
    return method.upper()


def headers_of(spec: Mapping[str, Any]) -> Mapping[str, str]:
    headers = spec.get("headers", {})
    if not isinstance(headers, Mapping):
        raise Invalid('headers is a table: [headers] and a line NAME = "VALUE" for each')
    if len(headers) > REQUEST_HEADERS:
        raise Invalid(f"headers has {len(headers):,} names; the limit is {REQUEST_HEADERS:,}")
    return headers


def is_ok(status: int, spec: Mapping[str, Any]) -> bool:
    return any(code in (status, f"{status // 100}xx") for code in ok_codes(spec))


def ok_codes(spec: Mapping[str, Any]) -> tuple[int | str, ...]:
    """Statuses that are a success."""
    codes = spec.get("ok_codes", OK_CODES)
    if not isinstance(codes, list | tuple) or not codes or not all(map(_is_code, codes)):
        raise Invalid(f'ok_codes {codes!r} must be a list of statuses, as [200, 204] or ["2xx"]')
    return tuple(codes)


def _is_code(code: Any) -> bool:
    if isinstance(code, str):
        return _CLASS.fullmatch(code) is not None
    return type(code) is int and 200 <= code <= 599


def _check_url(spec: Mapping[str, Any], arguments: set[str], allowed: tuple[Allowed, ...]) -> None:
    url = spec.get("url")
    if not isinstance(url, str) or not url:
        raise Invalid('url must be text, such as url = "https://example.org/hook"')
    parsed = check_template(url, arguments)
    if parsed is None or parsed.address is None:
        return  # checked when the job runs
    if reason := refusal(parsed.address, parsed.port, allowed):
        raise Invalid(f"url: {reason}")


def _check_header(name: str, value: Any) -> None:
    if not _TOKEN.fullmatch(name):
        raise Invalid(f"headers: {name!r} is not the name of a header")
    if name.lower() in SET_BY_ROTA or name.lower().startswith("proxy-"):
        raise Invalid(f"headers: {name} is set by Rota; remove it")
    if not isinstance(value, str):
        raise Invalid(f"headers: {name} must be text")
    check_value(name, value)
    if is_secret_name(name) and not variables(value):
        raise Invalid(
            f"headers: {name} holds a secret in plain text, which would be stored; put it into "
            f'the environment and write {name} = "… ${{NAME}}"'
        )


def check_value(name: str, value: str) -> None:
    """Refuse a header that is not a single line of Latin-1."""
    if any(sign < " " and sign != "\t" for sign in value) or "\x7f" in value:
        raise Invalid(f"headers: {name} would hold a line break or a control character")
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        raise Invalid(f"headers: {name} would hold a character beyond Latin-1; encode it") from None


def _check_body(spec: Mapping[str, Any]) -> None:
    if "body" in spec and "json" in spec:
        raise Invalid("body and json are two bodies; keep one")
    if not isinstance(spec.get("body", ""), str):
        raise Invalid('body must be text; for a table use json = { name = "value" }')
    method = method_of(spec)
    if method in WITHOUT_BODY and ("body" in spec or "json" in spec):
        raise Invalid(f"method {method} has no body; use POST, or remove it")
