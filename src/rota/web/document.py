"""The OpenAPI document: what the framework knows, and what is true for every route."""

from __future__ import annotations

from typing import Any

from anyio.to_thread import run_sync
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response

from rota.model.roles import OPERATOR, VIEWER
from rota.web.problems import MEDIA_TYPE
from rota.web.roles import PUBLIC, ROLES
from rota.web.routing import to_response
from rota.web.shapes import Problem

DESCRIPTION = (
    "Everything that `rota` does on the command line. Programs show a token "
    "(`Authorization: Bearer rota_…`); a browser shows it once and has a session. Without a token "
    "this machine may read. Lists are pages: `next` asks for the following one. What goes wrong is "
    "answered with problem+json."
)
SCHEMES = {
    "token": {"type": "http", "scheme": "bearer", "description": "`rota token create` makes one."},
}
# Whatever is asked for may be answered like this.
ALWAYS = {
    "400": "The request cannot be read.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "414": "The URL is too long.",
    "421": "The name in Host is none of this server.",
    "422": "A value breaks a rule, or a parameter is unknown.",
    "429": "Too many wrong tokens from this address.",
    "431": "The headers are too large.",
    "500": "Something went wrong here; the log says what.",
    "503": "The store is away or busy, or this process is about to stop.",
}
CLOSED = {"401": "A token is needed, or this one is not good.", "403": "The role is not enough."}
FOUND = {"404": "There is no such thing."}
CHANGED = {"409": "Its state forbids it."}


def add_to(api: FastAPI, path: str) -> None:
    async def openapi() -> Response:
        """The OpenAPI document."""
        if api.openapi_schema is None:  # only to make it takes long
            await run_sync(describe, api)
        return to_response(describe(api))

    api.add_api_route(path, openapi, methods=["GET"], include_in_schema=False, name="openapi")


def describe(api: FastAPI) -> dict[str, Any]:
    if api.openapi_schema is None:
        made = get_openapi(
            title=api.title,
            version=api.version,
            summary=api.summary,
            description=api.description,
            routes=api.routes,
        )
        for path, operations in made["paths"].items():
            for method, operation in operations.items():
                _complete(operation, method.upper(), path)
        shapes = made.setdefault("components", {}).setdefault("schemas", {})
        shapes.pop("HTTPValidationError", None)
        shapes.pop("ValidationError", None)
        shapes["Problem"] = Problem.model_json_schema()
        made["components"]["securitySchemes"] = SCHEMES
        api.openapi_schema = made
    return api.openapi_schema


def _complete(operation: dict[str, Any], method: str, path: str) -> None:
    role = ROLES[method, path]
    answers = operation["responses"]
    answers.pop("422", None)
    told = dict(ALWAYS)
    if role != PUBLIC or method != "GET":
        told |= CLOSED
    if role != PUBLIC:
        told |= FOUND
    if method != "GET":
        told |= CHANGED
    told |= {status: one["description"] for status, one in answers.items() if status >= "400"}
    for status, text in told.items():
        answers[status] = {
            "description": text,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    # What a viewer may do this machine may do without a token.
    open_to_all: list[dict[str, list[str]]] = [{}] if role in (PUBLIC, VIEWER) else []
    operation["security"] = [*open_to_all, {"token": []}]
    operation["x-rota-role"] = role
    if role not in (PUBLIC, VIEWER, OPERATOR):
        operation["description"] += f"\n\nFor the role {role}."
