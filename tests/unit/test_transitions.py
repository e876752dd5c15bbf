"""The states of a run: the table of the design, cell by cell, and nothing beside it."""

from __future__ import annotations

import pytest

from rota.errors import Conflict
from rota.model.transitions import (
    EVENTS,
    PENDING,
    STATES,
    TERMINAL,
    TRANSITIONS,
    may_delete,
    require,
    sources,
    target,
)

TABLE = """
from      | promote | admit  | claim   | succeed   | retry   | give up | let go | pause  | resume  | cancel    | redo
waiting   | queued  |        |         |           |         |         |        | paused |         | cancelled |
held      |         | queued |         |           |         |         |        | paused |         | cancelled |
queued    |         |        | running |           |         |         |        | paused |         | cancelled |
running   |         |        |         | succeeded | waiting | dead    | queued | paused |         | cancelled |
paused    |         |        |         |           |         |         |        |        | waiting | cancelled |
succeeded |         |        |         |           |         |         |        |        |         |           | waiting
dead      |         |        |         |           |         |         |        |        |         |           | waiting
cancelled |         |        |         |           |         |         |        |        |         |           | waiting
"""  # noqa: E501  a table is read in rows


def cells() -> list[tuple[str, str, str | None]]:
    header, *rows = ([cell.strip() for cell in line.split("|")] for line in TABLE.split("\n")[1:-1])
    return [
        (row[0], event, cell or None)
        for row in rows
        for event, cell in zip(header[1:], row[1:], strict=True)
    ]


@pytest.mark.parametrize(("state", "event", "after"), cells())
def test_each_cell_of_the_table(state: str, event: str, after: str | None) -> None:
    assert target(state, event) == after


def test_the_table_names_all_states_and_events() -> None:
    assert {state for state, _, _ in cells()} == set(STATES) == set(TRANSITIONS)
    assert [event for state, event, _ in cells() if state == "held"] == list(EVENTS)
    told = {event for events in TRANSITIONS.values() for event in events}
    assert told == set(EVENTS)


@pytest.mark.parametrize("event", EVENTS)
def test_sources_are_the_states_an_event_is_legal_in(event: str) -> None:
    legal = [state for state, told, after in cells() if told == event and after is not None]
    assert sorted(sources(event)) == sorted(legal)


def test_an_illegal_event_says_what_is_possible() -> None:
    with pytest.raises(Conflict) as caught:
        require("paused", "claim", "run 7")
    assert str(caught.value) == (
        "run 7 is paused; claim is not possible then (possible: resume, cancel)"
    )
    assert require("paused", "resume", "run 7") == "waiting"


def test_a_run_can_be_deleted_unless_a_worker_owns_it() -> None:
    assert [state for state in STATES if not may_delete(state)] == ["running"]


def test_an_end_is_left_only_by_redo() -> None:
    assert {state: set(TRANSITIONS[state]) for state in TERMINAL} == {
        state: {"redo"} for state in ("succeeded", "dead", "cancelled")
    }
    assert PENDING == ("waiting", "held", "queued")
