"""Makes the request of an attempt of an http job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rota.errors import Invalid
from rota.executors.context import Context
from rota.executors.http.address import Url, fill_url, parse_url
from rota.executors.http.spec import (
    WITHOUT_BODY,
    check_value,
    headers_of,
    method_of,
    texts,
)
from rota.executors.variables import args_of, values_of
from rota.model.environment import ARGS, RUN_VARIABLES
from rota.model.fill import fill, refuse_missing, secrets_in, value_of, variables
from rota.model.interpolate import variable_of
from rota.model.redact import is_secret_name
from rota.version import VERSION

# All attempts of a run send the same key, so that a server can recognise a repeat.
KEY = "Idempotency-Key"
# Headers that a redirect may send to another server.
HARMLESS = frozenset(("accept", "accept-language", "user-agent"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    url: Url
    headers: Mapping[str, str]
    body: bytes | None = None
    secrets: tuple[str, ...] = ()  # redacted in the result, errors and logs

    def redirected(self, status: int, location: str) -> Request:
        """The request after a redirect.

        Raises Invalid if it would send the body to another server, or leave https."""
        url = self.url.follow(location)
        if self.url.scheme == "https" and url.scheme != "https":
            raise Invalid(f"it leads from https to {url.redacted}")
        keeps = status in (307, 308) or self.method in WITHOUT_BODY
        same = url.origin == self.url.origin
        if keeps and self.body is not None and not same:
            raise Invalid(f"it would carry the body to another server, {url.redacted}")
        headers = {
            name: value
            for name, value in self.headers.items()
            if (same or name.lower() in HARMLESS) and (keeps or name.lower() != "content-type")
        }
        if keeps:
            return replace(self, url=url, headers=headers)
        return Request(method="GET", url=url, headers=headers)


def request_of(context: Context) -> Request:
    """The request of an attempt; raises Invalid for a request that cannot be sent."""
    spec, args = context.definition.spec, args_of(context)
    values = {**values_of(context), ARGS: json.dumps(args, ensure_ascii=False)}
    refuse_missing(texts(spec), values)
    typed = {variable_of(name): value for name, value in args.items()} | {ARGS: args}
    method = method_of(spec)
    body, kind = _body(spec, values, typed)
    headers = {"User-Agent": f"rota/{VERSION}", "Accept": "*/*"}
    if method not in WITHOUT_BODY:
        headers[KEY] = context.run_id
    if context.trace is not None:
        headers["traceparent"] = context.trace
    if kind:
        headers["Content-Type"] = kind
    job_headers = {name: fill(value, values) for name, value in headers_of(spec).items()}
    for name, value in job_headers.items():
        check_value(name, value)
    replaced = {name.lower() for name in job_headers}
    headers = {name: value for name, value in headers.items() if name.lower() not in replaced}
    arguments = {variable_of(name) for name in args}
    return Request(
        method=method,
        url=parse_url(fill_url(spec["url"], values, arguments)),
        headers={**headers, **job_headers},
        body=body,
        secrets=tuple(_secrets(spec, values, arguments)),
    )


def _body(
    spec: Mapping[str, Any], values: Mapping[str, str], typed: Mapping[str, Any]
) -> tuple[bytes | None, str]:
    if "json" in spec:
        filled = _fill_json(spec["json"], values, typed)
        return json.dumps(filled, ensure_ascii=False).encode("utf-8", "replace"), "application/json"
    if "body" in spec:
        text = fill(spec["body"], values)
        return text.encode("utf-8", "surrogateescape"), "text/plain; charset=utf-8"
    return None, ""


def _fill_json(value: Any, values: Mapping[str, str], typed: Mapping[str, Any]) -> Any:
    """Fill in variables. A text that is only an argument keeps the type of its value."""
    match value:
        case str():
            names = [variable.name for variable in variables(value)]
            if len(names) == 1 and value == f"${{{names[0]}}}" and names[0] in typed:
                return typed[names[0]]
            return fill(value, values)
        case Mapping():
            return {
                fill(name, values): _fill_json(inner, values, typed)
                for name, inner in value.items()
            }
        case list():
            return [_fill_json(inner, values, typed) for inner in value]
        case _:
            return value


def _secrets(spec: Mapping[str, Any], values: Mapping[str, str], arguments: set[str]) -> list[str]:
    """Values to redact.

    In a header every variable of the environment counts as a secret, whatever its name. In other
    texts, and for arguments of a run, the name decides."""
    headers, plain = headers_of(spec), {*arguments, *RUN_VARIABLES}
    in_headers = [variable for text in headers.values() for variable in variables(text)]
    values_in_headers = [
        value_of(variable, values) or "" for variable in in_headers if variable.name not in plain
    ]
    by_name = secrets_in(texts(spec), values)
    secret_headers = [fill(text, values) for name, text in headers.items() if is_secret_name(name)]
    return values_in_headers + by_name + secret_headers
