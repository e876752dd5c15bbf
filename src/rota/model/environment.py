"""Variables that begin with ROTA_: which are settings, and which did somebody mean as one?

A slip of the pen is refused. A name that resembles no setting may belong to somebody else, as
ROTA_SERVICE_HOST does, which Kubernetes makes for a service called rota: it is told, and no more.
So is a ROTA_PORT of Kubernetes, which has the name of a setting: its value tells it apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

# Here, and not where texts are filled in: every command asks for these names, few fill in.
RESERVED: Final = "ROTA_"
INJECTED: Final = ("ROTA_JOB_NAME", "ROTA_RUN_ID", "ROTA_ATTEMPT", "ROTA_SCHEDULED_AT")
ARGS: Final = "ROTA_ARGS"  # all arguments of a run, as JSON
RUN_VARIABLES: Final = (
    *INJECTED,
    ARGS,
)  # what a run gets: a command of Rota inside of one sees them
TESTS: Final = "ROTA_TEST_"
PORT: Final = RESERVED + "PORT"
LINKS: Final = ("tcp://", "udp://", "sctp://")  # tcp://10.0.0.1:7682 is where a service is
SURE: Final = 0.8  # how alike two names are, from 0 to 1: `slott` and `slots` are 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A variable that sets nothing. `meant`: so much like a setting that it must be one."""

    name: str
    meant: bool
    fix: str


def is_link(name: str, value: str) -> bool:
    """Whether Kubernetes made this variable, though it has the name of a setting."""
    return name == PORT and value.startswith(LINKS)


def strays(
    variables: Mapping[str, str],
    settings: Collection[str],
    tables: Mapping[str, Collection[str] | None],
) -> list[Stray]:
    """Those among `variables` that set nothing. Each of `settings` has a variable; what is in one
    of `tables` has a place in the file only: these names, or with None any."""
    known = {RESERVED + name.upper() for name in settings} | set(RUN_VARIABLES)
    links = {name for name, value in variables.items() if is_link(name, value)}
    found = sorted(
        name
        for name in variables
        if name.startswith(RESERVED) and name not in known - links and not name.startswith(TESTS)
    )
    return [_link(name) if name in links else _stray(name, settings, tables) for name in found]


def _link(name: str) -> Stray:
    fix = "Kubernetes made it for a service called rota; enableServiceLinks: false leaves it out"
    return Stray(name=name, meant=False, fix=fix)


def _stray(
    name: str, settings: Collection[str], tables: Mapping[str, Collection[str] | None]
) -> Stray:
    told = name.removeprefix(RESERVED).lower()
    for table, inside in tables.items():
        if told == table:
            return _in_file(name, table)
        part = told.removeprefix(f"{table}_").lstrip("_")
        if part == told:
            continue
        close = [part] if inside is None else get_close_matches(part, inside, n=1, cutoff=SURE)
        if close:
            return _in_file(name, table, close[0])
    for cutoff in (SURE, 0.6):
        if close := get_close_matches(told, settings, n=1, cutoff=cutoff):
            fix = f"did you mean {RESERVED}{close[0].upper()}?"
            return Stray(name=name, meant=cutoff == SURE, fix=fix)
    return Stray(name=name, meant=False, fix="docs/configuration.md lists them all")


def _in_file(name: str, table: str, key: str = "") -> Stray:
    told = f"{key} = …" if key else "…"
    fix = f"there is no variable for it: write it into rota.toml, [{table}] {told}"
    return Stray(name=name, meant=True, fix=fix)
