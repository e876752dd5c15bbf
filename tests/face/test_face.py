"""The public face is what it was, but for what CHANGELOG.md says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.face.frozen import ENGINES, PARTS, collect, path_of, written
from tests.face.parts import views
from tests.face.shapes import merge, schema_of, shape_of

HOW = "a change of the public face has a line in CHANGELOG.md; then: python -m tests.face"


@pytest.mark.parametrize("name", PARTS)
def test_the_face_is_what_it_was(name: str) -> None:
    assert written(collect(name)) == path_of(name).read_text("utf-8"), HOW


@pytest.mark.parametrize("name", ENGINES)
def test_the_views_are_what_they_were(name: str, request: pytest.FixtureRequest) -> None:
    part = views(request.getfixturevalue("postgres_url")) if "postgres" in name else collect(name)
    assert written(part) == path_of(name).read_text("utf-8"), HOW


def test_every_frozen_file_is_compared() -> None:
    there = {path.stem for path in path_of("x").parent.glob("*.json")}
    assert there == {*PARTS, *ENGINES}


def test_a_shape_says_what_is_there_and_what_may_be() -> None:
    told = [{"id": 1, "at": None}, {"id": 2, "at": "2026-01-01T00:00:00Z", "more": []}]
    assert shape_of(told) == [{"id": "integer", "at": "instant|null", "more?": [None]}]
    assert merge([shape_of(told), shape_of([{"id": "x"}])]) == [
        {"id": "integer|string", "at?": "instant|null", "more?": [None]}
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"const": "a"}, {"enum": ["a"], "type": "string"}),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]},
         {"anyOf": [{"type": "string", "description": "x"}, {"type": "null"}], "default": None}),
        ({"type": "string", "pattern": "^a$"}, {"type": "string", "pattern": "^a$(?!\\n)"}),
        ({"type": "object", "required": ["b", "a"]},
         {"type": "object", "required": ["a", "b"], "additionalProperties": True}),
        ({"$ref": "#/components/schemas/X"}, {"type": "integer", "title": "X"}),
    ],
)  # fmt: skip
def test_two_ways_to_write_a_schema_are_one(one: Any, other: Any) -> None:
    components = {"X": {"type": "integer", "title": "X"}}
    assert schema_of(one, components) == schema_of(other, components)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"type": "string"}, {"type": "string", "maxLength": 3}),
        ({"type": "object", "properties": {"title": {"type": "string"}}}, {"type": "object"}),
        ({"type": "object", "additionalProperties": False}, {"type": "object"}),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, {"type": "string"}),
    ],
)
def test_a_difference_that_counts_is_seen(one: Any, other: Any) -> None:
    assert schema_of(one, {}) != schema_of(other, {})
