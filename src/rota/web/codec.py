"""Requests become structs, and answers JSON.

Of a request every wrong field is named, and no value is repeated. msgspec stops at the first wrong
field, and its message about an enum has the value in it. So fields are converted one at a time,
those of a struct inside a struct, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from rota.web.models import END, Model

M = TypeVar("M", bound=Model)

NAME_SHOWN = 80  # characters of a name that is unknown

_SHOWN_END = END.replace("\\", "\\\\")  # as msgspec shows the end of a pattern
_WHOLE = re.compile("[+-]?[0-9]+")
_encode = msgspec.json.Encoder().encode


class Decoder:
    """Collects what is wrong with one request; `errors` is empty if nothing is."""

    def __init__(self) -> None:
        self.errors: list[dict[str, str]] = []

    def model(
        self, model: type[M], values: Mapping[str, Any], where: str, *, text: bool = False
    ) -> M | None:
        """The struct with these values; None if one of them is wrong."""
        count = len(self.errors)
        fields = {field.encode_name: field for field in fields_of(model)}
        decoded: dict[str, Any] = {}
        for name, field in fields.items():
            if name in values:
                place = f"{where}.{name}"
                decoded[field.name] = self.value(field.type, values[name], place, text=text)
            elif field.required:
                self.refuse(f"{where}.{name}", "Missing")
        for name in values:
            if name not in fields:
                known = ", ".join(fields)
                self.refuse(f"{where}.{name[:NAME_SHOWN]}", f"Unknown; known are {known}")
        return model(**decoded) if len(self.errors) == count else None

    def value(self, kind: Any, value: Any, where: str, *, text: bool = False) -> Any:
        """One value. `text`: it comes from a URL or a header, where everything is text."""
        if isinstance(value, dict) and (model := _model_in(kind)) is not None:
            return self.model(model, value, where)
        if isinstance(value, str) and not _is_unicode(value):
            self.refuse(where, "Expected `str` in Unicode, got half of a character")
            return None
        if text and int in _plain_types(kind):  # msgspec would take 1e2 and 5.0
            value = _whole_number(value)
            if value is None:
                self.refuse(where, "Expected `int`, written in digits")
                return None
        try:
            return msgspec.convert(value, kind, strict=not text)
        except msgspec.ValidationError as fault:
            self.refuse(where, _message(fault, kind, text=text))
            return None

    def refuse(self, where: str, message: str) -> None:
        self.errors.append({"where": where, "message": message})


@cache
def fields_of(model: type[Model]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(model)


@cache
def _model_in(kind: Any) -> type[Model] | None:
    """The struct that a type is, or that stands in its union."""
    for member in (kind, *get_args(kind)):
        if isinstance(member, type) and issubclass(member, Model):
            return member
    return None


@cache
def _plain_types(kind: Any) -> frozenset[Any]:
    """The types of a union, without their constraints."""
    if get_origin(kind) is Literal or not (members := get_args(kind)):
        return frozenset({kind})
    return frozenset().union(*map(_plain_types, members))


def _whole_number(text: str) -> int | None:
    try:
        return int(text) if _WHOLE.fullmatch(text) else None
    except ValueError:  # thousands of digits
        return None


def _message(fault: msgspec.ValidationError, kind: Any, *, text: bool) -> str:
    """What a field takes. Of an enum msgspec's own message may hold the value."""
    if choices := tuple(_choices(kind)):
        return f"Expected one of {', '.join(map(repr, choices))}"
    message = str(fault).partition(" - at ")[0]
    if text:  # no news
        message = message.removesuffix(", got `str`")
    return message.replace(_SHOWN_END, "$")


def _choices(kind: Any) -> Iterator[Any]:
    if get_origin(kind) is Literal:
        yield from get_args(kind)
    else:
        for member in get_args(kind):
            yield from _choices(member)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_json(body: Any) -> bytes:
    try:
        return _encode(body)
    except UnicodeEncodeError:  # half of a character: stored JSON may have one, as an escape
        return ascii_json(body)


def ascii_json(body: Any) -> bytes:
    """With escapes for all that is not ASCII: also for half of a character."""
    return json.dumps(msgspec.to_builtins(body)).encode()
