"""Redaction: secrets go by their name or their shape, everything else stays."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from rota.errors import Invalid
from rota.executors.sql.results import encode_rows
from rota.model.job import Job
from rota.model.records import job_record
from rota.model.redact import (
    passwords_in,
    redact,
    redact_args,
    redact_json,
    redact_text,
    restore_hidden,
    secret_values,
    secrets_of,
)
from rota.model.run import Run
from rota.model.secrets import HIDDEN, Secrets

NAMES = [
    "password", "Password", "db_password", "passwd", "pass", "SMTP_PASS", "dbpass", "passphrase",
    "secret", "client_secret", "token", "access_token", "api_key", "apikey", "API-KEY",
    "access_key", "private-key", "credentials", "Authorization", "cookie", "session_id",
    "dsn", "DATABASE_DSN",
    "connstr", "connection_string", "secrets", "password_hash", "passwords", "MYSQL_PWD", "pwd",
    "x-api-key",
]  # fmt: skip
OTHER_NAMES = [
    "to", "path", "passenger", "key", "keys", "monkey", "author", "passed", "dsn_count", "compass",
    "bypass", "underpass",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["x", 5, None, ["x"], {"a": "x"}])
def test_a_name_that_means_a_secret_hides_its_value(name: str, value: object) -> None:
    assert redact({name: value, "to": "a"}) == {name: HIDDEN, "to": "a"}


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_other_names_stay(name: str) -> None:
    assert redact({name: "value"}) == {name: "value"}
    for text in (f"{name}=value", f"{name} = 'value'", f"{{'{name}': 'value'}}"):
        assert redact_text(text) == text


@pytest.mark.parametrize("name", NAMES)
def test_a_name_means_the_same_in_text(name: str) -> None:
    for text in (
        f"{name}=canary1 ok", f"({name} = 'canary1') ok", f"{{'{name}': 'canary1'}} ok",
        f'{{"{name}":"canary1"}} ok', f'{{\\"{name}\\": \\"canary1\\"}} ok',
    ):  # fmt: skip
        assert "canary1" not in redact_text(text)
        assert HIDDEN in redact_text(text)


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
        ("postgres://u:canary/x@h/db", f"postgres://u:{HIDDEN}@h/db"),
        ("postgres://u:c@n/ary@h/db", f"postgres://u:{HIDDEN}@h/db"),
        ("http://a:b@c,http://d:e/f@g", f"http://a:{HIDDEN}@c,http://d:{HIDDEN}@g"),
        ("http://host:80/@scope", "http://host:80/@scope"),
        ("postgresql://u:p@ss/w#rd@h:5432/db", f"postgresql://u:{HIDDEN}@h:5432/db"),
        ("at 'postgresql://u:p@s/w?#:d@h/db' a@b", f"at 'postgresql://u:{HIDDEN}@h/db' a@b"),
        ("postgresql://u:80/pw@h/db", f"postgresql://u:{HIDDEN}@h/db"),
        ("postgresql://ss/w#rd@h/db", f"postgresql://ss{HIDDEN}@h/db"),
        ("postgresql+psycopg://me@home:p/w@h", f"postgresql+psycopg://me{HIDDEN}@h"),
        ("https://me@home:pw@h/x@1", f"https://me{HIDDEN}@h/x@1"),
        ("git+ssh://git@host/x@v1 http://h/@s", "git+ssh://git@host/x@v1 http://h/@s"),
        ('["http://host:x/y","a@b"]', '["http://host:x/y","a@b"]'),
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
        ("WITH (db_pass = 'can''ary') garbage", f"WITH (db_pass = '{HIDDEN}') garbage"),
        ("WITH (db_pass = 'canary) garbage", f"WITH (db_pass = '{HIDDEN}) garbage"),
        ("WITH (db_pass = canary) garbage", f"WITH (db_pass = {HIDDEN}) garbage"),
        ("the tests pass: all of them", "the tests pass: all of them"),
        ("let it pass = no", "let it pass = no"),
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


LONG, LONGER = 160_000, 16
SQUARED = LONGER**2


@pytest.mark.parametrize(
    "piece",
    ["pwd=(,", 'pwd="', "pwd='", "pwd=''", "pwd=\"\\", 'pwd=\\"', "pwd='\"", "pwd=(\"'",
     "_pass=(\n", "token", "token.-", "secret \\\"", "dsn", "a://b:", "a://b:/", "a://b:c/d@", "a://b:'/",
     "mysql://b", "mysql://b@c/", "mysql://b:c/d@'", "mysql",
     "Bearer ", "Basic ", "cookie", "authorization'", "key "],
)  # fmt: skip
def test_no_text_takes_more_than_its_length(piece: str) -> None:
    """Sixteen times the text takes about sixteen times as long, and not its square."""

    def look(text: str) -> None:
        redact_text(text)
        list(passwords_in(text))
        list(secret_values({"token": text}))

    assert _growth(look, piece) < SQUARED / 4


@pytest.mark.parametrize("piece", ["a", "ab", "aab"])
def test_a_secret_that_overlaps_itself_takes_no_longer(piece: str) -> None:
    secrets = Secrets(["a" * 1_000, "ab" * 500])
    assert _growth(secrets.hide, piece) < SQUARED / 4


def test_a_secret_that_overlaps_itself_leaves_nothing_behind() -> None:
    secrets = secrets_of({"token": "ab1ab1"})
    assert secrets.hide("x ab1ab1ab1ab1ab ab1ab1") == f"x {HIDDEN}ab {HIDDEN}"
    assert Secrets(["1aaa1"]).hide("b1aaa1aaa1aaa1c") == f"b{HIDDEN}c"


def _growth(look: Callable[[str], object], piece: str) -> float:
    """CPU time of a long text by that of a sixteenth of it: the best of three tries of each, and
    nothing where both are too fast to tell. Neighbours on the same processor may double it."""

    def took(length: int) -> float:
        text, tries = piece * (length // len(piece)) + " :=", []
        for _ in range(3):
            began = time.process_time()
            look(text)
            tries.append(time.process_time() - began)
        return min(tries)

    short = took(LONG // LONGER)
    return took(LONG) / max(short, 0.002)


def test_a_secret_of_the_run_is_gone_before_a_cell_is_cut() -> None:
    secrets = Secrets(["canary-" * 8])
    for before in range(400, 520, 7):
        cell = "x" * before + "canary-" * 8 + "y" * 2_000
        assert "canary" not in encode_rows(["a"], [[cell]], more=False, secrets=secrets)


STORED = {
    "token": {"a": 1}, "to": "postgresql://me:geheim@db/shop", "copies": 1,
    "all": [{"token": "x", "as": "me"}], "deep": {"api_key": "y", "note": "none"},
}  # fmt: skip


def test_what_comes_back_as_it_was_shown_is_what_was_stored() -> None:
    shown = redact(STORED)
    assert restore_hidden(shown, STORED) == restore_hidden(STORED, STORED) == STORED
    edited = {**shown, "copies": True, "deep": {**shown["deep"], "note": "more"}}
    del edited["token"]
    assert restore_hidden(edited, STORED) == {
        "to": STORED["to"], "copies": True, "all": STORED["all"],
        "deep": {"api_key": "y", "note": "more"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("told", "where"),
    [
        ({"password": HIDDEN}, "argument password is"),
        ({"deep": {"token": HIDDEN}}, "argument deep.token is"),
        ({"copies": {"token": HIDDEN}}, "argument copies.token is"),
        ({"to": f"postgresql://me:{HIDDEN}@other/shop"}, "argument to is .* in part"),
        ({"all": [{"token": HIDDEN, "as": "you"}]}, "argument all is .* in part"),
        ({"all": [{"token": HIDDEN, "as": "me"}] * 2}, "argument all is .* in part"),
        ({HIDDEN: 1}, "the name of an argument is"),
    ],
)
def test_what_is_hidden_and_not_as_it_was_is_refused(told: dict[str, Any], where: str) -> None:
    with pytest.raises(Invalid, match=where):
        restore_hidden(told, STORED)


def test_the_error_of_a_job_hides_what_a_text_hides() -> None:
    told = "target 'x' is away: postgresql://rota:p4ssw0rd@db/app"
    job = Job(name="load", executor="sql", error=told)
    assert job_record(job)["error"] == redact_text(told) != told
