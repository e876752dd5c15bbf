"""Secrets by value: whatever form one takes in a text, nothing of it is left."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rota.model import secrets
from rota.model.limits import KNOWN_SECRETS
from rota.model.redact import redact_text, secrets_of, shorten
from rota.model.secrets import HIDDEN, Secrets, know

VALUES = [
    "hunter2-canary",
    "p@ss/w:rd+ä",
    'it\'s "quoted" <b>&',
    "back\\slash and space",
    "x" * 200,
]


@pytest.fixture(autouse=True)
def nothing_is_known() -> Iterator[None]:
    before = secrets._known.values, secrets._known.secrets
    secrets.forget()
    yield
    secrets._known.values, secrets._known.secrets = before


FORMS = {
    "plain": lambda value: value,
    "percent": lambda value: quote(value, safe=""),
    "path": quote,
    "lower percent": lambda value: re.sub("%..", lambda at: at[0].lower(), quote(value, safe="")),
    "form": quote_plus,
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64url": lambda value: base64.urlsafe_b64encode(value.encode()).decode().rstrip("="),
    "basic": lambda value: base64.b64encode(f"user:{value}".encode()).decode(),
    "basic of another name": lambda value: base64.b64encode(f"me:{value}!".encode()).decode(),
    "basic of a third": lambda value: base64.b64encode(f"you:{value}".encode()).decode(),
    "hexadecimal": lambda value: value.encode().hex(),
    "json": lambda value: json.dumps({"a": value}),
    "json with letters": lambda value: json.dumps([value], ensure_ascii=False),
    "python": lambda value: repr([value]),
    "sql": lambda value: "'" + value.replace("'", "''") + "'",
    "html": html.escape,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", VALUES)
def test_no_form_of_a_secret_is_left(form: str, value: str) -> None:
    written = FORMS[form](value)
    shown = Secrets([value]).hide(f"before {written} after")
    assert HIDDEN in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    for whole in (value, quote(value, safe=""), base64.b64encode(value.encode()).decode()[:-4]):
        assert whole not in shown


@given(st.text(min_size=4, max_size=40), st.text(max_size=40), st.text(max_size=40))
@example("aaaa", "a", "a")
def test_a_secret_is_nowhere_in_what_is_left(value: str, before: str, after: str) -> None:
    if not secrets.is_worth_hiding(value.strip()) or value.strip() in HIDDEN:
        return
    shown = Secrets([value]).hide(before + " " + value + " " + after)
    assert not _stands_in(value.strip(), shown.replace(HIDDEN, "\n"))


def _stands_in(value: str, text: str) -> bool:
    if value.isalpha() and len(value) <= secrets.LONGEST_WORD:
        return value in text.split()
    return value in text


def test_secrets_that_overlap_leave_no_piece_of_either() -> None:
    assert Secrets(["abcd1234", "1234efgh"]).hide("-abcd1234efgh-") == f"-{HIDDEN}-"
    assert Secrets(["abcdefgh12", "cdef12"]).hide("abcdefgh12 cdef12") == f"{HIDDEN} {HIDDEN}"


def test_a_password_that_is_a_word_is_hidden_where_it_is_one() -> None:
    shown = Secrets(["postgres"]).hide("postgresql://x: user postgres, postgres_1, (postgres)")
    assert shown == f"postgresql://x: user {HIDDEN}, postgres_1, ({HIDDEN})"


@pytest.mark.parametrize("value", ["abc", "", "true", "None", "3600", "null"])
def test_what_is_part_of_too_many_texts_is_not_looked_for(value: str) -> None:
    assert not Secrets([value])
    assert Secrets([value]).hide(f"a {value} b") == f"a {value} b"


def test_a_key_is_hidden_line_by_line() -> None:
    lines = [
        "-----BEGIN PRIVATE KEY-----",
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
        "BKcwggSjAgEAAoIBAQDk",
    ]
    hide = Secrets(["\n".join(lines) + "\n"]).hide
    assert [hide(f"> {line}") for line in lines] == [f"> {HIDDEN}"] * 3


def test_what_a_process_knows_is_hidden_everywhere() -> None:
    know(["hunter2-canary", "  spaced-canary\n"])
    assert redact_text("a hunter2-canary and spaced-canary") == f"a {HIDDEN} and {HIDDEN}"


def test_the_latest_are_kept() -> None:
    know(f"secret-number-{number}" for number in range(KNOWN_SECRETS + 10))
    assert redact_text("secret-number-5 ") != f"{HIDDEN} "
    assert redact_text(f"secret-number-{KNOWN_SECRETS + 5}") == HIDDEN


@pytest.mark.parametrize("place", range(80, 140))
def test_a_cut_halves_no_secret(place: int) -> None:
    """Redaction comes before truncation: wherever the cut falls, no piece of the secret stays."""
    value = "CANARY" * 4
    text = "x" * place + value + "y" * 50_000 + value + "z" * place
    shown = shorten(text, 200, Secrets([value]))
    assert "CAN" not in shown
    assert "ARY" not in shown
    assert len(shown) <= 200
    assert "characters cut" in shown


def test_secrets_of_arguments_are_those_under_secret_names_at_any_depth() -> None:
    args = {
        "to": "somebody",
        "password": "first-canary",
        "deep": [{"api_key": {"value": "second-canary"}, "n": 5}],
        "url": "postgresql://me:third%2Dcanary@db/x",
        "headers": {"Authorization": "Bearer fourth-canary"},
        "dsn": "host=db password='fifth canary' user=me",
        "token": 123456789,
    }
    hide = secrets_of(args).hide
    for value in ("first-canary", "second-canary", "third%2Dcanary", "third-canary",
                  "fourth-canary", "fifth canary", "123456789"):  # fmt: skip
        assert hide(f"<{value}>") == f"<{HIDDEN}>"
    assert hide("somebody, n is 5") == "somebody, n is 5"
