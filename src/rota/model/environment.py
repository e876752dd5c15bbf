"""Find variables that begin with ROTA_ and are no setting.

A name that is close to a setting is a typing error and is refused. A name that resembles no setting
may have another owner: Kubernetes sets ROTA_SERVICE_HOST for a service called rota. It only gives
a warning. So does a ROTA_PORT of Kubernetes, which has the name of a setting: its value tells it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

# Here, and not in `fill`: every command needs these names, few commands fill in variables.
RESERVED: Final = "ROTA_"
INJECTED: Final = ("ROTA_JOB_NAME", "ROTA_RUN_ID", "ROTA_ATTEMPT", "ROTA_SCHEDULED_AT")
ARGS: Final = "ROTA_ARGS"  # all arguments of a run, as JSON
# In the environment of a run, and so of `rota` commands inside of it.
RUN_VARIABLES: Final = (*INJECTED, ARGS)
TESTS: Final = "ROTA_TEST_"
PORT: Final = RESERVED + "PORT"
LINKS: Final = ("tcp://", "udp://", "sctp://")  # the address of a service, as tcp://10.0.0.1:7682
SURE: Final = 0.8  # similarity of names, from 0 to 1: `slott` and `slots` have 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A variable that sets nothing. `is_mistake`: similar enough to a setting to be a typo."""

    name: str
    is_mistake: bool
    fix: str


def is_link(name: str, value: str) -> bool:
    """True if Kubernetes made this variable, though it has the name of a setting."""
    return name == PORT and value.startswith(LINKS)


def strays(
    variables: Mapping[str, str],
    settings: Collection[str],
    tables: Mapping[str, Collection[str] | None],
) -> list[Stray]:
    """The `variables` that set nothing.

    Each of `settings` has a variable. The names in `tables` belong to the file only: these
    names, or any name where the value is None."""
    known = {RESERVED + name.upper() for name in settings} | set(RUN_VARIABLES)
    links = {name for name, value in variables.items() if is_link(name, value)}
    names = sorted(
        name
        for name in variables
        if name.startswith(RESERVED) and name not in known - links and not name.startswith(TESTS)
    )
    return [_link(name) if name in links else _stray(name, settings, tables) for name in names]


def _link(name: str) -> Stray:
    fix = "Kubernetes made it for a service called rota; enableServiceLinks: false leaves it out"
    return Stray(name=name, is_mistake=False, fix=fix)


def _stray(
    name: str, settings: Collection[str], tables: Mapping[str, Collection[str] | None]
) -> Stray:
    suffix = name.removeprefix(RESERVED).lower()
    for table, inside in tables.items():
        if suffix == table:
            return _in_file(name, table)
        part = suffix.removeprefix(f"{table}_").lstrip("_")
        if part == suffix:
            continue
        close = [part] if inside is None else get_close_matches(part, inside, n=1, cutoff=SURE)
        if close:
            return _in_file(name, table, close[0])
    for cutoff in (SURE, 0.6):
        if close := get_close_matches(suffix, settings, n=1, cutoff=cutoff):
            fix = f"did you mean {RESERVED}{close[0].upper()}?"
            return Stray(name=name, is_mistake=cutoff == SURE, fix=fix)
    return Stray(name=name, is_mistake=False, fix="docs/configuration.md lists them all")


def _in_file(name: str, table: str, key: str = "") -> Stray:
    entry = f"{key} = …" if key else "…"
    fix = f"there is no variable for it: write it into rota.toml, [{table}] {entry}"
    return Stray(name=name, is_mistake=True, fix=fix)
