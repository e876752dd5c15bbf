"""Flags that commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Show:
    """How to answer."""

    json: bool = False
    """Answer as JSON: stable keys, instants as ISO 8601."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Where(Show):
    """Which store to ask, and how to answer."""

    database: Annotated[str | None, Parameter(metavar="URL")] = None
    """The store: sqlite:///rota.db, duckdb:///FILE or postgresql://user@host/name."""

    config: Annotated[Path | None, Parameter(metavar="FILE")] = None
    """Read settings from this file instead of rota.toml."""


# Defaults of parameters: immutable, so one of each is enough.
SHOW, HERE = Show(), Where()
