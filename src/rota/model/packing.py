"""Exact conversion of values to JSON and back, for messages between processes.

A type that JSON does not have is an object with one key, `$` and its kind: {"$decimal": "1.50"}.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from rota.errors import Invalid

WHOLE = 2**63
MARK = "$"

_TO_TEXT: dict[type, tuple[str, Callable[[Any], str]]] = {
    bytes: ("$bytes", lambda value: base64.b64encode(value).decode()),
    datetime: ("$datetime", datetime.isoformat),
    date: ("$date", date.isoformat),
    time: ("$time", time.isoformat),
    timedelta: ("$timedelta", lambda value: str(value // timedelta(microseconds=1))),
    Decimal: ("$decimal", str),
    UUID: ("$uuid", str),
    int: ("$int", str),
    float: ("$float", str),
}
_FROM_TEXT: dict[str, Callable[[Any], Any]] = {
    "$bytes": base64.b64decode,
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
    "$timedelta": lambda text: timedelta(microseconds=int(text)),
    "$decimal": Decimal,
    "$uuid": UUID,
    "$int": int,
    "$float": float,
}


class Packing:
    """Packs values, also instances of `models`: dataclasses and structs that both sides know.

    They pass by class name and fields. `makers` replace the constructor of a class."""

    def __init__(
        self,
        models: Iterable[type] = (),
        makers: Mapping[type, Callable[[dict[str, Any]], Any]] | None = None,
    ) -> None:
        self._fields: dict[type, tuple[str, tuple[str, ...]]] = {}
        self._makers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        for model in models:
            kind = f"{MARK}{model.__name__}"
            self._fields[model] = (kind, _field_names(model))
            self._makers[kind] = (makers or {}).get(model, _by_name(model))

    def pack(self, value: Any) -> Any:
        """JSON that `unpack` turns into an equal value."""
        match value:
            case None | bool() | str():
                return value
            case int() if -WHOLE <= value < WHOLE:
                return value
            case float() if math.isfinite(value):
                return value
            case list():
                return [self.pack(inner) for inner in value]
            case tuple():
                return {"$tuple": [self.pack(inner) for inner in value]}
            case Mapping():
                return self._pack_mapping(value)
        if type(value) in self._fields:
            kind, fields = self._fields[type(value)]
            return {kind: {name: self.pack(getattr(value, name)) for name in fields}}
        if type(value) not in _TO_TEXT:
            raise Invalid(f"a {type(value).__name__} cannot pass between processes")
        kind, to_text = _TO_TEXT[type(value)]
        return {kind: to_text(value)}

    def _pack_mapping(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        if all(isinstance(key, str) and not key.startswith(MARK) for key in value):
            return {key: self.pack(inner) for key, inner in value.items()}
        return {"$dict": [[self.pack(key), self.pack(inner)] for key, inner in value.items()]}

    def unpack(self, value: Any) -> Any:
        match value:
            case list():
                return [self.unpack(inner) for inner in value]
            case dict():
                kind = next(iter(value), "")
                if kind.startswith(MARK):
                    return self._unpack_kind(value)
                return {key: self.unpack(inner) for key, inner in value.items()}
            case _:
                return value

    def _unpack_kind(self, value: dict[str, Any]) -> Any:
        """The value of a marked object; Invalid for anything that `pack` does not write."""
        try:
            ((kind, packed),) = value.items()
            if kind == "$tuple":
                return tuple(self.unpack(inner) for inner in packed)
            if kind == "$dict":
                return {_key(self.unpack(key)): self.unpack(inner) for key, inner in packed}
            if kind in self._makers:
                return self._makers[kind]({name: self.unpack(packed[name]) for name in packed})
            return _FROM_TEXT[kind](packed)
        except Invalid:
            raise
        except Exception as fault:
            keys = ", ".join(str(name)[:40] for name in list(value)[:3])
            raise Invalid(
                f"{keys!r} is not what passes between processes ({type(fault).__name__})"
            ) from None


def _field_names(model: type) -> tuple[str, ...]:
    names = getattr(model, "__dataclass_fields__", None) or model.__struct_fields__  # type: ignore[attr-defined]
    return tuple(names)


def _by_name(model: type) -> Callable[[dict[str, Any]], Any]:
    return lambda fields: model(**fields)


def _key(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
