"""Rules taken away on purpose, in a process of the campaign, to see that the campaign notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from rota.storage import statements

WEAKENED: dict[str, Mapping[str, tuple[tuple[str, str], ...]]] = {
    # A worker that lost its lease settles all the same.
    "settle without fence": {
        "settle_runs": (
            ("AND state = 'running' AND attempt = :attempt", ""),
            ("AND r.state = 'running' AND r.attempt = s.attempt", ""),
        )
    },
}


@contextmanager
def weaken(name: str | None) -> Iterator[None]:
    if name is None:
        yield
        return
    with ExitStack() as stack:
        for engine in ("sqlite", "postgres"):
            place = f"rota.storage.{engine}.engine.load_statements"
            stack.enter_context(patch(place, _reworded(WEAKENED[name])))
        yield


def _reworded(
    changes: Mapping[str, tuple[tuple[str, str], ...]],
) -> Callable[[str, Mapping[str, str]], dict[str, str]]:
    def load(engine: str, substitutions: Mapping[str, str]) -> dict[str, str]:
        found = dict(statements.load_statements(engine, substitutions))
        for statement, wordings in changes.items():
            text = found[statement]
            for old, new in wordings:
                found[statement] = found[statement].replace(old, new)
            assert found[statement] != text, f"{statement} says none of {wordings} any more"
        return found

    return load
