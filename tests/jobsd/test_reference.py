"""The page about jobs.d names every key that a file may have, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from rota.executors.examine import OPTIONS
from rota.jobsd.manifest import KNOWN
from rota.model.bodies import KEYS
from rota.model.policies import PYTHON, SQL_FILE

PAGE = Path(__file__).parents[2] / "docs" / "jobs.d.md"


def documented() -> set[str]:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    keys = [row.split("|")[1] for row in rows]
    return {name for cell in keys for name in re.findall(r"`\[?([a-z_]+)\]?`", cell)}


def test_the_page_names_every_key() -> None:
    bodies = {key for keys in KEYS.values() for key in keys}
    assert documented() == KNOWN[SQL_FILE] | KNOWN[PYTHON] | bodies


def test_what_a_python_file_may_say_is_what_is_read_of_it() -> None:
    assert set(OPTIONS) == KNOWN[PYTHON]
