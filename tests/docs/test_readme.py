"""The README is a story, not a long one, and its figures are those of docs/benchmarks.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.story import Story, blocks

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
THREE_SCREENS = 135


def test_the_readme_is_true(story: Story) -> None:
    story.tell(README)
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


# What pages claim, in their own words, and the figures that must bear it.
BULK = "bulk enqueue (limits: COPY), runs/s"
START = "enqueue to start in another process, ms, p50"
DUE = "10,000 schedules due at once, s"
PARTS = ("PostgreSQL, synced commits", "SQLite, `synchronous=FULL`")
PAGE_README, PAGE_OPERATIONS = "README.md", "docs/operations.md"
ABOVE = [
    (
        PAGE_README,
        "above {} runs a second in one process",
        20_000,
        PARTS,
        "drain, 1 process, runs/s",
    ),
    (PAGE_OPERATIONS, "above {} of handlers", 20_000, PARTS, "drain, 1 process, runs/s"),
    (PAGE_OPERATIONS, "| above {} |", 20_000, PARTS[:1], "drain, 2 processes, runs/s"),
    (PAGE_OPERATIONS, "above {} a second on PostgreSQL", 60_000, PARTS[:1], BULK),
    (PAGE_OPERATIONS, "a second on PostgreSQL, {} on SQLite", 100_000, PARTS[1:], BULK),
]
BELOW = [
    (PAGE_README, "below {} ms (median)", 5, PARTS, START),
    (PAGE_OPERATIONS, "below {} ms, half of the time", 5, PARTS, START),
    (PAGE_README, "due at once below {} s", 1, PARTS, DUE),
    (PAGE_OPERATIONS, "due in one instant | below {} s", 1, PARTS, DUE),
    (PAGE_README, "an idle process below {} MB", 60, PARTS, "idle worker, mb"),
    (PAGE_OPERATIONS, "an idle process | below {} MB", 60, PARTS, "idle worker, mb"),
    (PAGE_OPERATIONS, "below {} % of a core", 1, PARTS, "idle worker, percent"),
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


@pytest.mark.parametrize(("page", "words", "bound", "parts", "measure"), ABOVE)
def test_what_is_above(
    page: str, words: str, bound: int, parts: tuple[str, ...], measure: str
) -> None:
    assert words.format(f"{bound:,}") in flat(page)
    assert all(max(figures()[part, measure]) > bound for part in parts)


@pytest.mark.parametrize(("page", "words", "bound", "parts", "measure"), BELOW)
def test_what_is_below(
    page: str, words: str, bound: int, parts: tuple[str, ...], measure: str
) -> None:
    assert words.format(f"{bound:,}") in flat(page)
    assert all(min(figures()[part, measure]) < bound for part in parts)


def flat(page: str) -> str:
    return " ".join((ROOT / page).read_text("utf-8").split())
