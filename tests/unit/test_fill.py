"""Variables in plain texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import Invalid
from rota.model.fill import fill, missing_message, parts, refuse_missing, texts_in, variables


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("", ""),
        ("plain $X {X} $ {", "plain $X {X} $ {"),
        ("${X}", "value"),
        ("a${X}b${X}c", "avaluebvaluec"),
        ("${NONE:-default}", "default"),
        ("${EMPTY:-default}", "default"),
        ("${EMPTY}", ""),
        ("${NONE:-}", ""),
        ("${NONE:-a:b-c}", "a:b-c"),
        ("$${X}", "${X}"),
        ("$${not a variable", "${not a variable"),
        ("${NESTED}", "${X}"),
        ("${ROTA_RUN_ID}", "run"),
    ],
)
def test_what_a_text_becomes(text: str, made: str) -> None:
    values = {"X": "value", "EMPTY": "", "NESTED": "${X}", "ROTA_RUN_ID": "run"}
    assert fill(text, values) == made


@pytest.mark.parametrize("text", ["${x}", "${", "${X", "${1}", "${X Y}", "${args.name}", "a${}b"])
def test_what_only_looks_like_a_variable_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"is not a variable; write \$\{NAME\} in capitals"):
        fill(text, {})


def test_raw_is_for_sql() -> None:
    with pytest.raises(Invalid, match=r"\$\{X:raw\} is not a variable; write \$\{X\} or"):
        fill("${X:raw}", {"X": "1"})


def test_settings_of_rota_are_hidden() -> None:
    with pytest.raises(Invalid, match="ROTA_DATABASE cannot be read by a job; only ROTA_JOB_NAME"):
        fill("${ROTA_DATABASE}", {"ROTA_DATABASE": "x"})
    with pytest.raises(Invalid, match="cannot be read"):
        fill("${ROTA_DATABASE:-x}", {"ROTA_DATABASE": "x"})


def test_all_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        refuse_missing(["${A} ${B} ${A}", "${C:-}", "${ROTA_X}"], {"B": "1"})
    assert str(caught.value) == missing_message(["A", "ROTA_X"])


def test_a_message_shows_no_value() -> None:
    with pytest.raises(Invalid, match="the value of X has 5,000,000 characters") as caught:
        fill("${X}", {"X": "s" * 5_000_000})
    assert "sss" not in str(caught.value)


def test_where_a_variable_stands() -> None:
    assert [(one.name, one.start) for one in variables("ab${X}$${Y}${Z:-1}")] == [
        ("X", 2),
        ("Z", 11),
    ]
    assert list(texts_in({"a": ["b", {"c": "d"}], "e": 5})) == ["a", "b", "c", "d", "e"]


@given(st.text(), st.text())
def test_a_value_is_put_in_as_it_is(before: str, value: str) -> None:
    plain = before.replace("$", "")
    assert fill(plain + "${X}", {"X": value}) == plain + value
    assert "".join(str(part) for part in parts(plain)) == plain
