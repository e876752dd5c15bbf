"""A line that is read without the parser means what the parser would say."""

from __future__ import annotations

from importlib import import_module
from itertools import product
from typing import Any

import pytest
from cyclopts import CycloptsError
from hypothesis import given
from hypothesis import strategies as st

from rota.cli.main import GROUPS, Command, make_app
from rota.cli.plain import read_plain

APP = make_app()
COMMANDS = {command.name: command for group in GROUPS.values() for command in group}
VALUES = (
    "5", "007", "-1", "+1", "1e3", "0x10", "1_000", "٣", "²", "9" * 30, "x", "a b", " ", "", "none",
    "NULL", "None", "true", "no", "[1]", '{"a": 1}', "~", "~/x", "a/../b", "/tmp/x", "sqlite:///x",
    "--", "-", "-f", "--json", "--json=true", "--no-json", "--help", "ü",
)  # fmt: skip


def function_of(command: Command) -> Any:
    module, _, name = command.path.partition(":")
    return getattr(import_module(f"rota.cli.{module}"), name)


def parsed(tokens: list[str]) -> dict[str, Any] | None:
    """What cyclopts makes of it; None if it refuses."""
    try:
        _, bound, _ = APP.parse_args(tokens, exit_on_error=False, print_error=False)
    except CycloptsError:
        return None
    return {**bound.arguments}


def names_of(command: str) -> list[str]:
    found = APP[command].assemble_argument_collection()
    return [name for argument in found for name in argument.names]


NAMES = {command: names_of(command) for command in COMMANDS}


@given(st.data())
def test_what_is_read_plainly_is_what_the_parser_reads(data: st.DataObject) -> None:
    command = data.draw(st.sampled_from(sorted(COMMANDS)))
    words = st.one_of(st.sampled_from(NAMES[command]), st.sampled_from(VALUES))
    tokens = data.draw(st.lists(words, max_size=5))
    told = read_plain(function_of(COMMANDS[command]), tokens)
    assert told is None or told == parsed([command, *tokens])


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_each_option_of_each_command_means_the_same(command: str) -> None:
    # `runs` has options of every type.
    for tokens in product(NAMES[command], VALUES if command == "runs" else ("5", "x")):
        told = read_plain(function_of(COMMANDS[command]), tokens)
        assert told is None or told == parsed([command, *tokens]), tokens


@pytest.mark.parametrize(
    "line",
    [
        "runs",
        "runs --state dead --limit 5 --json",
        "runs --before 7 --database sqlite:///x.db --config a.toml",
        "schedules --job rollup",
        "completion --names jobs",
        "up --database sqlite:///x.db",
    ],
)
def test_what_is_spelled_out_needs_no_parser(line: str) -> None:
    name, *options = line.split()
    told = read_plain(function_of(COMMANDS[name]), options)
    assert told is not None
    assert told == parsed([name, *options])


@pytest.mark.parametrize(
    "line",
    [
        "runs --limit=5", "runs --limit", "runs --limit -1", "runs --lim 5",
        "runs --job a --job b", "runs x", "runs --help", "show --json", "next --json",
        "schedule --enabled", "enqueue --arg a=b", "check --dir x", "logs -f",
    ],
)  # fmt: skip
def test_what_could_be_meant_otherwise_is_left_to_the_parser(line: str) -> None:
    name, *options = line.split()
    assert read_plain(function_of(COMMANDS[name]), options) is None
