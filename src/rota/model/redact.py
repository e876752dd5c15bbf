"""The one place where secrets are taken out of what people see, before anything is cut short."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rota.model.run import Run

HIDDEN = "[redacted]"
SHORTEST_SECRET = 4  # shorter ones are part of too many words

_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential"
    r"|authorization|cookie|session[-_]?id|^dsn$|connstr|connection[-_]?string",
    re.IGNORECASE,
)
# It begins with what is rare: a text of a hundred megabytes is looked through in no time, and
# meanwhile no thread of this process could do anything else.
_URL_PASSWORD = re.compile(r"(?P<head>://(?<=[A-Za-z0-9+.-]://)[^\s/:@]*:)[^\s/]+(?=@)")


def redact(value: Any) -> Any:
    """A copy of a JSON value without what its names or shape mark as secret."""
    match value:
        case dict():
            return {
                name: HIDDEN if _SECRET_NAME.search(name) else redact(inner)
                for name, inner in value.items()
            }
        case list():
            return [redact(inner) for inner in value]
        case str():
            return redact_text(value)
        case _:
            return value


def redact_text(text: str) -> str:
    """Text with the passwords of any URLs taken out."""
    return _URL_PASSWORD.sub(lambda found: found["head"] + HIDDEN, text)


def hide_values(text: str, values: Mapping[str, str]) -> str:
    """Text without the values of those names that mark them as secret."""
    for name, value in values.items():
        if len(value) >= SHORTEST_SECRET and _SECRET_NAME.search(name):
            for written in {value, value.replace("'", "''")}:
                text = text.replace(written, HIDDEN)
    return redact_text(text)


def redact_columns(row: dict[str, Any], *columns: str) -> dict[str, Any]:
    """A row whose columns, JSON or plain text, may be shown."""
    shown = {name: _redact_column(row[name]) for name in columns if row[name] is not None}
    return {**row, **shown}


def _redact_column(text: str) -> str:
    if text.startswith("{"):
        with suppress(ValueError):
            return json.dumps(redact(json.loads(text)), ensure_ascii=False)
    return redact_text(text)


def redact_args(run: Run) -> Run:
    """A run as it may be shown."""
    return replace(
        run,
        args=json.dumps(redact(json.loads(run.args))),
        error=None if run.error is None else redact_text(run.error),
    )
