"""How a line is read: every option of every command, values that look like options, wrong use."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import is_dataclass
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.cli.commands import COMMANDS
from rota.cli.main import main, parse
from rota.cli.options import HERE, Option, Where, takes
from rota.cli.reader import LONGEST_SHOWN, Missing, read
from rota.cli.table import Table, table_of
from rota.errors import Invalid
from tests.surface.conftest import Cli, environment

TABLES = {name: table_of(command.function()) for name, command in COMMANDS.items()}
OPTIONS = [
    (command, option)
    for command, table in TABLES.items()
    for option in table.options
    if option.names
]
VALUES = (
    "5", "-1", "-1.5", "1e3", "0x10", "1_000", "٣", "9" * 5_000, "x", "a b", " ", "", "none", "[1]",
    "--", "-", "-f", "-c", "-cx", "-- c", "--json", "--json=true", "--nope", "--nope=a b", "ü",
    "\udcff",
)  # fmt: skip


def arguments(line: str | list[str]) -> dict[str, Any]:
    """What the function of a line is called with, without defaults."""
    call = parse(line.split() if isinstance(line, str) else line)
    bound = dict(signature(call.func).bind(*call.args, **call.keywords).arguments)
    flags = bound.pop("flags", {})
    defaults = {name: one.default for name, one in signature(call.func).parameters.items()}
    return {name: value for name, value in bound.items() if value != defaults[name]} | flags


def required(command: str) -> list[str]:
    return ["x" for option in TABLES[command].options if option.required]


def value_of(command: str, option: Option, text: str | None) -> Any:
    (name, words) = (option.names[0], [] if text is None else [text])
    values = read(command, TABLES[command], [*required(command), name, *words])
    return values[option]


@pytest.mark.parametrize(
    ("command", "option"), OPTIONS, ids=lambda one: one if isinstance(one, str) else one.names[0]
)
def test_each_option_of_each_command_is_read(command: str, option: Option) -> None:
    words = {bool: [], int: ["7"], Path: ["a/b"], str: ["a b"]}[option.kind]
    meant = {bool: True, int: 7, Path: Path("a/b"), str: "a b"}[option.kind]
    line = [command, *required(command)]
    for name in option.names:
        for spelling in ([name, *words], [f"{name}={words[0]}"] if words else [name]):
            found = arguments([*line, *spelling])
            found = vars(found[option.key]) if option.field else found
            key = option.field or option.key
            assert found[key] == ([meant] if option.many else meant)
    if option.off:
        assert arguments([*line, option.off])[option.key] is False


@pytest.mark.parametrize("command", TABLES)
def test_a_table_is_as_its_function(command: str) -> None:
    table = TABLES[command]
    parameters = signature(table.function).parameters
    keys = {option.key for option in table.options}
    assert keys >= {name for name, one in parameters.items() if one.kind != one.VAR_KEYWORD}
    names = [name for option in table.options for name in (*option.names, option.off) if name]
    assert len(names) == len(set(names))
    for option in table.options:
        assert option.hidden or option.help.endswith(".")
        assert bool(option.metavar) == (option.kind is not bool)
    assert {name for name, hint in table.groups.items() if is_dataclass(hint)} == set(table.groups)


@given(st.data())
def test_any_line_is_read_or_refused_in_one_short_line(data: st.DataObject) -> None:
    command = data.draw(st.sampled_from(sorted(TABLES)))
    names = [name for option in TABLES[command].options for name in option.names]
    words = st.one_of(
        st.sampled_from(names),
        st.sampled_from(VALUES),
        st.builds("{}={}".format, st.sampled_from(names), st.sampled_from(VALUES)),
        st.text(max_size=20),
    )
    line = [command, *data.draw(st.lists(words, max_size=6))]
    refusal = ""
    try:
        parse(line)
    except Invalid as fault:
        refusal = str(fault)
    assert len(refusal) < 400
    assert not refusal or re.search(r"; |--help`", refusal), "it names no way out"


@given(st.sampled_from(OPTIONS), st.text(st.characters(codec="utf-8")))
def test_behind_an_equals_sign_any_text_is_a_value(of: tuple[str, Option], text: str) -> None:
    command, option = of
    if option.kind is not str:
        return
    words = [*required(command), f"{option.names[0]}={text}"]
    value = read(command, TABLES[command], words)[option]
    assert value == ([text] if option.many else text)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("runs --limit -1", {"limit": -1}),
        ("runs --limit=+5", {"limit": 5}),
        ("runs --job -1.5", {"job": "-1.5"}),
        ("runs --job=--json", {"job": "--json"}),
        ("runs --job=a=b", {"job": "a=b"}),
        ("runs --job=", {"job": ""}),
        ("enqueue j --key_ttl 5m", {"job": "j", "key_ttl": "5m"}),
        ("enqueue --arg a=1 j --arg b=-2", {"job": "j", "arg": ["a=1", "b=-2"]}),
        ("sql -cx", {"command": "x"}),
        ("sql -c=x", {"command": "x"}),
        ("sql -f -", {"file": Path("-")}),
        ("logs -f r", {"run": "r", "follow": True}),
        ("show -- --json", {"thing": "--json"}),
        ("show -1", {"thing": "-1"}),
        ("show --json -- a", {"thing": "a", "where": Where(json=True)}),
        ("next --count 3 0 3 * * *", {"expr": ("0", "3", "*", "*", "*"), "count": 3}),
        ("schedule n --disabled --tz UTC", {"name": "n", "enabled": False, "timezone": "UTC"}),
        ("up a --queue b --queue c", {"address": "a", "queue": ["b", "c"]}),
    ],
)
def test_a_line_means(line: str, meant: dict[str, Any]) -> None:
    assert arguments(line) == meant


@pytest.mark.parametrize("text", ["-- a comment\nSELECT 1", "--x y", "-x y", "-- c --json"])
def test_text_with_a_blank_is_a_value_however_it_begins(text: str) -> None:
    assert arguments(["sql", "-c", text]) == {"command": text}
    assert arguments(["show", text]) == {"thing": text}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["rns"], 'Unknown command "rns". Did you mean "runs"? `rota --help` lists all'),
        (["status"], 'Unknown command "status". Did you mean "runs"? `rota --help` lists all'),
        ([""], 'Unknown command "". `rota --help` lists all'),
        (
            ["--json", "runs"],
            "option --json stands before the command; use: rota COMMAND --json …",
        ),
        (
            ["runs", "--lim", "5"],
            "Unknown option --lim. Did you mean --limit? `rota runs --help` lists all",
        ),
        (
            ["runs", "-json"],
            "Unknown option -json. Did you mean --json? `rota runs --help` lists all",
        ),
        (["runs", "--limit", "x", "--qqq"], "Unknown option --qqq. `rota runs --help` lists all"),
        (["show", "--qqq"], "Unknown option --qqq. `rota show --help` lists all"),
        (["up", "--sib"], "Unknown option --sib. `rota up --help` lists all"),
        (["show"], "X is missing; use: rota show X [OPTIONS]"),
        (["runs", "--job"], "--job lacks its value; use: --job NAME"),
        (
            ["runs", "--job", "--json"],
            "--job lacks its value; a value that begins with - is written behind an equals sign: "
            "--job=--json",
        ),
        (
            ["sql", "-c", "--comment"],
            "-c lacks its value; a value that begins with - is written behind an equals sign: "
            "-c=--comment",
        ),
        (
            ["runs", "--job", "--config=my file"],
            "--job lacks its value; a value that begins with - is written behind an equals sign: "
            "--job=--config=my file",
        ),
        (
            ["runs", "--limit", "0x10"],
            "--limit takes a whole number, not '0x10'; write digits, such as 20",
        ),
        (
            ["runs", "--limit", "1e3"],
            "--limit takes a whole number, not '1e3'; write digits, such as 20",
        ),
        (
            ["bench", "--runs=1_000"],
            "--runs takes a whole number, not '1_000'; write digits, such as 20",
        ),
        (
            ["up", "--slots", "-1.5"],
            "--slots takes a whole number, not '-1.5'; write digits, such as 20",
        ),
        (["runs", "--limit="], "--limit takes a whole number, not ''; write digits, such as 20"),
        (["runs", "--json=false"], "--json takes no value; leave out =false"),
        (["logs", "r", "-f=false"], "-f takes no value; leave out =false"),
        (["logs", "r", "-f", "-f"], "-f is given twice; give it once"),
        (
            ["schedule", "n", "--enabled", "--disabled"],
            "--enabled and --disabled set the same; give one of them",
        ),
        (
            ["drop", "a", "--reason", "too", "old"],
            "'old' is one argument too many; quote a value that holds blanks, and use: "
            "rota drop SCHEDULE [OPTIONS]",
        ),
        (
            ["drop", "a", "--reason", "\udcff"],
            "--reason is not UTF-8: '\udcff'; write it as UTF-8",
        ),
        (
            ["jobs", "postgresql://me:geheim@db/shop"],
            "'postgresql://me:[redacted]@db/shop' is one argument too many; quote a value "
            "that holds blanks, and use: rota jobs [OPTIONS]",
        ),
    ],
)
def test_wrong_use_is_named_with_the_way_out(line: list[str], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse(line)
    assert str(refused.value) == message


def test_what_a_line_lacks_is_an_error_of_its_own() -> None:
    for line in ("show", "runs --job"):
        with pytest.raises(Missing):
            parse(line.split())


def test_a_megabyte_of_arguments_is_read_or_refused_shortly(cli: Cli) -> None:
    text = "x" * 1_000_000
    for line in (["show", text], ["runs", "--limit", text], ["runs", f"--{text}"], [text]):
        answer = cli(*line)
        assert answer.code == 2
        # A name that does not exist is told as it is; what cannot be meant is cut.
        assert line[0] == "show" or len(answer.error) < LONGEST_SHOWN + 200
    many = ["--arg", "a=1"] * 100_000
    assert len(arguments(["enqueue", "j", *many])["arg"]) == 100_000


def test_bytes_that_are_no_utf_8_are_refused_by_a_process() -> None:
    """Real ones: the interpreter makes surrogates of them. A file name may be any bytes."""
    for words, message in (
        ([b"show", b"a\xff"], "X is not UTF-8: 'a\\udcff'; write it as UTF-8"),
        ([b"show", b"--\xff"], "Unknown option --\\udcff. `rota show --help` lists all"),
        ([b"\xff"], 'Unknown command "\\udcff". `rota --help` lists all'),
        ([b"jobs", b"--config", b"\xff"], "settings file \\udcff does not exist"),
    ):
        command = [sys.executable.encode(), b"-m", b"rota.cli", *words]
        done = subprocess.run(command, capture_output=True, env={**environment(), "LC_ALL": "C"})
        assert done.returncode == 2
        assert done.stderr.decode().splitlines() == [f"rota: {message}"]


def test_help_and_version_are_found_anywhere_before_two_dashes(cli: Cli) -> None:
    help_of_runs = cli("runs", "--help").out
    for line in ("runs -h", "--help runs", "runs --nope --help", "runs --job -h"):
        assert cli(*line.split()).out == help_of_runs
    assert cli("runs", "--version").out == cli("--version").out
    assert arguments("show -- --help") == {"thing": "--help"}
    assert arguments("runs --job=--version") == {"job": "--version"}


def test_an_error_is_json_where_json_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--json", "--limit", "x"]) == 2
    assert "whole number" in json.loads(capsys.readouterr().err)["error"]


MORE = {
    "first": Option("The first.", "N", kind=int),
    "tags": Option("Some.", "TAG", names=("--tag", "-t"), many=True),
    "on": Option("Whether.", off="--off", kind=bool),
}


@takes(MORE)
def command_from_data(
    name: Annotated[str, Option("Its name.", "NAME")], /, *, where: Where = HERE, **more: Any
) -> tuple[str, Where, dict[str, Any]]:
    return name, where, more


def called(*words: str) -> tuple[str, Where, dict[str, Any]]:
    table: Table = table_of(command_from_data)
    positional, by_name = table.arguments(read("made", table, words))
    result: tuple[str, Where, dict[str, Any]] = table.function(*positional, **by_name)
    return result


def test_a_command_takes_options_from_data() -> None:
    assert called("a") == ("a", HERE, {})
    assert called("a", "--first", "3", "-t", "x", "--tag=y", "--off", "--json") == (
        "a", Where(json=True), {"first": 3, "tags": ["x", "y"], "on": False}
    )  # fmt: skip
    shown = [option.names[0] for option in table_of(command_from_data).options if option.names]
    assert shown == ["--first", "--tag", "--on", "--json", "--database", "--config"]
