"""Policies: their names and aliases, the defaults, and what overlap decides."""

from __future__ import annotations

import pytest

from rota.errors import Invalid
from rota.model.policies import (
    ANCHOR,
    API,
    CATCH_UP,
    DEFAULT_OVERLAP,
    DEFAULT_RETRY,
    DST,
    ISOLATION,
    ON_ERROR,
    OVERLAP,
    PYTHON,
    SQL_FILE,
    choose,
    decide_overlap,
)


@pytest.mark.parametrize(
    ("said", "meant"),
    [("queue", "queue"), ("wait", "wait"), ("skip", "skip"), ("allow", "allow"),
     ("start", "allow"), ("no_wait", "allow"), ("SKIP", "skip"), ("No_Wait", "allow")],
)  # fmt: skip
def test_overlap_by_any_of_its_names(said: str, meant: str) -> None:
    assert choose(said, OVERLAP, "overlap") == meant


@pytest.mark.parametrize(
    ("said", "meant"),
    [("next", "next"), ("reschedule", "next"), ("retry_sched", "next"), ("retry", "retry"),
     ("retry_soon", "retry"), ("pause", "pause"), ("pause_sched", "pause"), ("PAUSE", "pause")],
)  # fmt: skip
def test_on_error_by_any_of_its_names(said: str, meant: str) -> None:
    assert choose(said, ON_ERROR, "on_error") == meant


@pytest.mark.parametrize(
    ("values", "table"),
    [
        (("one", "none", "all"), CATCH_UP),
        (("vixie", "literal", "skip_once"), DST),
        (("rate", "delay"), ANCHOR),
        (("thread", "process"), ISOLATION),
    ],
)
def test_the_other_policies_have_no_aliases(values: tuple[str, ...], table: dict[str, str]) -> None:
    assert table == {value: value for value in values}


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(Invalid) as caught:
        choose("qeue", OVERLAP, "overlap")
    assert str(caught.value) == (
        "overlap 'qeue' is unknown; use queue, wait, skip, allow, start, no_wait; "
        "did you mean 'queue'?"
    )


@pytest.mark.parametrize("value", ["zzz", "", None, 5, True, ["queue"]])
def test_what_is_no_policy_is_refused_with_all_that_are(value: object) -> None:
    with pytest.raises(Invalid, match="is unknown; use one, none, all"):
        choose(value, CATCH_UP, "catch_up")


def test_the_defaults_depend_on_where_a_definition_came_from() -> None:
    assert DEFAULT_OVERLAP == {SQL_FILE: "queue", PYTHON: "skip", API: "wait"}
    attempts = {source: retry.max_attempts for source, retry in DEFAULT_RETRY.items()}
    assert attempts == {SQL_FILE: 1, PYTHON: 3, API: 3}


# overlap, free, held, queue_max -> decision. Held counts the runs that wait, not the running one.
DECISIONS = [
    ("allow", True, 0, None, "start"),
    ("allow", False, 0, None, "start"),
    ("allow", False, 9, 0, "start"),
    ("queue", True, 0, None, "start"),
    ("queue", True, 0, 0, "start"),
    ("queue", False, 0, None, "hold"),
    ("queue", False, 999, None, "hold"),
    ("queue", False, 0, 0, "drop"),
    ("queue", False, 0, 1, "hold"),
    ("queue", False, 1, 1, "drop"),
    ("queue", False, 2, 3, "hold"),
    ("queue", False, 3, 3, "drop"),
    ("queue", False, 4, 3, "drop"),
    ("wait", True, 0, None, "start"),
    ("wait", False, 0, None, "hold"),
    ("wait", False, 1, None, "merge"),
    ("wait", False, 5, None, "merge"),
    ("skip", True, 0, None, "start"),
    ("skip", False, 0, None, "skip"),
    ("skip", False, 1, None, "skip"),
]


@pytest.mark.parametrize(("overlap", "free", "held", "queue_max", "decision"), DECISIONS)
def test_what_overlap_decides(
    overlap: str, free: bool, held: int, queue_max: int | None, decision: str
) -> None:
    assert decide_overlap(overlap, free=free, held=held, queue_max=queue_max) == decision


@pytest.mark.parametrize("overlap", sorted(set(OVERLAP.values())))
@pytest.mark.parametrize("queue_max", [None, 0, 1])
def test_a_run_that_can_start_now_is_always_accepted(overlap: str, queue_max: int | None) -> None:
    assert decide_overlap(overlap, free=True, held=0, queue_max=queue_max) == "start"
