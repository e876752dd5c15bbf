"""Shapes of JSON answers, and of JSON schemas, in one form whatever made them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Texts about a schema. What a value may be is not changed by them.
_TEXTS = ("title", "description", "examples", "example", "discriminator")
# True of any value, so that a schema that says it says no more than one that does not.
_SAYS_NOTHING: tuple[tuple[str, Any], ...] = (
    ("default", None),
    ("additionalProperties", True),
    ("additionalProperties", {}),
    ("items", {}),
)


def shape_of(value: Any) -> Any:
    """Names and types of a JSON value; a list has the shape that all its members share."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str() if _INSTANT.fullmatch(value):
            return "instant"
        case str() if _ID.fullmatch(value):
            return "id"
        case str():
            return "string"
        case Mapping():
            return {name: shape_of(inner) for name, inner in value.items()}
    return [merge(shape_of(member) for member in value)]


def merge(shapes: Iterable[Any]) -> Any:
    """One shape for all: scalars as `a|b`, objects name by name, a name that is not always there
    with a question mark."""
    members = list(shapes)
    objects = [one for one in members if isinstance(one, dict)]
    lists = [one[0] for one in members if isinstance(one, list) and one[0] is not None]
    words = {word for one in members if isinstance(one, str) for word in one.split("|")}
    found: list[Any] = []
    if objects:
        found.append(_merge_objects(objects))
    if any(isinstance(one, list) for one in members):
        found.append([merge(lists) if lists else None])
    if words:
        found.append("|".join(sorted(words)))
    if not found:
        return None
    return found[0] if len(found) == 1 else found


def _merge_objects(objects: list[dict[str, Any]]) -> dict[str, Any]:
    bare = [{name.rstrip("?"): inner for name, inner in one.items()} for one in objects]
    names = sorted({name for one in bare for name in one})
    always = set.intersection(*({n for n in one if not n.endswith("?")} for one in objects))
    return {
        name if name in always else f"{name}?": merge(one[name] for one in bare if name in one)
        for name in names
    }


def schema_of(schema: Any, components: Mapping[str, Any]) -> Any:
    """A JSON schema with its references filled in, without texts, in one order."""
    if isinstance(schema, list):
        return [schema_of(one, components) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        return schema_of(components[schema["$ref"].rpartition("/")[2]], components)
    told = {
        name: inner
        for name, inner in schema.items()
        if name not in _TEXTS and (name, inner) not in _SAYS_NOTHING
    }
    if "properties" in told:  # its members may have the names of keywords
        properties = told.pop("properties")
        named = {name: schema_of(properties[name], components) for name in sorted(properties)}
    made = {name: schema_of(told[name], components) for name in sorted(told)}
    if "properties" in schema:
        made["properties"] = named
    if "required" in made:
        made["required"] = sorted(made["required"])
    if "const" in made:
        made["enum"] = [made.pop("const")]
    if "enum" in made:
        made.pop("type", None)
        made["enum"] = sorted(made["enum"], key=str)
    if "pattern" in made:  # `$` takes a line end in some engines, and not in others
        made["pattern"] = made["pattern"].replace("$(?!\\n)", "$")
    for name in ("anyOf", "oneOf"):
        if name in made:
            return _union(made, name)
    return made


def _union(schema: dict[str, Any], name: str) -> Any:
    members = sorted(schema.pop(name), key=repr)
    if len(members) == 1:
        return {**schema, **members[0]}
    return {**schema, "anyOf": members}
