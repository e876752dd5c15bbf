"""Run a page: write its files, call its commands, compare what they answer.

A block whose first line is "```LANGUAGE PATH" is a file; one with an absolute path is the file of
that name in deploy/, word for word. A block "```console" has commands after `$ ` and below each
what it answers; `…` stands for anything, and alone on a line for any lines. A command that only
looks is repeated until it answers so. `^C` stops the latest `rota up` of the page. RUN in a command
is the run that the page asked for last, whatever was due since. "```text" is for people alone.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.jobsd.support import PATIENCE, wait_until
from tests.surface.conftest import Cli, environment
from tests.surface.test_up import Up

DEPLOY = Path(__file__).parents[2] / "deploy"
_BLOCK = re.compile(r"^```(?P<kind>\w+)(?: (?P<path>\S+))?\n(?P<body>.*?)^```$", re.M | re.S)
_COMMAND = re.compile(
    r"^(?:\$ (?P<command>.*)|(?P<stop>\^C))\n(?P<answer>(?:(?!\$ |\^C$).*\n)*)", re.M
)
STOP = "^C"
# Programs that every machine with a shell has, and the tests' own interpreter.
PLAIN = {"cat", "cp", "ls", "mkdir", "mv", "rm", "sleep"}
PYTHON = {"python", "pytest"}
_ASKED_FOR = re.compile(r"^run (\S{36}) ")
# Commands that may be repeated, because they change nothing.
LOOKS = {"doctor", "explain", "logs", "queues", "runs", "schedules", "show", "workers"}


@dataclass(frozen=True)
class Block:
    kind: str
    path: str | None
    body: str

    def commands(self) -> Iterator[tuple[str, str]]:
        for found in _COMMAND.finditer(self.body):
            yield found["command"] or STOP, found["answer"]


def blocks(page: Path) -> list[Block]:
    found = _BLOCK.finditer(page.read_text("utf-8"))
    return [Block(one["kind"], one["path"], one["body"]) for one in found]


class Story:
    """A folder, and every `rota up` in it that the page starts.

    `stands_for` has what the page writes and what the test means by it, such as the address of a
    database.
    """

    def __init__(self, cli: Cli, folder: Path) -> None:
        self.cli, self.folder = cli, folder
        self.stands_for: dict[str, str] = {}
        self.ups: list[Up] = []
        self.files = self.commands = 0
        self.run = ""
        self.before = {**os.environ}

    def tell(self, page: Path) -> None:
        for block in blocks(page):
            self.show(block)

    def show(self, block: Block) -> None:
        if block.path is not None:
            self.write(block.path, block.body)
        elif block.kind == "console":
            for command, answer in block.commands():
                self.call(command, answer)

    def close(self) -> None:
        while self.ups:
            self.ups.pop().stop()
        os.environ.clear()
        os.environ.update(self.before)

    def write(self, name: str, text: str) -> None:
        self.files += 1
        path = self.folder / name
        if Path(name).is_absolute():
            assert text == (DEPLOY / path.name).read_text("utf-8"), f"{name} is not deploy's"
            return
        is_edit = bool(self.ups) and path.parent.name in self.names()
        seen = self.changes(path.parent.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.meant(text))
        if is_edit:
            wait_until(lambda: self.changes(path.parent.name) > seen, f"{name} is taken")

    def call(self, command: str, answer: str) -> None:
        self.commands += 1
        if command == STOP:
            self.ups.pop().stop()
            return
        program, *args = shlex.split(self.meant(command), comments=True)
        match program:
            case "rota":
                self.rota(command, args, answer)
            case "cd":
                self.folder /= args[0]
                os.chdir(self.folder)
            case "export":
                name, _, value = args[0].partition("=")
                os.environ[name] = value
            case "sqlite3":
                look(command, answer, lambda: sqlite(*args), is_query(args[-1]))
            case "psql":
                look(command, answer, lambda: psql(*args), is_query(args[-1]))
            case _:
                check(command, answer, self.other(program, args))

    def rota(self, command: str, args: list[str], answer: str) -> None:
        if args[0] == "up":
            self.begin(command, args[1:], answer)
            return
        if args[0] in ("run", "enqueue"):
            wait_until(lambda: args[1] in self.names(well=True), f"the job {args[1]}")
        args = [self.run if one == "RUN" else one for one in args]
        again = args[0] in LOOKS or (args[0] == "sql" and is_query(args[-1]))
        look(command, answer, lambda: self.answer(args), again)
        if "redo" in args:
            wait_until(lambda: self.state() == "succeeded", "the end of the redo")

    def answer(self, args: list[str]) -> str:
        """A refusal is a line on stderr. Notes are there, too, and belong to a terminal; only the
        doctor's is its verdict."""
        told = self.cli(*args)
        if args[0] == "doctor":
            return told.out + told.err.lstrip()
        text = told.out or (told.err if told.code else "")
        if named := _ASKED_FOR.match(text):
            self.run = named[1]
        return text

    def begin(self, command: str, args: list[str], answer: str) -> None:
        up = Up(*args)
        self.ups.append(up)
        assert up.process.stdout is not None
        screen = ""
        for line in up.process.stdout:
            screen += line
            if line.startswith("             rota show "):
                break
        check(command, answer, "".join(line for line in screen.splitlines(True) if line.strip()))

    def other(self, program: str, args: list[str]) -> str:
        """What a plain program, or a program of the page, says."""
        words = [program, *args]
        if program in PYTHON:
            words = [sys.executable, *([] if program == "python" else ["-m", program]), *args]
        else:
            assert program in PLAIN, f"a page may not call {program}"
        done = subprocess.run(
            words, cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def meant(self, text: str) -> str:
        for written, real in self.stands_for.items():
            text = text.replace(written, real)
        return text

    def changes(self, job: str) -> int:
        """How often the running processes took another version of a job."""
        return sum(f"job {job} changed" in line for up in self.ups for line in up.lines)

    def names(self, *, well: bool = False) -> list[str]:
        """The jobs; `well`: of which all files have been read, and make sense."""
        found = self.cli("jobs", "--json").json
        return [one["name"] for one in found if not (well and one["error"])]

    def state(self) -> str:
        return str(self.cli("show", self.run, "--json").json["run"]["state"])


def sqlite(*args: str) -> str:
    """As the program sqlite3 answers, which not every machine has."""
    import sqlite3

    *flags, file, statement = args
    assert flags in ([], ["-cmd", ".timeout 2000"]), "a page gives sqlite3 nothing but a timeout"
    # Without the flag it does not wait; a VACUUM INTO of the pages does not need to.
    with closing(sqlite3.connect(file, timeout=20 if flags else 0)) as connection, connection:
        rows = connection.execute(statement).fetchall()
    return "".join("|".join(_cell(one) for one in row) + "\n" for row in rows)


def psql(*args: str) -> str:
    """As psql answers with -At: rows alone, with bars between. -c may be repeated."""
    import psycopg

    database, flag, *rest = args
    assert database == "$ROTA_DATABASE", "without it psql knows another database, or none"
    assert flag == "-At", "a page calls psql with -At"
    assert rest[0::2] == ["-c"] * (len(rest) // 2), "a page gives psql nothing but -c"
    told = ""
    with psycopg.connect(os.environ["ROTA_DATABASE"]) as connection:
        for statement in rest[1::2]:
            cursor = connection.execute(statement.encode())
            rows = cursor.fetchall() if cursor.description else []
            told += "".join("|".join(_cell(one) for one in row) + "\n" for row in rows)
    return told


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "t" if value else "f"
        case _:
            return str(value)


def is_query(statement: str) -> bool:
    return statement.split()[0].upper() in ("SELECT", "SHOW", "EXPLAIN")


def look(command: str, wanted: str, ask: Callable[[], str], again: bool) -> None:
    """What was asked for may take a moment to be seen; people look again."""
    until = time.monotonic() + PATIENCE
    told = ask()
    while again and not matches(wanted, told) and time.monotonic() < until:
        time.sleep(0.05)
        told = ask()
    check(command, wanted, told)


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
