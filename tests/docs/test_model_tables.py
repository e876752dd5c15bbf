"""Tables of the model stand on the pages as the code has them."""

from __future__ import annotations

import re

import pytest

from rota.model import transitions
from rota.model.options import RETRY_OPTIONS, SCHEDULE_OPTIONS
from rota.model.outcome import KINDS
from scripts import model_tables
from scripts.model_tables import DOCS, PARTS, written

CONCEPTS = (DOCS / "concepts.md").read_text("utf-8")
POLICIES = (DOCS / "policies.md").read_text("utf-8")


@pytest.mark.parametrize("name", PARTS)
def test_a_file_says_what_the_model_says(name: str) -> None:
    text = PARTS[name][0].read_text("utf-8")
    assert written(name, text) == text, "run: python scripts/model_tables.py"


def test_another_rule_is_another_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(transitions.TRANSITIONS[transitions.HELD], "claim", transitions.RUNNING)
    monkeypatch.setitem(model_tables.DEFAULT_OVERLAP, "api", "skip")
    assert written("states", CONCEPTS) != CONCEPTS
    assert written("values", POLICIES) != POLICIES


def test_every_state_event_and_outcome_is_explained() -> None:
    for state in transitions.STATES:
        assert re.search(rf"^\| (`\w+`, )*`{state}`(, `\w+`)* \| [a-z]", CONCEPTS, re.MULTILINE)
    told = CONCEPTS.partition("<!-- end of states -->")[2]
    for event in set(transitions.EVENTS) - {"succeed", "resume", "redo"}:  # these say it themselves
        assert f"*{event}*" in told, event
    for kind in set(KINDS) - {"snoozed", "paused"}:
        assert f"`{kind}`" in told, kind


def test_every_option_of_time_and_failure_is_on_the_page() -> None:
    other = {"args", "enabled", "overlap_key", "owner", "priority", "retry", "timezone"}
    for option in {*SCHEDULE_OPTIONS, *RETRY_OPTIONS} - other:
        assert re.search(rf"`{option}\b", POLICIES), option
