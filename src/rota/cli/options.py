"""Flags that commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rota.cli.parameter import Parameter


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """How to answer."""

    json: bool = False
    """Answer as JSON: stable keys, instants as ISO 8601."""


@dataclass(frozen=True, kw_only=True)
class WhereOptions(ShowOptions):
    """Which store to ask, and how to answer."""

    database: Annotated[str | None, Parameter(metavar="URL")] = None
    """The store: sqlite:///rota.db, duckdb:///FILE or postgresql://user@host/name."""

    config: Annotated[Path | None, Parameter(metavar="FILE")] = None
    """Read settings from this file instead of rota.toml."""


@dataclass(frozen=True, kw_only=True)
class ManyOptions:
    """Which runs, where many are meant."""

    all: bool = False
    """Every run that the options below find. Asks before it does so."""

    job: Annotated[str | None, Parameter(metavar="NAME")] = None
    """With --all: only runs of this job."""

    schedule: Annotated[str | None, Parameter(metavar="NAME")] = None
    """With --all: only runs that this schedule made."""

    queue: Annotated[str | None, Parameter(metavar="NAME")] = None
    """With --all: only runs in this queue."""

    state: Annotated[str | None, Parameter(metavar="STATE")] = None
    """With --all: only runs in this state."""

    yes: bool = False
    """With --all: do not ask."""

    @property
    def filters(self) -> list[str]:
        """The options that were given."""
        names = ("job", "schedule", "queue", "state")
        return [f"--{name}" for name in names if getattr(self, name) is not None]


# Each field is an option by itself.
Show = Annotated[ShowOptions, Parameter(name="*")]
Where = Annotated[WhereOptions, Parameter(name="*")]
Many = Annotated[ManyOptions, Parameter(name="*")]
# Defaults of parameters: immutable, so one of each is enough.
SHOW, HERE, ONE = ShowOptions(), WhereOptions(), ManyOptions()
