"""Completion in the shells: each script runs in its own shell, with names from a real store."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota.cli.commands import COMMANDS
from rota.cli.completion import SHELLS
from rota.cli.table import table_of
from rota.flow.control import Control
from rota.model.transitions import STATES
from tests.surface.conftest import Cli, environment, shop

ROTA = '#!/bin/sh\nexec "$PYTHON" -m rota.cli "$@"\n'
BASH = """
source ./script.bash
COMP_WORDS=(%s)
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_rota
printf '%%s\\n' "${COMPREPLY[@]}"
"""
# The words of a line, and what is offered for the last of them.
CASES = [
    ("rota sche", {"schedule", "schedules"}),
    ("rota runs --sta", {"--state"}),
    ("rota runs --state wa", {"waiting"}),
    ("rota runs --job gr", {"greet"}),
    ("rota runs --json --queue ta", {"talk"}),
    ("rota redo --all --job chat", {"chatty"}),
    ("rota show nigh", {"nightly"}),
    ("rota enqueue --delay 5m gre", {"greet"}),
    ("rota schedule nightly --overlap sk", {"skip"}),
    ("rota schedule nightly --dis", {"--disabled"}),
    ("rota token cre", {"create"}),
    ("rota completion fi", {"fish"}),
    ("rota check some-fol", {"some-folder"}),
    ("rota jobs --config some-fol", {"some-folder"}),
    ("rota up --sib", set()),
    ("rota show nightly nigh", set()),
    ("rota runs --limit gr", set()),
]


def needs(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


@pytest.fixture
def place(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store, the scripts of all shells, and `rota` on the path."""
    shop().close()
    (tmp_path / "some-folder").mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "rota").write_text(ROTA)
    (programs / "rota").chmod(0o755)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for shell in SHELLS:
        Path(f"script.{shell}").write_text(cli("completion", shell).out)
    return tmp_path


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def in_bash(line: str) -> set[str]:
    words = " ".join(f"'{word}'" for word in line.replace("=", " = ").split(" "))
    return {word.rstrip("/") for word in run("bash", "-c", BASH % words).split()}


def in_fish(line: str) -> set[str]:
    script = f"source ./script.fish; complete -C '{line}'"
    lines = run("fish", "--no-config", "-c", script).splitlines()
    return {one.partition("\t")[0].rstrip("/") for one in lines}


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(("line", "offered"), CASES)
def test_bash_completes(line: str, offered: set[str]) -> None:
    needs("bash")
    assert in_bash(line) == offered


@pytest.mark.usefixtures("place")
def test_bash_completes_behind_an_equals_sign_and_after_a_name(cli: Cli) -> None:
    needs("bash")
    assert in_bash("rota runs --job=gr") == {"greet"}
    assert in_bash("rota runs --state=") == set(STATES)
    assert in_bash("rota run nightly --f") == {"--force"}


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(("line", "offered"), CASES)
def test_fish_completes(line: str, offered: set[str]) -> None:
    needs("fish")
    assert in_fish(line) == offered


class Zsh:
    """A real zsh at a terminal: a key is typed, and what appears is read."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal

    def types(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def shows(self, text: str) -> str:
        """All until this text is there."""
        seen, until = "", time.monotonic() + 30
        while text not in seen:
            ready, _, _ = select.select([self._terminal], [], [], until - time.monotonic())
            assert ready, f"{text!r} did not appear in {seen!r}"
            seen += os.read(self._terminal, 65_536).decode()
        return seen


# The line is printed by a widget of our own: what zsh draws is for people.
ZSH = """
PROMPT='' PS2='' ; unsetopt beep prompt_cr prompt_sp zle_bracketed_paste
autoload -Uz compinit && compinit -u -D
source ./script.zsh
zstyle ':completion:*' list-prompt '' ; zstyle ':completion:*' menu no
offer() {
  zle complete-word
  print -r -- "<<$BUFFER>>" > "$ANSWER"
}
zle -N offer ; bindkey '^X' offer
print rea''dy
"""


@contextmanager
def zsh(place: Path) -> Iterator[Zsh]:
    """Its answers come through a file that is a pipe."""
    (place / "home").mkdir(exist_ok=True)
    answer = place / "answer"
    os.mkfifo(answer)
    process, terminal = pty.fork()
    if process == 0:
        os.environ["ANSWER"], os.environ["TERM"] = str(answer), "dumb"
        os.execvp("zsh", ["zsh", "-f", "-i"])
    try:
        shell = Zsh(terminal)
        shell.types(ZSH.strip() + "\n")
        shell.shows("ready")
        yield shell
    finally:
        os.close(terminal)
        os.waitpid(process, 0)


def test_zsh_completes(place: Path) -> None:
    """What is the only possibility is written into the line; of several, what they begin with."""
    needs("zsh")
    with zsh(place) as shell:
        for line, offered in CASES:
            *before, begin = line.split(" ")
            shell.types(f"{line}\x18")
            with open(place / "answer") as answer:
                completed = answer.read().strip()[2:-2].rstrip(" /=")
            word = min(offered, key=len, default=begin)
            assert completed == " ".join([*before, word]), line
            shell.types("\x15")  # takes the line back


@pytest.mark.usefixtures("place")
def test_each_script_knows_every_command_and_option(cli: Cli) -> None:
    for shell in SHELLS:
        script = Path(f"script.{shell}").read_text()
        for name, command in COMMANDS.items():
            assert name in script
            for option in table_of(command.function()).options:
                for word in filter(None, (*option.names, option.off)):
                    spelled = f"-l {word[2:]} " if shell == "fish" else word
                    if word.startswith("--"):
                        assert (spelled in script) != option.hidden or word == "--names", word
        assert "--sibling" not in script
    assert cli("completion", "fish", "--json").json["shell"] == "fish"


def test_names_are_asked_of_the_store(cli: Cli, store: Control) -> None:
    assert cli("completion", "--names", "jobs").out.split() == [
        "broken", "chatty", "greet", "nightly"
    ]  # fmt: skip
    assert cli("completion", "--names", "schedules").out.split() == ["nightly"]
    assert cli("completion", "--names", "names").out.split().count("nightly") == 1
    assert cli("completion", "--names", "queues").out.split() == ["default", "talk"]


def test_without_a_store_there_are_no_names_and_no_error(cli: Cli) -> None:
    answer = cli("completion", "--names", "jobs")
    assert (answer.code, answer.out, answer.err) == (0, "", "")


def test_an_unknown_shell_is_refused(cli: Cli) -> None:
    assert cli("completion", "tcsh").error == "rota: shell 'tcsh' is unknown; use bash, zsh, fish"
    assert cli("completion").code == 2
