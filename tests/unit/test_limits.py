"""Every named limit: just inside is taken, just past is refused, and nothing is cut silently."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import Invalid
from rota.model.limits import (
    KEY_LENGTH,
    PAYLOAD_BYTES,
    PAYLOAD_DEPTH,
    check_key,
    check_name,
    check_payload,
    check_payload_size,
    check_whole,
    clip,
)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels - 1):
        value = [value] if level % 2 else {"x": value}
    return value


# Names


@pytest.mark.parametrize(
    "name", ["a", "A-Z.0_9", "maintenance/vacuum", "x" * 128, "0", "a..b", ".a"]
)
def test_plain_names_are_taken(name: str) -> None:
    assert check_name(name, "job name") == name


@pytest.mark.parametrize(
    "name",
    ["", "x" * 129, "two words", "naïve", "a\n", "a\0b", "semi;colon", "q'uote", "a:b", "٣", None,
     5, b"a", ["a"], "a\\b", "$x"],
)  # fmt: skip
def test_other_names_are_refused_with_what_is_allowed(name: object) -> None:
    with pytest.raises(Invalid) as caught:
        check_name(name, "job name")
    assert str(caught.value).startswith("job name ")
    assert "use 1 to 128 letters, digits, . _ / or -" in str(caught.value)


@pytest.mark.parametrize("name", [".", "..", "../x", "a/../b", "a/.", "/a", "a/", "a//b", "/"])
def test_a_name_that_would_be_read_as_a_path_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match=r"is not a valid name; what stands between / is not empty"):
        check_name(name, "job name")


def test_a_long_value_is_shown_short() -> None:
    with pytest.raises(Invalid) as caught:
        check_name("x y" * 100_000, "queue")
    assert len(str(caught.value)) < 200


# Keys


@pytest.mark.parametrize("key", ["a", "user 5 / order #7", "naïve ☃ 𝄞", "x" * KEY_LENGTH, "a\nb"])
def test_keys_are_the_users_own_text(key: str) -> None:
    assert check_key(key, "key") == key


@pytest.mark.parametrize("key", ["", "x" * (KEY_LENGTH + 1), "a\0b", None, 5, b"a"])
def test_a_key_that_cannot_be_stored_is_refused(key: object) -> None:
    with pytest.raises(Invalid, match=rf"^key .* must be text of 1 to {KEY_LENGTH} characters$"):
        check_key(key, "key")


def test_a_key_with_half_a_character_is_refused() -> None:
    with pytest.raises(Invalid, match=r"^key holds half of a surrogate pair"):
        check_key("a\ud800", "key")


# Whole numbers


@pytest.mark.parametrize("value", [1, 10])
def test_a_whole_number_inside_its_limits_is_taken(value: int) -> None:
    assert check_whole(value, "slots", 1, 10) == value


@pytest.mark.parametrize("value", [0, 11, -1, True, 1.0, "5", None, 10**400])
def test_anything_else_is_no_whole_number(value: object) -> None:
    with pytest.raises(Invalid, match=r"^slots .* must be a whole number from 1 to 10$"):
        check_whole(value, "slots", 1, 10)


# Payloads


@given(json_values)
def test_whatever_json_can_carry_is_taken(value: Any) -> None:
    check_payload(value)
    assert json.loads(json.dumps(value)) == value


def test_nesting_is_counted_from_the_payload_itself() -> None:
    check_payload(nested(PAYLOAD_DEPTH))
    with pytest.raises(Invalid, match=rf"^args is nested deeper than {PAYLOAD_DEPTH} levels"):
        check_payload(nested(PAYLOAD_DEPTH + 1))


def test_a_payload_that_holds_itself_is_too_deep() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(Invalid, match="is nested deeper than 64 levels; flatten it"):
        check_payload(circle)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "args holds nan, which JSON cannot carry; use null"),
        (float("inf"), "args holds inf, which JSON cannot carry; use null"),
        (-float("inf"), "args holds -inf, which JSON cannot carry; use null"),
        (2**64, "args holds a whole number past 64 bits; pass it as text"),
        (-(2**63) - 1, "args holds a whole number past 64 bits; pass it as text"),
        ({1: 2}, "args has the key 1; JSON keys are text"),
        ({None: 2}, "args has the key None; JSON keys are text"),
        ({(1, 2): 2}, r"args has the key \(1, 2\); JSON keys are text"),
        (object(), "args holds a object, which is not JSON; use text, numbers"),
        ({1, 2}, "args holds a set, which is not JSON"),
        (b"x", "args holds a bytes, which is not JSON"),
        (1j, "args holds a complex, which is not JSON"),
        ("\ud800", "args holds half of a surrogate pair"),
        ({"\udfff": 1}, "args holds half of a surrogate pair"),
    ],
)
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: {"a": [value]}])
def test_what_json_cannot_carry_is_refused(value: object, message: str, wrap: Any) -> None:
    with pytest.raises(Invalid, match=f"^{message}"):
        check_payload(wrap(value))


@pytest.mark.parametrize("value", [2**64 - 1, -(2**63), True, None, "\0", (1, 2), 0.1])
def test_the_edges_of_json_are_taken(value: object) -> None:
    check_payload({"value": value})


def test_the_field_is_named_in_the_message() -> None:
    with pytest.raises(Invalid, match=r"^job 'send': args holds a set"):
        check_payload({"a": set()}, "job 'send': args")


def test_a_payload_past_its_size_is_refused_with_both_sizes() -> None:
    check_payload_size(PAYLOAD_BYTES)
    with pytest.raises(Invalid, match=r"^args takes 262,145 bytes as JSON; the limit is 262,144"):
        check_payload_size(PAYLOAD_BYTES + 1)


# Clipping


@given(st.text(st.characters(), max_size=300), st.integers(1, 250))
def test_clipped_text_can_always_be_stored(text: str, limit: int) -> None:
    clipped = clip(text, limit)
    assert len(clipped) <= limit
    assert "\0" not in clipped
    clipped.encode()


def test_text_within_its_limit_stays_as_it_is() -> None:
    assert clip("naïve ☃\n𝄞", 10) == "naïve ☃\n𝄞"


def test_what_cannot_be_stored_is_replaced() -> None:
    assert clip("a\0b\ud800c", 10) == "a\N{REPLACEMENT CHARACTER}b?c"


def test_long_text_keeps_both_ends_and_says_so() -> None:
    clipped = clip("begin" + "x" * 5_000 + "end", 100)
    assert clipped.startswith("begin")
    assert clipped.endswith("end")
    assert "… [4,908 characters cut] …" in clipped
    assert len(clipped) <= 100
