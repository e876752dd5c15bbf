"""The README is a story, not a long one, and its figures are those of docs/benchmarks.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.story import Story, blocks
from tests.surface.conftest import Cli

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
THREE_SCREENS = 135


def test_the_readme_is_true(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("ROTA_PORT", "0")
    story = Story(cli, tmp_path)
    try:
        story.tell(README)
    finally:
        story.close()
    assert (story.files, story.commands) == (5, 6)


def test_it_fits_three_screens_and_leaves_no_block_out() -> None:
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= THREE_SCREENS
    assert text.count("```") == 2 * len(blocks(README))
    assert {one.kind for one in blocks(README) if one.path is None} == {"text", "console"}


def test_what_it_tells_to_make_can_be_made() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    told = set(re.findall(r"\bmake ([a-z-]+)", README.read_text("utf-8")))
    assert {"up", "test", "bench"} <= told
    assert told <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_what_it_links_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text("utf-8"))
    assert [one for one in links if not (ROOT / one).exists()] == []


# What pages claim, and the figures that must bear it: part, measure, best of Rota's two handlers.
PARTS = ("PostgreSQL, synced commits", "SQLite, `synchronous=FULL`")
ABOVE = [
    ("drain, 1 process, runs/s", PARTS, 20_000),
    ("drain, 2 processes, runs/s", PARTS[:1], 30_000),
    ("bulk enqueue (limits: COPY), runs/s", PARTS[:1], 80_000),
    ("bulk enqueue (limits: COPY), runs/s", PARTS[1:], 100_000),
]
BELOW = [
    ("enqueue to start in another process, ms, p50", PARTS, 5),
    ("10,000 schedules due at once, s", PARTS, 1),
    ("idle worker, mb", PARTS, 60),
    ("idle worker, percent", PARTS, 1),
]


def figures() -> dict[tuple[str, str], list[float]]:
    """Medians of Rota by part and measure."""
    text = (ROOT / "docs" / "benchmarks.md").read_text("utf-8").split("## All figures")[1]
    found: dict[tuple[str, str], list[float]] = {}
    part = ""
    for line in text.splitlines():
        part = next((one for one in PARTS if line == f"{one}:"), part)
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 4 and cells[2].startswith("Rota"):
            median = re.match(r"[\d.,]+", cells[3])
            assert median is not None, line
            found.setdefault((part, cells[1]), []).append(float(median[0].replace(",", "")))
    return found


@pytest.mark.parametrize(("measure", "parts", "bound"), ABOVE)
def test_what_is_above(measure: str, parts: tuple[str, ...], bound: float) -> None:
    assert all(max(figures()[part, measure]) > bound for part in parts)


@pytest.mark.parametrize(("measure", "parts", "bound"), BELOW)
def test_what_is_below(measure: str, parts: tuple[str, ...], bound: float) -> None:
    assert all(min(figures()[part, measure]) < bound for part in parts)
