"""Arguments against a signature: everything that does not fit is named, at once."""

from __future__ import annotations

from typing import Any

import pytest

from rota.errors import BadArguments, Invalid
from rota.model.signature import ANYTHING, Parameter, Signature

SEND = Signature(
    (
        Parameter(name="to", types=("string",)),
        Parameter(name="subject", types=("string", "null"), required=False),
        Parameter(name="tries", types=("integer",), required=False),
        Parameter(name="extra", required=False),
    )
)


@pytest.mark.parametrize(
    "args",
    [
        {"to": "a"},
        {"to": "a", "subject": None},
        {"to": "a", "tries": 3, "extra": [1, {"deep": None}]},
    ],
)
def test_arguments_that_fit_are_taken(args: dict[str, Any]) -> None:
    SEND.check("send", args)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, "job 'send': 'to' is missing (it takes to, subject, tries, extra)"),
        (
            {"to": "a", "subjcet": "b"},
            "job 'send': 'subjcet' is unknown, did you mean 'subject'? "
            "(it takes to, subject, tries, extra)",
        ),
        (
            {"to": "a", "zzz": 1},
            "job 'send': 'zzz' is unknown (it takes to, subject, tries, extra)",
        ),
        (
            {"to": 5},
            "job 'send': 'to' must be string, not int (it takes to, subject, tries, extra)",
        ),
        (
            {"to": "a", "subject": 5},
            "job 'send': 'subject' must be string or null, not int "
            "(it takes to, subject, tries, extra)",
        ),
        (
            {"too": "a", "tries": "x"},
            "job 'send': 'to' is missing; 'too' is unknown, did you mean 'to'?; "
            "'tries' must be integer, not str (it takes to, subject, tries, extra)",
        ),
    ],
)
def test_everything_that_does_not_fit_is_named(args: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArguments) as caught:
        SEND.check("send", args)
    assert str(caught.value) == message
    assert isinstance(caught.value, Invalid)


def test_a_job_without_arguments_says_so() -> None:
    with pytest.raises(BadArguments, match=r"'x' is unknown \(it takes no arguments\)$"):
        Signature().check("tick", {"x": 1})


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", ["", "a"], [1, None, True, [], b"a"]),
        ("integer", [0, -5, 2**60], [1.0, "1", True, None]),
        ("number", [0, 1.5], ["1", True, None]),
        ("boolean", [True, False], [0, 1, "true", None]),
        ("array", [[], [1], (1, 2)], ["ab", {}, None]),
        ("object", [{}, {"a": 1}], [[], "a", None]),
        ("null", [None], [0, "", False]),
    ],
)
def test_each_json_type_takes_its_own_values(kind: str, good: list[Any], bad: list[Any]) -> None:
    parameter = Parameter(name="x", types=(kind,))
    assert [value for value in good if not parameter.accepts(value)] == []
    assert [value for value in bad if parameter.accepts(value)] == []


def test_an_open_signature_takes_more_and_still_checks_what_it_knows() -> None:
    ANYTHING.check("sql", {"whatever": [1]})
    partly = Signature(SEND.parameters, open=True)
    partly.check("send", {"to": "a", "other": 5})
    with pytest.raises(BadArguments, match="'to' must be string"):
        partly.check("send", {"to": 5, "other": 5})


@pytest.mark.parametrize("signature", [SEND, ANYTHING, Signature()])
def test_the_stored_form_reads_back(signature: Signature) -> None:
    assert Signature.from_dict(signature.to_dict()) == signature
