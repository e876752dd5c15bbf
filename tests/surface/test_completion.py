"""Completion in the shells: the script is what bash itself runs, with names from a real store."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rota.cli.completion import FOLLOWS, SHELLS
from rota.flow.control import Control
from tests.surface.conftest import Cli, environment, shop

ASK = """
rota() { "$PYTHON" -m rota.cli "$@"; }
source ./script
COMP_WORDS=(%s)
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_rota_names
printf '%%s\\n' "${COMPREPLY[@]}"
"""


def complete(*words: str) -> list[str]:
    """What bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    told = {**environment(), "PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", "-c", ASK % line], capture_output=True, text=True, env=told, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_options_and_names(cli: Cli) -> None:

    shop().close()
    Path("script").write_text(cli("completion", "bash").out)
    assert complete("rota", "sche") == ["schedule", "schedules"]
    assert complete("rota", "runs", "--sta") == ["--state"]
    assert complete("rota", "runs", "--job", "gr") == ["greet"]


def test_each_shell_gets_a_script_that_knows_every_command(cli: Cli) -> None:
    for shell in SHELLS:
        script = cli("completion", shell).out
        for word in ("schedules", "doctor", "--only", "rota completion --names"):
            assert word.lstrip("-") in script, (shell, word)
    assert cli("completion", "fish", "--json").json["shell"] == "fish"


def test_names_are_asked_of_the_store(cli: Cli, store: Control) -> None:
    assert cli("completion", "--names", "jobs").out.split() == [
        "broken", "chatty", "greet", "nightly"
    ]  # fmt: skip
    assert cli("completion", "--names", "names").out.split().count("nightly") == 1
    assert cli("completion", "--names", "queues").out.split() == ["default", "talk"]
    for kind in set(FOLLOWS.values()):
        assert cli("completion", "--names", kind).out != "\n"


def test_without_a_store_there_are_no_names_and_no_error(cli: Cli) -> None:
    answer = cli("completion", "--names", "jobs")
    assert (answer.code, answer.out, answer.err) == (0, "", "")


def test_an_unknown_shell_is_refused(cli: Cli) -> None:
    assert cli("completion", "tcsh").error == "rota: shell 'tcsh' is unknown; use bash, zsh, fish"
    assert cli("completion").code == 2
