"""Text that means harm passes every command unharmed: the value whole in JSON, every character
seen in a table, and nothing of it obeyed by a terminal."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest

import rota
from rota.cli import output
from rota.cli.main import main
from rota.flow.control import Control
from rota.life import open_door
from rota.model.limits import LOG_LINE_LENGTH, REASON_LENGTH, clip
from tests.surface.conftest import Cli, Ends

HOSTILE = {
    "escapes": "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J",
    "lines": "one\nrota: all is well\r\ntwo\rthree\u2028four",
    "direction": "\u202egnp.exe\u2066 \u200f",
    "markup": "[red]bold[/red] [link=http://x]y[/link] <b>&amp;</b> :smile:",
    "quotes": "'; DROP TABLE runs; -- \" ` \\ ${HOME} $(id)",
    "paths": "../../etc/passwd",
    "large": "x" * 10_000,
    "unseen": "\ufeffbom\x00nul\x7fdel\x85next",
    "wide": "日本語 naïve 🎉",
}
# What a terminal obeys, or what turns a line around: none of it may be printed as it is.
OBEYED = re.compile("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029"
                    "\u202a-\u202e\u2066-\u2069\ufeff]")  # fmt: skip
ESCAPE = re.compile("\x1b(?!\\[[0-9;]*m)")  # but for our own colours


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def on_a_screen(monkeypatch: pytest.MonkeyPatch, *args: str) -> str:
    screen, beside = Screen(), Screen()
    with monkeypatch.context() as patch:
        patch.setenv("TERM", "xterm-256color")
        patch.delenv("NO_COLOR", raising=False)
        patch.setattr(sys, "stdout", screen)
        patch.setattr(sys, "stderr", beside)
        main(list(args))
    return screen.getvalue() + beside.getvalue()


@pytest.fixture(params=HOSTILE, ids=list(HOSTILE))
def text(request: pytest.FixtureRequest) -> str:
    return HOSTILE[request.param]


@pytest.fixture
def told(cli: Cli, text: str) -> dict[str, str]:
    """The text everywhere a text can be: argument, result, error, log line, reason, key, owner,
    description. Ids of runs by job."""
    app = rota.Rota()

    @app.job(max_attempts=1, description=text[:200].replace("\0", ""))
    def echo(ctx: rota.Context, said: str) -> str:
        ctx.logger.info("%s", said)
        return said

    @app.job(max_attempts=1)
    def fail(said: str) -> None:
        raise RuntimeError(said)

    @app.job(max_attempts=1)
    def wait() -> None: ...

    ends = Ends(app, 2)
    app.start(["worker"])
    ids = {
        name: app.enqueue(name, {"said": text.replace("\0", "")}).id for name in ("echo", "fail")
    }
    ends.wait()
    app.stop()
    ids["wait"] = app.enqueue("wait", delay="1h").id
    app.control.cancel(ids["wait"], text)
    app.schedule("daily", job="wait", every="1d", owner=text[:100].replace("\0", ""))
    app.control.pause("daily", text)
    app.control.pause_queue("default", text)
    app.control.pause_dispatch(text)
    app.close()
    return ids


COMMANDS = [
    "jobs", "schedules", "runs", "queues", "workers", "locks", "show daily", "show echo",
    "show {echo}", "show {fail}", "show {wait}", "logs {echo}", "explain daily", "pause daily",
]  # fmt: skip


def test_no_command_lets_it_do_harm(
    cli: Cli, told: dict[str, str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test for all commands: what must be made for it takes longer than to look at it."""
    for command in COMMANDS:
        args = command.format(**told).split()
        seen = on_a_screen(monkeypatch, *args)
        assert not OBEYED.search(seen), command
        assert not ESCAPE.search(seen), command
        assert "\nrota: all is well" not in seen, command
        piped = cli(*args)
        assert not OBEYED.search(piped.out + piped.err), command
        assert "\x1b" not in piped.out + piped.err, command
        assert "\nrota: all is well" not in piped.out, command
    json_holds_it_as_it_was(cli, told, text)


def json_holds_it_as_it_was(cli: Cli, told: dict[str, str], text: str) -> None:
    said = text.replace("\0", "")
    run = cli("show", told["echo"], "--json")
    assert not OBEYED.search(run.out)
    assert run.json["run"]["args"] == {"said": said}
    assert run.json["run"]["result"] == said
    assert said in cli("show", told["fail"], "--json").json["run"]["error"]
    (line, *_) = cli("logs", told["echo"], "--json").json
    assert line["text"] == clip(said, LOG_LINE_LENGTH)
    (daily,) = cli("schedules", "--json").json
    assert daily["paused_reason"] == clip(text, REASON_LENGTH)


def test_markup_is_text(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    output.say_table(("a", "b"), [(HOSTILE["markup"], "[bold]x[/bold]")])
    assert HOSTILE["markup"] in screen.getvalue()
    assert "[bold]x[/bold]" in screen.getvalue()


def test_wide_letters_keep_the_columns_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "40")
    output.say_table(("name", "note"), [("日本語" * 8, "whole")])
    assert "日本語" * 8 in screen.getvalue()


def test_no_color_is_heard(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in on_a_screen(monkeypatch, "--help")
    screen = Screen()
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", screen)
    assert main(["--help"]) == 0
    assert main(["next", "@daily"]) == 0
    assert "\x1b" not in screen.getvalue()


@pytest.mark.parametrize("name", HOSTILE, ids=list(HOSTILE))
def test_hostile_names_are_refused_in_one_line(cli: Cli, store: Control, name: str) -> None:
    for args in (
        ["show", HOSTILE[name]], ["pause", HOSTILE[name]], ["run", HOSTILE[name]],
        ["enqueue", HOSTILE[name]], ["logs", HOSTILE[name]], ["drop", HOSTILE[name]],
        ["resume", "--queue", HOSTILE[name]], [HOSTILE[name]], ["runs", "--state", HOSTILE[name]],
        ["schedule", HOSTILE[name], "--job", "greet", "--every", "1h"],
    ):  # fmt: skip
        answer = cli(*args)
        assert answer.code == 2, args
        assert not OBEYED.search(answer.error), args
        assert "\x1b" not in answer.error


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("args", "meant"),
    [
        ("show nightlt", "'nightly'"),
        ("show Greet", "'greet'"),
        ("run chaty", "'chatty'"),
        ("enqueue brokn", "'broken'"),
        ("pause nigtly", "'nightly'"),
        ("explain nightyl", "'nightly'"),
        ("drop nightlyy", "'nightly'"),
        ("runs --job gret", "'greet'"),
        ("resume --queue tlk", "'talk'"),
    ],
)
def test_a_slip_is_answered_with_the_name_that_was_meant(cli: Cli, args: str, meant: str) -> None:
    answer = cli(*args.split())
    assert answer.code == 2
    assert answer.error.endswith(f"; did you mean {meant}?")


def test_a_name_like_no_other_gets_no_guess(cli: Cli, store: Control) -> None:
    assert "did you mean" not in cli("show", "zzzz").error


def test_the_door_tells_it_whole(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("duckdb")
    monkeypatch.setenv("ROTA_DATABASE", "duckdb:///shop.duckdb")
    app = rota.Rota()
    app.job("echo")(lambda said: said)
    app.load()
    door = open_door(app)
    assert door is not None
    try:
        for name, text in HOSTILE.items():
            said = text.replace("\0", "")
            made = cli("enqueue", "echo", "--args", json.dumps({"said": said}), "--json").json
            run = cli("show", made["id"], "--json").json["run"]
            assert run["args"] == {"said": said}, name
    finally:
        door.stop()
        app.close()
