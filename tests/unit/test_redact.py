"""Redaction: secrets go by their name or their shape, everything else stays."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from rota.model.redact import redact, redact_args, redact_json, redact_text, secret_values
from rota.model.run import Run
from rota.model.secrets import HIDDEN


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("host=db password=s3cret user=me", f"host=db password={HIDDEN} user=me"),
        ("host=db password = 's3 cret' user=me", f"host=db password = '{HIDDEN}' user=me"),
        ("GET /x?api_key=s3cret&n=1", f"GET /x?api_key={HIDDEN}&n=1"),
        ('{"token": "s3cret", "n": 1}', f'{{"token": "{HIDDEN}", "n": 1}}'),
        ("{'client_secret': 's3\\'cret', 'n': 1}", f"{{'client_secret': '{HIDDEN}', 'n': 1}}"),
        ("Authorization: Basic dXNlcjpzM2NyZXQ=", f"Authorization: {HIDDEN}"),
        ("{'Authorization': 'Bearer s3cret'}", f"{{'Authorization': '{HIDDEN}'}}"),
        ("[('Set-Cookie', 'sid=s3cret; Path=/')]", f"[('Set-Cookie', '{HIDDEN}')]"),
        ("sent Bearer eyJhbGciOi.s3cret.x", f"sent Bearer {HIDDEN}"),
        ("Key (password)=(s3cret) already exists.", f"Key (password)=({HIDDEN}) already exists."),
        # What only looks like one: code in a traceback, and words.
        ("    token = make_token()", "    token = make_token()"),
        ("def connect(password: str) -> None", "def connect(password: str) -> None"),
        ("the token: it expired", "the token: it expired"),
        ("Key (name)=(bob) already exists.", "Key (name)=(bob) already exists."),
        ("password authentication failed for user", "password authentication failed for user"),
    ],
)  # fmt: skip
def test_a_value_beside_a_secret_name_is_taken_out_of_text(text: str, shown: str) -> None:
    assert redact_text(text) == shown


@pytest.mark.parametrize("name", ["password_hash", "passwords", "MYSQL_PWD", "pwd", "x-api-key"])
def test_more_names_that_mean_a_secret(name: str) -> None:
    assert redact({name: "value"}) == {name: HIDDEN}


def test_the_folder_of_a_shell_is_no_secret() -> None:
    assert list(secret_values({"PWD": "/home/me/project", "OLDPWD": "/home/me"})) == []


def test_json_text_is_redacted_by_its_names_and_stays_as_it_is_otherwise() -> None:
    plain = '{"a" : 1, "b":[2]}'
    assert redact_json(plain) == plain
    assert json.loads(redact_json('{"token":"x","a":1}')) == {"token": HIDDEN, "a": 1}
    assert redact_json("no json: token=abcdef") == f"no json: token={HIDDEN}"


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
