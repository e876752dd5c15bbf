"""Arguments of a job from the command line: `--arg name=value` and `--args JSON`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rota.errors import Invalid
from rota.model.job import Job


def read_arguments(job: Job, pairs: Sequence[str] | None, document: str | None) -> dict[str, Any]:
    """Both together; a pair wins over the document.

    A value is read as JSON where the job does not ask for text, so that `copies=2` is a number
    and `zip=01234` stays what was typed.
    """
    told = _object(document) if document is not None else {}
    types = {one.name: one.types for one in job.signature.parameters}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not equals or not name:
            missing = "value" if name else "name"
            raise Invalid(f"--arg {pair!r} has no {missing}; use --arg name=value")
        told[name] = text if types.get(name) == ("string",) else _value(text)
    return told


def _object(document: str) -> dict[str, Any]:
    try:
        told = json.loads(document)
    except (ValueError, RecursionError) as fault:
        raise Invalid(f"--args is not JSON: {fault}") from None
    if not isinstance(told, dict):
        raise Invalid('--args must be a JSON object, such as \'{"to": "a@example.org"}\'')
    return told


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
