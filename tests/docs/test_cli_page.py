"""docs/cli.md is complete: every command, argument and option of the real tables is on it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rota.cli import main as commands
from rota.cli.commands import COMMANDS as TABLES
from rota.cli.table import table_of
from scripts import cli_page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "cli.md"
COMMANDS = list(TABLES)


@pytest.fixture
def page() -> str:
    return PAGE.read_text("utf-8")


def sections(page: str) -> dict[str, str]:
    """The text about each command."""
    parts = re.split(r"^### rota (\S+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_page_is_what_the_script_writes(page: str) -> None:
    assert cli_page.written(page) == page, "run: python scripts/cli_page.py"


def test_every_command_is_on_the_page_in_order(page: str) -> None:
    assert list(sections(page)) == COMMANDS


def test_every_option_is_in_the_section_of_its_command(page: str) -> None:
    of_commands = sections(page)
    common = page[: page.index("### Many runs")]
    seen = 0
    for name, command in TABLES.items():
        for option in table_of(command.function()).options:
            if option.hidden:
                assert not any(word in page for word in option.names)
                continue
            for word in option.names or (option.metavar,):
                shared = word in ("--json", "--database", "--config")
                where = common if shared else of_commands[name]
                pattern = rf"`[^`]*(?<![\w-]){re.escape(word.replace('|', chr(92) + '|'))}\b"
                assert re.search(pattern, where), (name, word)
                seen += 1
    assert seen > 150


def test_every_exit_code_is_on_the_page(page: str) -> None:
    codes: dict[str, Any] = vars(commands)
    for name in ("OK", "FAILED", "WRONG_USE", "INTERRUPTED"):
        assert f"| {codes[name]} |" in page
