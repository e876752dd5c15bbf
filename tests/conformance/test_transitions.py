"""Every event in every state: the table's word leads where it says, all else changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest

from rota.errors import Conflict, Unknown
from rota.model.retry import ONCE, Retry
from rota.model.run import Run
from rota.model.transitions import EVENTS, STATES, TRANSITIONS, may_delete, target
from rota.storage import operations
from rota.storage.store import Store
from tests.conformance.support import (
    ME,
    Place,
    VirtualClock,
    all_runs,
    as_claimed,
    claim,
    claim_one,
    enqueue,
    new_run,
    settle,
)

PAIRS = [(state, event) for state in STATES for event in EVENTS]


def test_the_table_names_every_state_and_event() -> None:
    assert set(TRANSITIONS) == set(STATES)
    assert {event for events in TRANSITIONS.values() for event in events} == set(EVENTS)


def bring(store: Store, place: Place, state: str) -> str:
    """A run in that state, by the calls that lead there."""
    match state:
        case "waiting":
            return enqueue(store, delay=timedelta(minutes=1))
        case "held":
            # Left by a caller's transaction: its slot is free, only admit has not come by.
            caller = place.begin()
            (made,) = store.enqueue_on(caller, [new_run(concurrency_key="c")])
            caller.commit()
            caller.close()
            return made.id
        case "queued":
            return enqueue(store)
        case "running":
            run_id = enqueue(store)
            claim_one(store)
            return run_id
        case "paused":
            run_id = enqueue(store)
            store.write(operations.pause_run, run_id, None, ME)
            return run_id
        case "cancelled":
            run_id = enqueue(store)
            store.write(operations.cancel_run, run_id, None, ME)
            return run_id
        case _:
            run_id = enqueue(store)
            kind = {"succeeded": "succeeded", "dead": "failed"}[state]
            settle(store, claim_one(store), kind, retry=ONCE)
            return run_id


def ending(kind: str, retry: Retry) -> Callable[[Store, Run], object]:
    """The settle of a worker that believes the run to be its own."""
    return lambda store, run: settle(store, as_claimed(run), kind, retry=retry)


def pause(store: Store, run: Run) -> None:
    store.write(operations.pause_run, run.id, None, ME)
    if run.state == "running":
        settle(store, as_claimed(run), "released")


def cancel(store: Store, run: Run) -> None:
    store.write(operations.cancel_run, run.id, None, ME)
    if run.state == "running":
        settle(store, as_claimed(run), "cancelled")


CALLS: dict[str, Callable[[Store, Run], object]] = {
    "promote": lambda store, run: store.write(operations.promote, 10),
    "admit": lambda store, run: store.write(operations.admit, ["c/c"]),
    "claim": lambda store, run: claim(store),
    "succeed": ending("succeeded", ONCE),
    "retry": ending("failed", Retry()),
    "give up": ending("failed", ONCE),
    "let go": ending("released", ONCE),
    "pause": pause,
    "resume": lambda store, run: store.write(operations.resume_run, run.id, None, ME),
    "cancel": cancel,
    "redo": lambda store, run: store.write(operations.redo_run, run.id, None, ME),
}
ASKED_BY_NAME = ("pause", "resume", "cancel", "redo")


@dataclass(frozen=True)
class Answer:
    """What a call on a run in some state led to."""

    refused: bool
    state: str
    changed: bool


def wanted(state: str, event: str) -> Answer:
    """What the table says."""
    to = target(state, event)
    if to is None:
        return Answer(refused=event in ASKED_BY_NAME, state=state, changed=False)
    return Answer(refused=False, state=to, changed=True)


def answer_of(store: Store, place: Place, clock: VirtualClock, state: str, event: str) -> Answer:
    before = store.read(operations.get_run, bring(store, place, state))
    assert before.state == state
    clock.advance("1m")
    refused = False
    try:
        CALLS[event](store, before)
    except Conflict as fault:
        refused = f"is {state}; {event} is not possible" in str(fault)
    after = store.read(operations.get_run, before.id)
    return Answer(refused=refused, state=after.state, changed=after != before)


def remove(store: Store) -> None:
    """All runs, as an operator would: each state is met by one run alone."""
    for run in all_runs(store):
        if run.state == "running":
            settle(store, as_claimed(run), retry=ONCE)
        store.write(operations.delete_run, run.id, None, ME)


def test_an_event_does_what_the_table_says(store: Store, place: Place, clock: VirtualClock) -> None:
    answers = {}
    for state, event in PAIRS:
        answers[state, event] = answer_of(store, place, clock, state, event)
        remove(store)
    assert answers == {pair: wanted(*pair) for pair in PAIRS}


def test_delete_is_possible_from_all_states_but_running(store: Store, place: Place) -> None:
    deleted = {}
    for state in STATES:
        run_id = bring(store, place, state)
        try:
            store.write(operations.delete_run, run_id, None, ME)
        except Conflict:
            assert store.read(operations.get_run, run_id).state == state
            deleted[state] = False
        else:
            with pytest.raises(Unknown):
                store.read(operations.get_run, run_id)
            deleted[state] = True
        remove(store)
    assert deleted == {state: may_delete(state) for state in STATES}


def test_promote_leads_to_held_while_the_slot_is_taken(store: Store, clock: VirtualClock) -> None:
    enqueue(store, concurrency_key="c")
    run_id = enqueue(store, concurrency_key="c", delay=timedelta(minutes=1))
    clock.advance("1m")
    store.write(operations.promote, 10)
    assert store.read(operations.get_run, run_id).state == "held"
