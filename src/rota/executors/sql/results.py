"""The first rows of a result as JSON text, bounded, for values of any type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime, time
from typing import Any

import msgspec

from rota.model.limits import RESULT_BYTES, STEP_CELL_LENGTH, clip
from rota.model.redact import is_secret_name, shorten
from rota.model.secrets import HIDDEN, NO_SECRETS, Secrets

DEPTH = 8
SAFE_INTEGER = 2**53  # JavaScript rounds larger integers


def encode_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    more: bool,
    secrets: Secrets = NO_SECRETS,
) -> str:
    """`{"columns": […], "rows": [[…], …], "more": true if there were further ones}`."""
    names = [clip(name, STEP_CELL_LENGTH) for name in columns]
    hidden = [is_secret_name(name) for name in columns]
    plain = [
        [
            HIDDEN if hide and value is not None else _plain(value, DEPTH, secrets)
            for value, hide in zip(row, hidden, strict=False)
        ]
        for row in rows
    ]
    while True:
        text = msgspec.json.encode({"columns": names, "rows": plain, "more": more})
        if len(text) <= RESULT_BYTES or not plain:
            break
        plain, more = plain[: len(plain) // 2], True
    if len(text) > RESULT_BYTES:
        text = msgspec.json.encode({"columns": [], "rows": [], "more": True})
    return text.decode()


def _plain(value: Any, depth: int, secrets: Secrets) -> Any:
    match value:
        case None | bool():
            return value
        case int():
            return value if -SAFE_INTEGER <= value <= SAFE_INTEGER else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return shorten(value, STEP_CELL_LENGTH, secrets)
        case bytes() | bytearray() | memoryview():
            return shorten("\\x" + bytes(value).hex(), STEP_CELL_LENGTH, secrets)
        case datetime() | date() | time():
            return value.isoformat()
        case dict() if depth:
            return {
                clip(str(name), STEP_CELL_LENGTH): _plain(inner, depth - 1, secrets)
                for name, inner in list(value.items())[:STEP_CELL_LENGTH]
            }
        case list() | tuple() if depth:
            return [_plain(inner, depth - 1, secrets) for inner in value[:STEP_CELL_LENGTH]]
        case _:  # such as decimals, uuids and ranges
            return shorten(str(value), STEP_CELL_LENGTH, secrets)
