"""Write the commands into docs/cli.md, from the tables that they are read by.

    python scripts/cli_page.py

The page is text between two marks; tests/docs/test_cli_page.py fails where it is not what this
script would write.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rota.cli.commands import GROUPS, Command
from rota.cli.options import Option
from rota.cli.table import spelled, table_of, usage

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
BEGIN, END = "<!-- commands: written by scripts/cli_page.py -->\n", "<!-- end of commands -->\n"
TITLES = {"Start": "Start and care", "Look": "Look", "Act": "Act"}
# Every command that asks a store has these; they stand once, before the commands.
COMMON = ("--json", "--database", "--config")


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
    options = table_of(command.function()).options
    lines = [f"### rota {command.name}\n", f"{command.help} {command.more}".strip() + "\n"]
    lines += [f"```text\n{usage(command.name, options)}\n```\n"]
    shown = [option for option in options if not option.hidden]
    own = [option for option in shown if not set(option.names) & set(COMMON)]
    if own:
        lines.append("| option | meaning |\n|---|---|")
        lines += [f"| `{_cell(spelled(option))}` | {_cell(_meaning(option))} |" for option in own]
        lines.append("")
    lacks = [name for name in COMMON if not any(name in option.names for option in shown)]
    if lacks:
        lines.append(f"Without {_listed(f'`{name}`' for name in lacks)}: it asks no store.\n")
    examples = "\n".join(command.examples)
    lines.append(f"```sh\n{examples}\n```\n")
    return "\n".join(lines)


def _meaning(option: Option) -> str:
    return f"{option.help} Required." if option.required else option.help


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
