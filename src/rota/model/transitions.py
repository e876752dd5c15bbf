"""The states of a run and all transitions between them.

Storage statements name the state they expect, a conformance test tries every (state, event) pair on
every engine, and the docs page is generated from this table.
"""

from __future__ import annotations

from rota.errors import Conflict

WAITING, HELD, QUEUED, RUNNING, PAUSED = "waiting", "held", "queued", "running", "paused"
SUCCEEDED, DEAD, CANCELLED = "succeeded", "dead", "cancelled"

TERMINAL = (SUCCEEDED, DEAD, CANCELLED)
PENDING = (WAITING, HELD, QUEUED)
STATES = (*PENDING, RUNNING, PAUSED, *TERMINAL)

# waiting: due later, or between attempts. held: a slot it needs is taken.
# promote leads to held instead of queued while the run still waits for a slot.
TRANSITIONS: dict[str, dict[str, str]] = {
    WAITING: {"promote": QUEUED, "pause": PAUSED, "cancel": CANCELLED},
    HELD: {"admit": QUEUED, "pause": PAUSED, "cancel": CANCELLED},
    QUEUED: {"claim": RUNNING, "pause": PAUSED, "cancel": CANCELLED},
    RUNNING: {
        "succeed": SUCCEEDED,
        "retry": WAITING,
        "give up": DEAD,
        "let go": QUEUED,
        "pause": PAUSED,
        "cancel": CANCELLED,
    },
    PAUSED: {"resume": WAITING, "cancel": CANCELLED},
    SUCCEEDED: {"redo": WAITING},
    DEAD: {"redo": WAITING},
    CANCELLED: {"redo": WAITING},
}

EVENTS = (
    "promote", "admit", "claim", "succeed", "retry", "give up", "let go",
    "pause", "resume", "cancel", "redo",
)  # fmt: skip

# Events that an operator can request; the others are automatic.
OPERATORS = ("pause", "resume", "cancel", "redo")


def target(state: str, event: str) -> str | None:
    """The state after `event`, or None if it is not legal in `state`."""
    return TRANSITIONS[state].get(event)


def sources(event: str) -> tuple[str, ...]:
    """The states in which `event` is legal."""
    return tuple(state for state in STATES if event in TRANSITIONS[state])


def require(state: str, event: str, what: str) -> str:
    """The state after `event`; Conflict, naming the possible events, if it is not legal."""
    after = target(state, event)
    if after is None:
        allowed = [name for name in TRANSITIONS[state] if name in OPERATORS]
        possible = ", ".join(allowed) or "nothing"
        raise Conflict(f"{what} is {state}; {event} is not possible then (possible: {possible})")
    return after


def may_delete(state: str) -> bool:
    """True for all states but running: a worker still owns that row."""
    return state != RUNNING
