"""A field of `Schedule` is an option everywhere; nothing else has to be written for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import rota
from tests.surface.option_added import migrate

ROOT = Path(__file__).parents[2]
FORM = {
    "name": "shuffle",
    "kind": "whole number",
    "values": [],
    "lowest": 1,
    "highest": 9,
    "default": 7,
    "nullable": False,
    "group": "delay",
    "moves_cursor": False,
    "help": "With overlap = queue: change places, so often.",
}


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that was made, and has a schedule, before there is the option."""
    where = f"{request.param}:///{tmp_path / 'store.db'}"
    if request.param == "postgres":
        where = request.getfixturevalue("postgres_url")
    migrate(where)
    app = rota.Rota(where)

    @app.job(every="1h")
    def work() -> None: ...

    app.load()
    app.close()
    return where


def test_one_more_field_is_one_more_option_on_every_surface(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.surface.option_added", url],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    number = {"type": "integer", "minimum": 1, "maximum": 9}
    assert seen["help"] == ["  --shuffle N: With --overlap queue: change places, so often."]
    assert seen["message"] == ("schedule 'refused': shuffle 10 must be a whole number from 1 to 9")
    assert seen["known to files"] == ["python", "sql_file"]
    assert seen["bodies"] == [{"anyOf": [number, {"type": "null"}]}] * 2
    assert seen["answer"] == {"type": "integer"}
    assert seen["answered"]
    assert seen["patch"] == {"shuffle": 4}
    assert seen["form"] == [FORM]
    assert seen["view"] == [["by/code", 2], ["s", 4], ["work", 7]]
    assert seen["of an older row"] == 7
    assert seen["last column"] == "shuffle"
    assert "shuffle = 4" in seen["show create"]
    assert seen["another version"]
    assert seen["another plan"] == 3
    assert seen["page"] == [
        "| `shuffle` | 1 to 9 | `7` | With `overlap = queue`: change places, so often. |"
    ]
    assert seen["types"] == ["    shuffle: int"]
