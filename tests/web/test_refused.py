"""Requests that do not fit the document: what is answered to each, and that no value is in it."""

from __future__ import annotations

from typing import Any

import pytest

from rota.web.codec import Decoder, fields_of
from rota.web.models import RequestModel
from rota.web.table import ROUTES
from tests.web.support import Site

V1 = "/api/v1"
OF_INT = "Expected `int`, written in digits"
# Each taken by nothing that has a type or a limit.
VALUES = ("geheim" * 2_000, ["geheim"], {"geheim": "geheim"}, 98765432109876, True, None)
MODELS = {
    model
    for route in ROUTES
    for model in (route.signature.query, route.signature.headers, route.signature.body)
    if model is not None
}


@pytest.mark.parametrize("model", sorted(MODELS, key=str), ids=lambda model: model.__name__)
def test_every_wrong_field_is_named_and_no_value_is(model: type[RequestModel]) -> None:
    in_url = {route.signature.query for route in ROUTES} | {
        route.signature.headers for route in ROUTES
    }
    for value in VALUES:
        if model in in_url and not isinstance(value, str):
            continue
        decoder = Decoder()
        values = {field.encode_name: value for field in fields_of(model)} | {"another": value}
        assert decoder.model(model, values, "place", text=model in in_url) is None
        places = [error["where"] for error in decoder.errors]
        assert places[-1] == "place.another"
        assert len(places) == len(set(places))
        for error in decoder.errors:
            assert "geheim" not in error["message"]
            assert "98765432109876" not in error["message"]
            assert "(?!" not in error["message"]  # how we write a pattern is no news to a client
            assert error["message"].startswith(("Expected ", "Unknown; known are ", "Missing"))


JSON = "application/json"
NOT_JSON = f"Expected JSON; send the header Content-Type: {JSON}"
BODIES = {
    ("null", JSON): "Expected `object`, got `null`",
    (" null\n", "application/problem+json"): "Expected `object`, got `null`",
    ("[]", JSON): "Expected `object`",
    ('"geheim"', JSON): "Expected `object`",
    ("0", JSON): "Expected `object`",
    ("{}", "text/plain"): NOT_JSON,
    ("null", "text/plain"): NOT_JSON,
}


# In the first nothing is needed, so that an empty body is taken; in the second a state is.
@pytest.mark.parametrize("path", ["/dispatch/pause", "/runs/cancel"])
def test_a_body_is_an_object_in_json(site: Site, path: str) -> None:
    with site.client("operator") as client:
        for (body, media_type), message in BODIES.items():
            answer = client.post(V1 + path, content=body, headers={"Content-Type": media_type})
            assert answer.status_code == 422
            assert answer.json()["errors"] == [{"where": "body", "message": message}]


QUERIES = [
    *(
        ({"limit": text}, {"limit": OF_INT})
        for text in ("1e2", "0x10", "1_0", "5.0", " 5", "", "null", "true", "٣", "9" * 5_000)
    ),
    ({"limit": "9" * 30}, {"limit": "Expected `int` <= 500"}),
    (
        {"job": "two words"},
        {"job": "Expected `str` matching regex '^[A-Za-z0-9._/-]{1,128}$'"},
    ),
    ({"job": "greet\n"}, {"job": "Expected `str` matching regex '^[A-Za-z0-9._/-]{1,128}$'"}),
    ({"limit": "-5"}, {"limit": "Expected `int` >= 1"}),
    (
        {"limit": "0", "before": "x", "state": "geheim"},
        {
            "limit": "Expected `int` >= 1",
            "before": OF_INT,
            "state": "Expected one of 'waiting', 'held', 'queued', 'running', 'paused', "
            "'succeeded', 'dead', 'cancelled'",
        },
    ),
]


def test_a_query_is_refused_field_by_field(site: Site) -> None:
    with site.client("viewer") as client:
        for query, errors in QUERIES:
            answer = client.get(f"{V1}/runs", params=query)
            assert answer.status_code == 422
            answered = {error["where"]: error["message"] for error in answer.json()["errors"]}
            assert answered == {f"query.{name}": message for name, message in errors.items()}
        for text in ("+5", "05"):
            assert client.get(f"{V1}/runs", params={"limit": text}).status_code == 200


TRIGGER = "/schedules/hourly/trigger"
FIELDS: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    (
        "/jobs/greet/runs",
        {"priority": "5", "max_attempts": 5.0, "args": None, "queue": 7, "another": "geheim"},
        {
            "priority": "Expected `int | null`, got `str`",
            "max_attempts": "Expected `int | null`, got `float`",
            "args": "Expected `object`, got `null`",
            "queue": "Expected `str | null`, got `int`",
            "another": "Unknown; known are args, delay, at, key, key_ttl, priority, queue, "
            "concurrency_key, concurrency_limit, max_attempts, timeout, correlation_id",
        },
    ),
    (TRIGGER, {"force": "yes"}, {"force": "Expected `bool`, got `str`"}),
    (TRIGGER, {"force": 1}, {"force": "Expected `bool`, got `int`"}),
    (
        "/runs/cancel",
        {"state": ["geheim"]},
        {"state": "Expected one of 'waiting', 'held', 'queued', 'running', 'paused'"},
    ),
    ("/runs/cancel", {}, {"state": "Missing"}),
    (
        "/schedules",
        {"name": "n", "job": "greet", "retry": {"max_attempts": "3", "another": 1}},
        {
            "retry.max_attempts": "Expected `int | null`, got `str`",
            "retry.another": "Unknown; known are max_attempts, backoff, delay, max_delay, "
            "retry_jitter, jitter",
        },
    ),
]


def test_a_body_is_refused_field_by_field(site: Site) -> None:
    with site.client("operator") as client:
        for path, body, errors in FIELDS:
            answer = client.post(V1 + path, json=body)
            assert answer.status_code == 422
            assert answer.headers["content-type"] == "application/problem+json"
            assert "geheim" not in answer.text
            answered = answer.json()["errors"]
            assert {error["where"]: error["message"] for error in answered} == {
                f"body.{name}": message for name, message in errors.items()
            }
            assert answer.json()["detail"] == f"{answered[0]['where']}: {answered[0]['message']}"
        for text in ("NaN", "Infinity", "1e400"):  # Python's reader takes them
            body_text = f'{{"priority": {text}}}'
            answer = client.post(
                f"{V1}/jobs/greet/runs", content=body_text, headers={"Content-Type": JSON}
            )
            assert [error["where"] for error in answer.json()["errors"]] == ["body.priority"]


def test_what_is_no_json_at_all_is_malformed(site: Site) -> None:
    digits = b'{"args": {"copies": %s}}' % (b"9" * 5_000)
    with site.client("operator", **{"Content-Type": JSON}) as client:
        for body in (b"\xff", b"[" * 100_000, digits):
            answer = client.post(f"{V1}/jobs/greet/runs", content=body)
            assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
