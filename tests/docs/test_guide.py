"""Every file, command and answer of the guides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.story import Story, blocks, matches
from tests.surface.conftest import Cli

GUIDES = Path(__file__).parents[2] / "docs" / "guide"
# How many files and commands each has, so that none is passed over in silence.
SIZES = {"sql-jobs.md": (15, 22), "crontab.md": (11, 33), "celery-team.md": (3, 18)}
TEAMS = "postgresql://shop:secret@db.example.org/shop"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    # Stories are told side by side, and the usual port is for people.
    monkeypatch.setenv("ROTA_PORT", "0")


@pytest.fixture
def story(cli: Cli, tmp_path: Path) -> Iterator[Story]:
    told = Story(cli, tmp_path)
    yield told
    told.close()


@pytest.mark.parametrize("name", ["sql-jobs.md", "crontab.md"])
def test_a_guide_for_one_machine_is_true(name: str, story: Story) -> None:
    story.tell(GUIDES / name)
    assert (story.files, story.commands) == SIZES[name]


def test_the_guide_for_a_team_is_true(cli: Cli, tmp_path: Path, postgres_url: str) -> None:
    told = Story(cli, tmp_path, stands_for={TEAMS: postgres_url})
    try:
        told.tell(GUIDES / "celery-team.md")
    finally:
        told.close()
    assert (told.files, told.commands) == SIZES["celery-team.md"]


@pytest.mark.parametrize("name", sorted(SIZES))
def test_nothing_of_a_guide_is_left_out(name: str) -> None:
    told = blocks(GUIDES / name)
    assert (GUIDES / name).read_text("utf-8").count("```") == 2 * len(told)
    assert {one.kind for one in told if one.path is None} == {"text", "console"}


def test_every_guide_is_told() -> None:
    assert {one.name for one in GUIDES.glob("*.md")} == set(SIZES)


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
