"""docs/architecture.md answers what newcomers ask, and every place that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

from scripts import storage_counts

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text("utf-8")
SOURCE = ROOT / "src" / "rota"
PLACE = re.compile(r"`([\w./]+(?:\.py|\.sql|\.js|\.md|\.toml|/))`")
QUESTIONS = {
    "does an occurrence become a run": "storage/operations/firing.py",
    "is a run claimed": "storage/operations/claiming.py",
    "may a state change": "model/transitions.py",
    "do I add an executor": "executors/registry.py",
    "is a verb of the command line": "cli/commands.py",
    "is an HTTP route": "web/routes/",
    "is a screen of the dashboard": "web/static/screens/",
}


def test_what_newcomers_ask_is_answered() -> None:
    first = TEXT.partition("What newcomers ask first:")[2].partition("And then:")[0]
    rows = re.findall(r"^\| Where (.*?)(?:,.*)?\? \| (.*) \|$", first, re.MULTILINE)
    assert [question for question, _ in rows] == list(QUESTIONS)
    for question, answer in rows:
        assert f"`{QUESTIONS[question]}`" in answer


def test_every_place_is_there() -> None:
    found = PLACE.findall(TEXT)
    assert len(found) > 60
    for place in found:
        # A bare name is of a file that several folders have, such as queries.sql.
        near = [SOURCE / place, ROOT / place, ROOT / "scripts" / place]
        alike = SOURCE.rglob(place) if "/" not in place else ()
        assert any(one.exists() for one in (*near, *alike)), place


def test_every_room_and_package_is_on_the_map() -> None:
    rooms = TEXT.partition("## Rooms")[2].partition("## ")[0]
    for room in SOURCE.iterdir():
        if room.is_dir() and (room / "__init__.py").exists():
            assert re.search(rf"\b{room.name}\b", rooms), room.name


def test_the_figures_of_storage_are_those_of_the_script() -> None:
    assert storage_counts.table() in TEXT, "run python scripts/storage_counts.py"
    assert storage_counts.fast_paths() in TEXT, "run python scripts/storage_counts.py"
