"""`rota`: from a line to a call, and what becomes of errors.

Exit codes: 0 it worked, 1 the thing asked about failed, 2 wrong use.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rota.errors import Invalid, MissingExtra, RotaError, Unknown, WrongSchema
from rota.version import VERSION

if TYPE_CHECKING:
    from rota.cli.commands import Command

HELP = frozenset({"--help", "-h"})
# A command keeps most of what it loads: it is done before looking for garbage pays. `rota up` has a
# number of its own.
COLLECT_AFTER = 100_000
OK, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
# A thing that does not exist or cannot be meant is the asker's mistake; the rest went wrong here.
_WRONG_USE = (Invalid, Unknown, MissingExtra, WrongSchema)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    _never_fail_to_encode()
    gc.set_threshold(COLLECT_AFTER)
    # Python looks for garbage while it ends, in all that was loaded, and the system takes back the
    # memory in any case: that would be a sixth of the time of a short command.
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except RotaError as fault:
        return _refuse(words, str(fault), WRONG_USE if isinstance(fault, _WRONG_USE) else FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough. Python flushes once more at exit: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _run(words: list[str]) -> int:
    flags = words[: words.index("--")] if "--" in words else words
    if "--version" in flags:
        print(f"rota {VERSION}")
        return OK
    if not words or not HELP.isdisjoint(flags):
        return _say_help([word for word in words if word not in HELP])
    code = parse(words)()
    return code if isinstance(code, int) else OK


def parse(words: Sequence[str]) -> partial[Any]:
    """The call that a line means; `Invalid` with the way out where it means none."""
    from rota.cli.reader import read
    from rota.cli.table import table_of

    command = _command(words[0])
    table = table_of(command.function())
    arguments, options = table.arguments(read(command.name, table, words[1:]))
    return partial(table.function, *arguments, **options)


def _say_help(words: Sequence[str]) -> int:
    if not words:
        return _say_commands()
    from rota.cli.help import say_command
    from rota.cli.table import table_of

    command = _command(words[0])
    say_command(command, table_of(command.function()))
    return OK


def _say_commands() -> int:
    from rota.cli.commands import ABOUT, BEGIN, COMMANDS, GROUPS
    from rota.cli.output import paint, say, say_painted

    width = max(map(len, COMMANDS))
    say(f"Usage: rota COMMAND\n\n{ABOUT}")
    for title, commands in GROUPS.items():
        say_painted(f"\n{paint(title, 'bold')}")
        for command in commands:
            say_painted(f"  {paint(f'{command.name:<{width}}', 'cyan')}  {command.help}")
    say(f"\n{BEGIN}")
    return OK


def _command(word: str) -> Command:
    """The command of this name, or what was probably meant and where all commands are."""
    from rota.cli.commands import COMMANDS

    if word in COMMANDS:
        return COMMANDS[word]
    from rota.cli.reader import close_to, shown  # after a mistake only

    if word.startswith("-"):
        option = shown(word)
        raise Invalid(f"option {option} stands before the command; use: rota COMMAND {option} …")
    meant = _MEANT.get(word) or close_to(word, set(COMMANDS))
    hint = f'Did you mean "{meant}"? ' if meant else ""
    raise Invalid(f'Unknown command "{shown(word)}". {hint}`rota --help` lists all')


# What others call it.
_MEANT = {
    "start": "up",
    "serve": "up",
    "worker": "up",
    "beat": "up",
    "list": "runs",
    "status": "runs",
}


def _refuse(words: Sequence[str], message: str, code: int) -> int:
    """One line on stderr, so that stdout holds answers only."""
    if "--json" in words:
        import json

        print(json.dumps({"error": message}), file=sys.stderr)
    else:
        from rota.cli.output import clean

        print(clean(f"rota: {' '.join(message.split())}"), file=sys.stderr)
    return code


def _never_fail_to_encode() -> None:
    """A job's name in Greek must not end a command on an ASCII terminal."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
