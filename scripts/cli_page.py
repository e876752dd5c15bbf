"""Write the commands into docs/cli.md, from the commands themselves.

    python scripts/cli_page.py

The page is text between two marks; tests/docs/test_cli_page.py fails where it is not what this
script would write.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path

from rota.cli.main import GROUPS, Command, main

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
BEGIN, END = "<!-- commands: written by scripts/cli_page.py -->\n", "<!-- end of commands -->\n"
TITLES = {"Start": "Start and care", "Look": "Look", "Act": "Act"}
REQUIRED = " Required."
# Every command that asks a store has these; they are told once.
COMMON = ("--json", "--database", "--config")
_LINE = re.compile(r"  (?P<names>\S.*?): (?P<text>.*?)(?P<required> \[required\])?")


def written(page: str) -> str:
    """The page with the commands as they are now."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n" + commands() + "\n" + END + rest.split(END)[1]


def commands() -> str:
    parts = []
    for title, group in GROUPS.items():
        parts.append(f"## {TITLES.get(title, title)}\n")
        parts += [section(command) for command in group]
    return "\n".join(parts)


def section(command: Command) -> str:
    arguments = told(command.name)
    lines = [f"### rota {command.name}\n", f"{command.help} {command.more}".strip() + "\n"]
    lines += [f"```text\n{usage(command.name, arguments)}\n```\n"]
    own = [row for row in arguments if not row[0].startswith(COMMON)]
    if own:
        lines.append("| option | meaning |\n|---|---|")
        lines += [f"| `{_cell(names)}` | {_cell(text)} |" for names, text in own]
        lines.append("")
    lacks = [one for one in COMMON if not any(names.startswith(one) for names, _ in arguments)]
    if lacks:
        lines.append(f"Without {_listed(f'`{one}`' for one in lacks)}: it asks no store.\n")
    examples = "\n".join(command.examples)
    lines.append(f"```sh\n{examples}\n```\n")
    return "\n".join(lines)


def usage(name: str, arguments: list[tuple[str, str]]) -> str:
    """`rota show X [OPTIONS]`: what stands by its place, then the rest."""
    words = ["rota", name]
    for names, text in arguments:
        if not names.startswith("-"):
            words.append(names if text.endswith(REQUIRED) else f"[{names}]")
    return " ".join([*words, "[OPTIONS]"])


def told(name: str) -> list[tuple[str, str]]:
    """Arguments and options of a command, as its own help says them."""
    os.environ["COLUMNS"] = "5000"  # a line for each
    answer = io.StringIO()
    with redirect_stdout(answer):
        assert main([name, "--help"]) == 0
    found = [_LINE.fullmatch(line.rstrip()) for line in answer.getvalue().splitlines()]
    return [(one["names"], one["text"] + (REQUIRED if one["required"] else ""))
            for one in found if one]  # fmt: skip


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
