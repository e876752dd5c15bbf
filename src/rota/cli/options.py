"""`Option`: all there is to say of an option or an argument; and those that commands share.

An option is declared where its value arrives: in the annotation of a parameter, or in a mapping
that `takes` gives to a function with `**options`. Reading, help, docs/cli.md and completion are
made from these declarations (`cli/table.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

# What completes a value: names of a kind, by asking the store (both: of schedules and jobs); or
# files.
JOBS, SCHEDULES, QUEUES, BOTH, FILES = "jobs", "schedules", "queues", "names", "files"
F = TypeVar("F", bound=Callable[..., Any])


# Compared by identity: the methods that a comparison needs are made at each start of a command.
@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One option; or an argument, which `table_of` leaves without names."""

    help: str
    metavar: str = ""
    # All its names, such as `("--tz", "--timezone")`; its parameter's own if none is given.
    names: tuple[str, ...] = ()
    # The name that sets a flag to False.
    off: str = ""
    # What completes its value: these words, or one of the kinds above.
    values: str | tuple[str, ...] = ()
    # Not in help, docs and completion.
    hidden: bool = False
    # From here on `table_of` fills in what the signature says.
    kind: type = str
    # May be repeated: the values are a list.
    many: bool = False
    required: bool = False
    # The parameter of the function, and the field in it where that is a group.
    key: str = ""
    field: str = ""


def takes(options: Mapping[str, Option]) -> Callable[[F], F]:
    """Give a function these options beside those of its signature; they arrive in `**options`."""

    def mark(function: F) -> F:
        vars(function)[TAKEN] = options
        return function

    return mark


TAKEN = "__options__"


# A parameter of one of the next three types is a group: each field is an option.


@dataclass(frozen=True, kw_only=True)
class Show:
    """How to answer."""

    json: Annotated[bool, Option("Answer as JSON: stable keys, instants as ISO 8601.")] = False


@dataclass(frozen=True, kw_only=True)
class Where(Show):
    """Which store to ask, and how to answer."""

    database: Annotated[
        str | None,
        Option(
            "The store: sqlite:///rota.db, duckdb:///FILE or postgresql://user@host/name.", "URL"
        ),
    ] = None
    config: Annotated[
        Path | None, Option("Read settings from this file instead of rota.toml.", "FILE")
    ] = None


# Defaults of parameters: immutable, so one of each is enough.
SHOW, HERE = Show(), Where()

# Arguments and options of several commands.
RunId = Annotated[str, Option("Its id, or at least 6 characters of its beginning.", "RUN")]
MaybeRun = Annotated[
    str | None, Option("Its id, or at least 6 characters of its beginning.", "RUN")
]
Limit = Annotated[int, Option("At most this many.")]
AfterName = Annotated[
    str | None, Option("Begin after this name: the way to the next page.", "NAME")
]
Arg = Annotated[
    list[str] | None,
    Option(
        "One argument, may be repeated. Read as JSON unless the job asks for text.", "NAME=VALUE"
    ),
]
Wait = Annotated[bool, Option("Wait for the run to end; exit 1 if it did not succeed.")]
