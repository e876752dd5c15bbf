"""docs/cli.md is complete: every command, argument and option of the real command tree is on it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rota.cli import main as commands
from rota.cli.main import GROUPS, make_app
from scripts import cli_page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "cli.md"
COMMANDS = [command.name for group in GROUPS.values() for command in group]


@pytest.fixture
def page() -> str:
    return PAGE.read_text("utf-8")


def sections(page: str) -> dict[str, str]:
    """The text about each command."""
    parts = re.split(r"^### rota (\S+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_page_is_what_the_script_writes(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # put back, whatever the script sets
    assert cli_page.written(page) == page, "run: python scripts/cli_page.py"


def test_every_command_is_on_the_page_in_order(page: str) -> None:
    assert list(sections(page)) == COMMANDS


def test_every_option_of_the_tree_is_in_the_section_of_its_command(page: str) -> None:
    """Asked of the parser itself, and not of its help, which the page is made of."""
    app, told = make_app(), sections(page)
    common = page[: page.index("### Many runs")]
    seen = 0
    for name in COMMANDS:
        for argument in app[name].assemble_argument_collection():
            if argument.show and argument.names[0] != "*":
                word = argument.names[0]
                where = common if word in ("--json", "--database", "--config") else told[name]
                assert re.search(rf"`[^`]*{re.escape(word)}\b", where), (name, word)
                seen += 1
    assert seen > 150


def test_every_exit_code_is_on_the_page(page: str) -> None:
    codes: dict[str, Any] = vars(commands)
    for name in ("OK", "FAILED", "WRONG_USE", "INTERRUPTED"):
        assert f"| {codes[name]} |" in page
