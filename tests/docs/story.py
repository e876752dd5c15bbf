"""Run a page: write its files, call its commands, compare what they answer.

A block whose first line is "```LANGUAGE PATH" is a file. A block "```console" has commands after
`$ ` and below each what it answers; `…` stands for anything, and alone on a line for any lines.
RUN in a command is the latest run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.jobsd.support import wait_until
from tests.surface.conftest import Cli
from tests.surface.test_up import Up

_BLOCK = re.compile(r"^```(?P<kind>\w+)(?: (?P<path>\S+))?\n(?P<body>.*?)^```$", re.M | re.S)
_COMMAND = re.compile(r"^\$ (?P<command>.*)\n(?P<answer>(?:(?!\$ ).*\n)*)", re.M)


@dataclass(frozen=True)
class Block:
    kind: str
    path: str | None
    body: str

    def commands(self) -> Iterator[tuple[str, str]]:
        for found in _COMMAND.finditer(self.body):
            yield found["command"], found["answer"]


def blocks(page: Path) -> list[Block]:
    found = _BLOCK.finditer(page.read_text("utf-8"))
    return [Block(one["kind"], one["path"], one["body"]) for one in found]


class Story:
    """A folder, and `rota up` in it once the page says so."""

    def __init__(self, cli: Cli, folder: Path, start: Callable[..., Up] = Up) -> None:
        self.cli, self.folder, self.start = cli, folder, start
        self.up: Up | None = None
        self.files = self.commands = 0

    def tell(self, page: Path) -> None:
        for block in blocks(page):
            if block.path is not None:
                self.write(block.path, block.body)
            elif block.kind == "console":
                for command, answer in block.commands():
                    self.call(command, answer)

    def close(self) -> None:
        if self.up is not None:
            self.up.stop()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        is_edit = self.up is not None and path.parent.name in self.names()
        seen = self.changes(path.parent.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.files += 1
        if is_edit:
            wait_until(lambda: self.changes(path.parent.name) > seen, f"{name} is taken")

    def call(self, command: str, answer: str) -> None:
        self.commands += 1
        program, *args = shlex.split(command)
        assert program == "rota", command
        if args == ["up"]:
            self.begin(answer)
            return
        if args[0] in ("run", "enqueue"):
            wait_until(lambda: args[1] in self.names(), f"the job {args[1]}")
        args = [self.latest() if one == "RUN" else one for one in args]
        if "redo" in args:
            check(command, answer, self.cli(*args).out)
            wait_until(lambda: self.state() == "succeeded", "the end of the redo")
            return
        check(command, answer, self.cli(*args).out)

    def begin(self, answer: str) -> None:
        self.up = self.start()
        assert self.up.process.stdout is not None
        screen = ""
        for line in self.up.process.stdout:
            screen += line
            if line.startswith("             rota show "):
                break
        check("rota up", answer, "".join(line for line in screen.splitlines(True) if line.strip()))

    def changes(self, job: str) -> int:
        """How often the running process took another version of a job."""
        lines = [] if self.up is None else self.up.lines
        return sum(f"job {job} changed" in line for line in lines)

    def names(self) -> list[str]:
        return [one["name"] for one in self.cli("jobs", "--json").json]

    def latest(self) -> str:
        return str(self.cli("runs", "--json").json[0]["id"])

    def state(self) -> str:
        return str(self.cli("runs", "--json").json[0]["state"])


def check(command: str, wanted: str, told: str) -> None:
    assert matches(wanted, told), f"$ {command}\n{told}\nis not what the page says:\n{wanted}"


def matches(wanted: str, told: str) -> bool:
    """Spaces are alike however many: columns are as wide as their longest cell."""
    lines = [line for line in wanted.splitlines() if line.strip()]
    pattern = "".join(
        r"(?:.*\n)*" if line.strip() == "…" else _line(line) + r"\s*\n" for line in lines
    )
    return re.fullmatch(pattern, told) is not None


def _line(line: str) -> str:
    words = [re.escape(word).replace("…", ".*") for word in line.split()]
    return r"\s*" + r"[^\S\n]+".join(words)
