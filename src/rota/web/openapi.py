"""The OpenAPI document: the routes of the table, their structs, and what is true for all of them.

Nothing imports this module until the document is asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from rota.model.roles import OPERATOR, VIEWER
from rota.version import VERSION
from rota.web.errors import MEDIA_TYPE
from rota.web.models import Problem, RequestModel
from rota.web.routing import PUBLIC, Route, Signature
from rota.web.table import ROUTES

DESCRIPTION = (
    "Everything that `rota` does on the command line. Programs show a token "
    "(`Authorization: Bearer rota_…`); a browser shows it once and has a session. Without a token "
    "this machine may read. Lists are pages: `next` asks for the following one. What goes wrong is "
    "answered with problem+json."
)
SCHEMES = {
    "token": {"type": "http", "scheme": "bearer", "description": "`rota token create` makes one."},
}
# Any request may be answered like this.
ALWAYS = {
    400: "The request cannot be read.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    414: "The URL is too long.",
    421: "The name in Host is none of this server.",
    422: "A value breaks a rule, or a parameter is unknown.",
    429: "Too many wrong tokens from this address.",
    431: "The headers are too large.",
    500: "Something went wrong here; the log says what.",
    503: "The store is away or busy, or this process is about to stop.",
}
CLOSED = {401: "A token is needed, or this one is not good.", 403: "The role is not enough."}
FOUND = {404: "There is no such thing."}
CHANGED = {409: "Its state forbids it."}
REFERENCE = "#/components/schemas/{name}"

Schema = dict[str, Any]


def describe() -> dict[str, Any]:
    routes = [route for route in ROUTES if route.documented]
    schemas = Schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path_format, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rota",
            "summary": "Jobs, schedules and runs: look at them, and operate them.",
            "description": DESCRIPTION,
            "version": VERSION,
        },
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": SCHEMES},
    }


class Schemas:
    """The schema of each type that a route takes or answers; structs are components."""

    def __init__(self, routes: list[Route]) -> None:
        kinds = [Problem, *(kind for route in routes for kind in _kinds(route.signature))]
        schemas, self.components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
        self._schemas = {repr(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
        for component in self.components.values():
            if not component.get("required", True):
                del component["required"]
        # Each field of these is a parameter.
        parts = (
            part for route in routes for part in (route.signature.query, route.signature.headers)
        )
        self._parameters = {part: self.components.pop(part.__name__) for part in {*parts} if part}

    def of(self, kind: Any) -> Schema:
        return dict(self._schemas[repr(kind)])

    def parameters_of(self, model: type[RequestModel]) -> Iterator[tuple[str, Schema, bool]]:
        """(name, schema, whether it is required)."""
        component = self._parameters[model]
        for name, schema in component["properties"].items():
            yield name, dict(schema), name in component.get("required", ())


def _kinds(signature: Signature) -> Iterator[Any]:
    yield from signature.path.values()
    for kind in (signature.query, signature.headers, signature.body, signature.answer):
        if kind not in (None, type(None)):
            yield kind


def _operation(route: Route, schemas: Schemas) -> dict[str, Any]:
    text = inspect.getdoc(route.function) or ""
    name, signature = route.function.__name__, route.signature
    operation: dict[str, Any] = {
        "tags": [route.noun],
        # The first sentence, however it is broken into lines.
        "summary": " ".join(text.split()).partition(". ")[0].rstrip("."),
        "description": text,
        "operationId": name,
    }
    if route.role not in (PUBLIC, VIEWER, OPERATOR):
        operation["description"] += f"\n\nFor the role {route.role}."
    if parameters := list(_parameters(signature, schemas)):
        operation["parameters"] = parameters
    if signature.body is not None:
        operation["requestBody"] = {
            "content": {"application/json": {"schema": schemas.of(signature.body)}},
            "required": signature.needs_body,
        }
    operation["responses"] = {**_success(route, schemas), **_problems(route, schemas)}
    # What a viewer may do this machine may do without a token.
    open_to_all: list[dict[str, list[str]]] = [{}] if route.role in (PUBLIC, VIEWER) else []
    operation["security"] = [*open_to_all, {"token": []}]
    operation["x-rota-role"] = route.role
    return operation


def _parameters(signature: Signature, schemas: Schemas) -> Iterator[dict[str, Any]]:
    for name, kind in signature.path.items():
        yield _parameter(name, "path", schemas.of(kind), True)
    for place, model in (("query", signature.query), ("header", signature.headers)):
        if model is not None:
            for name, schema, required in schemas.parameters_of(model):
                yield _parameter(name, place, schema, required)


def _parameter(name: str, place: str, schema: Schema, required: bool) -> dict[str, Any]:
    description = schema.pop("description", None)
    texts = {} if description is None else {"description": description}
    return {"name": name, "in": place, "required": required, **texts, "schema": schema}


def _success(route: Route, schemas: Schemas) -> dict[str, Any]:
    if (content := route.content) is not None:
        schema = {"type": "string"} | ({"format": content.format} if content.format else {})
        media = {content.media_type: {"schema": schema}}
        return {"200": {"description": content.description, "content": media}}
    if route.signature.answer is type(None):
        return {"204": {"description": "Done."}}
    media = {"application/json": {"schema": schemas.of(route.signature.answer)}}
    return {str(route.status): {"description": "Done.", "content": media}}


def _problems(route: Route, schemas: Schemas) -> dict[str, Any]:
    problems: dict[int, str] = dict(ALWAYS)
    if route.role != PUBLIC or route.method != "GET":
        problems |= CLOSED
    if route.role != PUBLIC:
        problems |= FOUND
    if route.method != "GET":
        problems |= CHANGED
    problems |= route.problems
    media: Mapping[str, Any] = {MEDIA_TYPE: {"schema": schemas.of(Problem)}}
    return {
        str(status): {"description": text, "content": media} for status, text in problems.items()
    }
