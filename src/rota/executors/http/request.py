"""From an http job and one attempt of it to a request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rota.errors import Invalid
from rota.executors.context import Context
from rota.executors.http.address import Place, fill_url, parse_url
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

# The same for every attempt of a run: a server that knows it does the work once.
KEY = "Idempotency-Key"
# Headers that may go to another server than the one they were written for.
HARMLESS = frozenset(("accept", "accept-language", "user-agent"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    place: Place
    headers: Mapping[str, str]
    body: bytes | None = None
    secrets: tuple[str, ...] = ()  # that must not be seen in what comes of it

    def redirected(self, status: int, location: str) -> Request:
        """The request that a redirect asks for; refused where it would carry a body or a secret
        to another server, or give up encryption."""
        place = self.place.follow(location)
        if self.place.scheme == "https" and place.scheme != "https":
            raise Invalid(f"it leads from https to {place.shown}")
        keeps = status in (307, 308) or self.method in WITHOUT_BODY
        same = place.origin == self.place.origin
        if keeps and self.body is not None and not same:
            raise Invalid(f"it would carry the body to another server, {place.shown}")
        headers = {
            name: value
            for name, value in self.headers.items()
            if (same or name.lower() in HARMLESS) and (keeps or name.lower() != "content-type")
        }
        if keeps:
            return replace(self, place=place, headers=headers)
        return Request(method="GET", place=place, headers=headers)


def request_of(context: Context) -> Request:
    """Refuses what cannot be sent before anything is."""
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
    given = {name: fill(value, values) for name, value in headers_of(spec).items()}
    for name, value in given.items():
        check_value(name, value)
    own = {name.lower() for name in given}
    headers = {name: value for name, value in headers.items() if name.lower() not in own}
    arguments = {variable_of(name) for name in args}
    return Request(
        method=method,
        place=parse_url(fill_url(spec["url"], values, arguments)),
        headers={**headers, **given},
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
    """A text that is nothing but an argument has its value as it is: a number stays one."""
    match value:
        case str():
            found = variables(value)
            if len(found) == 1 and value == f"${{{found[0].name}}}" and found[0].name in typed:
                return typed[found[0].name]
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
    """A variable of the environment in a header is taken for a secret, whatever it is called.
    Elsewhere, and for what a run brings along, the name decides."""
    headers, plain = headers_of(spec), {*arguments, *RUN_VARIABLES}
    found = [one for text in headers.values() for one in variables(text) if one.name not in plain]
    known = [value_of(one, values) or "" for one in found] + secrets_in(texts(spec), values)
    return known + [fill(text, values) for name, text in headers.items() if is_secret_name(name)]
