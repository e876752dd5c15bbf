"""Every file, command and answer of the guide."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.story import Story, blocks, matches
from tests.surface.conftest import Cli

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "sql-jobs.md"


def test_the_guide_is_true(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    story = Story(cli, tmp_path)
    try:
        story.tell(GUIDE)
    finally:
        story.close()
    assert (story.files, story.commands) == (13, 11)


def test_nothing_of_the_guide_is_left_out() -> None:
    told = GUIDE.read_text("utf-8")
    assert told.count("```") == 2 * len(blocks(GUIDE))
    assert {one.kind for one in blocks(GUIDE) if one.path is None} == {"sh", "console"}


@pytest.mark.parametrize(
    ("wanted", "told", "alike"),
    [
        ("a  b\n", "a    b\n", True),
        ("run … is dead: x\n", "run 12 is dead: x\n", True),
        ("run … is dead: x\n", "run 12 is dead: y\n", False),
        ("a\n…\n", "a\nb\nc\n", True),
        ("a\n…\n", "b\nc\n", False),
        ("a\n", "a\nb\n", False),
        ("a\nb\n", "a\n", False),
    ],
)
def test_answers_are_compared(wanted: str, told: str, alike: bool) -> None:
    assert matches(wanted, told) is alike
