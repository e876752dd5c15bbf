"""The result of a statement in rows and columns, on every surface."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from rota.model.limits import SELECT_CELL_LENGTH
from rota.model.redact import redact, shorten

TEXT, INTEGER, NUMBER, BOOLEAN = "text", "integer", "number", "boolean"
INSTANT, JSON = "timestamp", "json"


@dataclass(frozen=True, slots=True)
class Column:
    """`type` is one of the constants above, or the database's own type if none of them fits."""

    name: str
    type: str = TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`more`: there were more rows than the limit of one result."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...] = ()
    more: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """A unique name for each column; repeated names are numbered."""
        seen: dict[str, int] = {}
        names = []
        for column in self.columns:
            count = seen[column.name] = seen.get(column.name, 0) + 1
            names.append(column.name if count == 1 else f"{column.name}_{count}")
        return tuple(names)

    def records(self) -> list[dict[str, Any]]:
        return [dict(zip(self.names, row, strict=True)) for row in self.rows]


def displayable_rows(rows: Iterable[Sequence[Any]]) -> tuple[tuple[Any, ...], ...]:
    """Database rows as plain values, redacted, to be shown."""
    return tuple(tuple(map(_displayable, row)) for row in rows)


def _displayable(value: Any) -> Any:
    match value:
        case None | bool() | timedelta():
            return value
        case str():
            return shorten(value, SELECT_CELL_LENGTH)
        case int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime():
            return value if value.tzinfo is None else value.astimezone(UTC)
        case date() | time():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return shorten(bytes(value).hex(), SELECT_CELL_LENGTH)
        case list() | tuple():
            return [_displayable(inner) for inner in value]
        case dict():
            return {str(name): _displayable(inner) for name, inner in redact(value).items()}
        case _:
            return shorten(str(value), SELECT_CELL_LENGTH)
