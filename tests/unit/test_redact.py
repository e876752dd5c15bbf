"""Redaction: secrets go by their name or their shape, everything else stays."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from rota.model.redact import HIDDEN, redact, redact_args, redact_text
from rota.model.run import Run


@pytest.mark.parametrize(
    "name",
    ["password", "Password", "db_password", "passwd", "pass", "passphrase", "secret",
     "client_secret", "token", "access_token", "api_key", "apikey", "API-KEY", "access_key",
     "private-key", "credentials", "Authorization", "cookie", "session_id", "dsn", "connstr",
     "connection_string", "secrets"],
)  # fmt: skip
@pytest.mark.parametrize("value", ["x", 5, None, ["x"], {"a": "x"}])
def test_a_name_that_means_a_secret_hides_its_value(name: str, value: object) -> None:
    assert redact({name: value, "to": "a"}) == {name: HIDDEN, "to": "a"}


@pytest.mark.parametrize(
    "name", ["to", "path", "passenger", "key", "keys", "monkey", "author", "passed", "dsn_count"]
)
def test_other_names_stay(name: str) -> None:
    assert redact({name: "value"}) == {name: "value"}


def test_secrets_are_found_at_any_depth() -> None:
    told = {"a": [{"b": {"token": "x"}}, "y"], "n": 1.5, "none": None, "yes": True}
    assert redact(told) == {
        "a": [{"b": {"token": HIDDEN}}, "y"], "n": 1.5, "none": None, "yes": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:s3cret@db/x", f"postgresql://me:{HIDDEN}@db/x"),
        ("postgresql://me:p@ss@db/x", f"postgresql://me:{HIDDEN}@db/x"),
        ("redis://:s3cret@db:6379/0", f"redis://:{HIDDEN}@db:6379/0"),
        ("MySQL+Driver://u:p@h and http://a:b@c/d", f"MySQL+Driver://u:{HIDDEN}@h and http://a:{HIDDEN}@c/d"),
        ("postgresql://me@db/x", "postgresql://me@db/x"),
        ("http://host:80/path?mail=a@b", "http://host:80/path?mail=a@b"),
        ("no url: a:b@c", "no url: a:b@c"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_password_of_a_url_is_taken_out(text: str, shown: str) -> None:
    assert redact_text(text) == shown
    assert redact({"url": [text]}) == {"url": [shown]}


def test_the_original_is_not_changed() -> None:
    told: dict[str, Any] = {"token": "x", "inner": {"password": "y"}}
    redact(told)
    assert told == {"token": "x", "inner": {"password": "y"}}


def test_a_run_is_shown_without_its_secrets() -> None:
    blank: dict[str, Any] = {field.name: None for field in fields(Run)}
    run = Run(**{**blank, "args": '{"token":"x","to":"a"}', "error": "at http://u:p@h"})
    shown = redact_args(run)
    assert json.loads(shown.args) == {"token": HIDDEN, "to": "a"}
    assert shown.error == f"at http://u:{HIDDEN}@h"
    assert redact_args(Run(**{**blank, "args": "{}"})).error is None


def test_a_long_text_is_looked_through_once() -> None:
    """Ends at all: from every letter to the end of the text it would take minutes."""
    text = "x" * 100_000_000
    assert (
        redact_text(text + " postgres://me:secret@host") == text + " postgres://me:[redacted]@host"
    )
    assert redact_text("1" * 50 + "postgres://me:secret@host").endswith("me:[redacted]@host")
