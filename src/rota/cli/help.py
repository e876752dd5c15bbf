"""The help of a command, made from the table of its options.

A terminal gets columns, folded at 80 characters; a pipe gets a line for each thing, to be searched.
"""

from __future__ import annotations

import sys

from rota.cli.commands import Command
from rota.cli.options import Option
from rota.cli.output import paint, say, say_painted
from rota.cli.table import Table, spelled, usage

WIDTH = 80
NARROWEST = 24  # of text; a terminal that is narrower wraps it


def say_command(command: Command, table: Table) -> None:
    options = [option for option in table.options if not option.hidden]
    groups = {
        "Arguments": [option for option in options if not option.names],
        "Options": [option for option in options if option.names],
    }
    show = _say_columns if sys.stdout.isatty() else _say_lines
    say(f"Usage: {usage(command.name, table.options)}")
    for text in filter(None, (command.help, command.more)):
        say("\n" + "\n".join(_folded(text, 0)))
    for title, members in groups.items():
        if members:
            say_painted(f"\n{paint(f'{title}:', 'bold')}")
            show(members)
    say()
    for example in command.examples:
        say(f"Example: {example}")


def _say_lines(options: list[Option]) -> None:
    for option in options:
        say(f"  {spelled(option)}: {_meaning(option)}")


def _say_columns(options: list[Option]) -> None:
    names = [spelled(option) for option in options]
    # A name that is longer than a third of the line has a line of its own.
    width = max((len(name) for name in names if len(name) <= _columns() // 3), default=0)
    for option, name in zip(options, names, strict=True):
        first, *more = _folded(_meaning(option), width + 4)
        if len(name) > width:
            say_painted(f"  {paint(name, 'cyan')}")
            name = ""
        say_painted(f"  {paint(f'{name:<{width}}', 'cyan')}  {first}")
        for line in more:
            say(f"{'':<{width + 4}}{line}")


def _meaning(option: Option) -> str:
    return f"{option.help} [required]" if option.required else option.help


def _folded(text: str, indent: int) -> list[str]:
    if not sys.stdout.isatty():
        return [text]
    from textwrap import wrap

    width = max(_columns() - indent, NARROWEST)
    return wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _columns() -> int:
    from shutil import get_terminal_size

    return min(WIDTH, get_terminal_size().columns)
