"""Do one thing to many runs: to those that a filter finds, a page at a time.

A call does one page and says where the next one begins, so that the caller can show how far it
is and stop on the way. Pages go from the newest run to the oldest: one that comes back into the
filter meanwhile, redone and dead again, is behind, and nothing is done to it twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rota.errors import Conflict, Invalid, Unknown
from rota.model.run import Run
from rota.model.transitions import DEAD, STATES, may_delete, sources

REDO, CANCEL, DELETE, PAUSE, RESUME = "redo", "cancel", "delete", "pause", "resume"
VERBS = (REDO, CANCEL, DELETE, PAUSE, RESUME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulk:
    """What became of one page. `before` is where the next one begins; None when there is none."""

    done: int
    left_out: int
    problem: str | None  # why the first of them was left out
    before: int | None


def bulk_states(verb: str, state: str | None) -> tuple[str, ...]:
    """The states whose runs are meant. Only the dead are redone, and nothing deleted, unless a
    state was named: to redo what succeeded is rarely what somebody means."""
    if verb not in VERBS:
        raise Invalid(f"{verb!r} cannot be done to many runs; use {', '.join(VERBS)}")
    legal = _legal(verb)
    if state is not None:
        if state not in STATES:
            raise Invalid(f"state {state!r} is unknown; use {', '.join(STATES)}")
        if state not in legal:
            raise Invalid(
                f"{verb} is not possible for runs that are {state}; possible for {', '.join(legal)}"
            )
        return (state,)
    if verb == DELETE:
        raise Invalid(f"say which runs to delete, by their state: {', '.join(legal)}")
    return (DEAD,) if verb == REDO else legal


def do_page(runs: list[Run], change: Callable[[str], object], before: int | None) -> Bulk:
    """One run after the other; what cannot be done to one of them keeps no other from it."""
    done, problem, left_out = 0, None, 0
    for run in runs:
        try:
            change(run.id)
            done += 1
        except (Conflict, Unknown) as fault:
            problem, left_out = problem or str(fault), left_out + 1
    return Bulk(done=done, left_out=left_out, problem=problem, before=before)


def _legal(verb: str) -> tuple[str, ...]:
    if verb == DELETE:
        return tuple(state for state in STATES if may_delete(state))
    return sources(verb)
