"""Rules taken away on purpose, in a process of the campaign, to see that the campaign notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from rota.storage import statements

# Statement, then what is replaced in it; the wording of either engine must be there.
WEAKENED: dict[str, Mapping[str, tuple[tuple[str, str], ...]]] = {
    # A worker that lost its lease settles all the same.
    "settle without fence": {
        "settle_runs": (
            ("AND r.state = 'running' AND r.attempt = :attempt", ""),
            ("r.state = 'running' AND r.attempt = a.attempt", "true"),
        ),
        "lost_first_attempts": (("AND attempt = 1 AND state = 'running'", ""),),
        "succeed_silent_runs": (
            ("AND attempt = 1 AND state = 'running'", ""),
            ("r.attempt = 1 AND r.state = 'running'", "true"),
        ),
        "succeed_runs": (
            ("AND attempt = 1 AND state = 'running'", ""),
            ("r.attempt = 1 AND r.state = 'running'", "true"),
        ),
    },
    # Two processes that read the same cursor both fire.
    "cursor moved without comparing": {
        # One that was fired is not due, which would refuse most of them as well.
        "advance_schedules": (
            ("AND next_fire_at = :cursor_at", ""),
            ("AND next_fire_at <= :now", ""),
            ("AND x.next_fire_at = a.cursor_at", ""),
            ("AND x.next_fire_at <= (SELECT clock_timestamp())", ""),
            ("AND x.next_fire_at = :cursor_at", ""),
            ("AND x.next_fire_at <= (SELECT :now)", ""),
        ),
        "fire_free": (
            ("AND next_fire_at = a.cursor_at", ""),
            ("AND next_fire_at <= (SELECT now FROM t)", ""),
        ),
    },
    # A key has one slot more than it should.
    "one more than the key allows": {
        "held_runs": (("THEN concurrency_limit ELSE 1", "THEN concurrency_limit + 1 ELSE 2"),),
        "admit_runs": (("THEN concurrency_limit ELSE 1", "THEN concurrency_limit + 1 ELSE 2"),),
    },
    # Whoever is asked to rescue takes what is still held.
    "rescue that does not look at the lease": {
        "expired_runs": (
            ("AND lease_until <= (SELECT :now)", ""),
            ("AND lease_until <= (SELECT clock_timestamp())", ""),
        ),
        "settle_runs": (
            ("AND (NOT :expired_only OR r.lease_until <= :now)", ""),
            ("AND (NOT a.expired_only OR r.lease_until <= (SELECT now FROM t))", ""),
        ),
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
) -> Callable[..., dict[str, str]]:
    def load(engine: str, substitutions: Mapping[str, str], *more: str) -> dict[str, str]:
        real = statements.load_statements(engine, substitutions, *more)
        found = dict(real)
        for statement, wordings in changes.items():
            if statement not in real:
                continue  # the other engine's way to say it
            for old, new in wordings:
                found[statement] = found[statement].replace(old, new)
            assert found[statement] != real[statement], f"{engine} {statement}"
        assert found != real, f"{engine} says none of {changes} any more"
        return found

    return load
