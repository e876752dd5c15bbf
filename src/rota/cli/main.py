"""`rota`: which commands there are, and what becomes of their errors.

Nothing is imported for a command that is not asked for: each is a path, resolved when it is used,
and its summary stands here so that `rota --help` needs none of them, nor the parser of options.

Exit codes: 0 it worked, 1 the thing asked about failed, 2 wrong use.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from io import StringIO
from typing import TYPE_CHECKING, NamedTuple

from rota.errors import Invalid, MissingExtra, RotaError, Unknown, WrongSchema
from rota.version import VERSION

if TYPE_CHECKING:
    from cyclopts import App
    from rich.console import Console

PIPE_WIDTH = 1_000  # longer than any line of help
# A command keeps most of what it loads: it is done before looking for garbage pays. `rota up` has a
# number of its own.
COLLECT_AFTER = 100_000
OK, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
# A thing that does not exist or cannot be meant is the asker's mistake; the rest went wrong here.
_WRONG_USE = (Invalid, Unknown, MissingExtra, WrongSchema)


class Command(NamedTuple):
    """One verb: where its function is, what it does, how it is used, and what would surprise."""

    name: str
    path: str
    help: str
    examples: tuple[str, ...]
    more: str = ""


START = (
    Command(
        "init", "init:init", "Make a folder with two working jobs and settings.",
        ("rota init", "rota init reports"),
        "Never overwrites a file.",
    ),
    Command(
        "up", "up:up", "Run scheduler, worker, the folder of jobs and the API until stopped.",
        ("rota up", "rota up examples.hello:app", "rota up myapp.jobs:app --only worker"),
        "Creates the store if there is none. Ctrl-C or SIGTERM stops it gracefully.",
    ),
    Command(
        "check", "check:check", "Check the jobs in a folder, and say when they run next.",
        ("rota check", "rota check jobs.d --ignore-missing --json"),
        "Exits with 1 if anything is wrong, so that a deployment can stop there.",
    ),
    Command(
        "migrate", "upkeep:migrate", "Create the store, or bring it up to date.",
        ("rota migrate --plan", "rota migrate --database postgresql://me@db/app"),
    ),
    Command(
        "doctor", "doctor:doctor", "Examine settings, store and processes; say what is wrong.",
        ("rota doctor", "rota doctor --json"),
        "Each finding says its fix. Exits with 1 if there is a problem, and with 2 if the store "
        "cannot be asked.",
    ),
    Command(
        "bench", "bench:bench", "Measure this store on this machine, and clean up.",
        ("rota bench", "rota bench --runs 10000 --json"),
        "Makes runs of a job of its own in a queue of its own, and deletes them afterwards; no "
        "other run is touched.",
    ),
    Command(
        "prune", "upkeep:prune", "Delete what retention no longer keeps.", ("rota prune",),
        "A running `rota up` does this every minute.",
    ),
    Command(
        "adopt", "upkeep:adopt", "Confirm that the store was moved here on purpose.",
        ("rota adopt",),
        "A store that finds itself in another server pauses its schedules until then.",
    ),
    Command(
        "completion", "completion:completion", "Print a script that completes in your shell.",
        ("rota completion bash > ~/.local/share/bash-completion/completions/rota",
         "rota completion zsh > ~/.zfunc/_rota",
         "rota completion fish > ~/.config/fish/completions/rota.fish"),
        "Completes commands, options, and the names of jobs, schedules and queues.",
    ),
    Command(
        "token", "token:token", "Make, list and revoke tokens of the HTTP API.",
        ("rota token create ci --role operator --expires 90d", "rota token list",
         "rota token revoke ci"),
        "A token is printed once: only its hash is kept.",
    ),
    Command(
        "next", "next:coming", "Say what a cron expression means, and when it occurs.",
        ("rota next '30 2 * * *' --tz Europe/Berlin --after 2026-03-28T00:00:00Z",),
    ),
)  # fmt: skip
LOOK = (
    Command("jobs", "lists:jobs", "List jobs.", ("rota jobs",)),
    Command(
        "schedules", "lists:schedules", "List schedules and when they fire next.",
        ("rota schedules", "rota schedules --job rollup --json"),
    ),
    Command(
        "runs", "lists:runs", "List runs, newest first.",
        ("rota runs --state dead", "rota runs --job rollup --limit 100 --json"),
    ),
    Command(
        "show", "show:show", "Show a run, a schedule or a job.",
        ("rota show rollup", "rota show 01997f3a-2c"),
        "A schedule and a job of one name are shown together.",
    ),
    Command(
        "explain", "explain:explain", "Say when a schedule runs next, and why not now.",
        ("rota explain nightly", "rota explain nightly --at 2026-03-29T02:00:00+01:00"),
    ),
    Command(
        "sql", "sql:sql", "Ask and act in SQL.",
        ("rota sql", "rota sql -c 'SHOW SCHEDULES'",
         "rota sql --csv -c \"SELECT * FROM runs WHERE state = 'dead'\""),
        "Without -c and -f a prompt, with history and completion.",
    ),
    Command(
        "logs", "logs:logs", "Print the log lines of a run.", ("rota logs 01997f3a-2c -f",),
        "With --json a list; with --follow too, one object per line.",
    ),
    Command(
        "queues", "lists:queues", "List queues and how much waits in them.", ("rota queues",)
    ),
    Command(
        "workers", "lists:workers", "List workers, and whether they are alive.", ("rota workers",)
    ),
    Command("locks", "lists:locks", "List locks that are held.", ("rota locks",)),
)  # fmt: skip
ACT = (
    Command(
        "run", "enqueue:run", "Run a job or a schedule now.",
        ("rota run rollup --wait", "rota run nightly --force",
         "rota run rollup --arg day=2026-03-29"),
        "The schedule's next time stays as it is.",
    ),
    Command(
        "enqueue", "enqueue:enqueue", "Enqueue a run of a job with arguments.",
        ("rota enqueue send --arg to=a@example.org --arg copies=2",
         'rota enqueue send --args \'{"to": "a@example.org"}\' --delay 10m --key welcome-7'),
    ),
    Command(
        "schedule", "schedule:schedule", "Create a schedule, or change the options given.",
        ("rota schedule nightly --job rollup --cron '0 3 * * *' --timezone Europe/Berlin",
         "rota schedule nightly --overlap skip"),
        "Options that are not given stay as they are.",
    ),
    Command(
        "pause", "operate:pause", "Pause a schedule, a run, a queue or all dispatch.",
        ("rota pause nightly --reason 'moving the warehouse'", "rota pause --queue mail"),
        "Runs under way go on.",
    ),
    Command(
        "resume", "operate:resume", "Resume what was paused.",
        ("rota resume nightly", "rota resume nightly --catch-up one", "rota resume --dispatch"),
        "A schedule fires from now on; what it missed is recorded, and made up for only if asked.",
    ),
    Command(
        "drop", "operate:drop", "Remove a schedule; its history stays.",
        ("rota drop nightly --reason 'replaced by hourly'",),
        "The schedule of a file in jobs.d is dropped with its file; until then it can be paused. "
        "One that an app declares is there again when the app starts.",
    ),
    Command(
        "cancel", "operate:cancel", "Cancel a run, also one that is running.",
        ("rota cancel 01997f3a-2c --reason 'wrong day'", "rota cancel --all --schedule nightly"),
        "A run that is running is asked to end, and its worker ends it. With --all every run that "
        "the filter finds and that has not ended.",
    ),
    Command(
        "redo", "operate:redo", "Start over a run that has ended.",
        ("rota redo 01997f3a-2c", "rota redo 01997f3a-2c --from 02_load.sql",
         "rota redo --all --job rollup --latest"),
        "A run of SQL files goes on at the first one that is not done. With --all every dead run "
        "that the filter finds, or those of another --state.",
    ),
    Command(
        "delete", "operate:delete", "Delete a run with its attempts and logs.",
        ("rota delete 01997f3a-2c", "rota delete --all --state dead --job rollup"),
        "Cancel it first if it is running. With --all every run in --state that the filter finds.",
    ),
)  # fmt: skip
GROUPS = {"Start": START, "Look": LOOK, "Act": ACT}


ABOUT = "Run SQL and Python on a timetable, inside the database you already have."
BEGIN = "Begin with: rota init, then rota up. More on a command: rota COMMAND --help"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    _never_fail_to_encode()
    gc.set_threshold(COLLECT_AFTER)
    # Python looks for garbage while it ends, in all that was loaded, and the system takes back the
    # memory in any case: that would be a sixth of the time of a short command.
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
    try:
        code = _run(tokens)
        sys.stdout.flush()
        return code
    except RotaError as fault:
        return _refuse(tokens, str(fault), WRONG_USE if isinstance(fault, _WRONG_USE) else FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough. Python flushes once more at exit: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _run(tokens: list[str]) -> int:
    if tokens in ([], ["--help"], ["-h"]):
        return _say_help()
    if tokens == ["--version"]:
        print(f"rota {VERSION}")
        return OK
    if (asked := _asked_plainly(tokens)) is not None:
        code = asked()
        return code if isinstance(code, int) else OK
    from cyclopts import CycloptsError, UnknownCommandError

    try:
        asks_help = not {"--help", "-h"}.isdisjoint(tokens) and not sys.stdout.isatty()
        code = make_app(plain_help=asks_help)(
            tokens, console=_pipe() if asks_help else None, exit_on_error=False, print_error=False
        )
    except UnknownCommandError as fault:
        return _refuse(tokens, _unknown(tokens[0], str(fault)), WRONG_USE)
    except CycloptsError as fault:
        return _refuse(tokens, str(fault), WRONG_USE)
    return code if isinstance(code, int) else OK


def _asked_plainly(tokens: list[str]) -> Callable[[], object] | None:
    """The command with its arguments; None where it takes the parser to know what is asked."""
    name, *options = tokens
    if options and not options[0].startswith("--"):
        return None
    for command in (one for group in GROUPS.values() for one in group if one.name == name):
        from rota.cli.plain import read_plain

        module, _, verb = command.path.partition(":")
        function = getattr(import_module(f"rota.cli.{module}"), verb)
        arguments = read_plain(function, options)
        return None if arguments is None else partial(function, **arguments)
    return None


# What others call it.
_MEANT = {
    "start": "up",
    "serve": "up",
    "worker": "up",
    "beat": "up",
    "list": "runs",
    "status": "runs",
}


def _unknown(token: str, told: str) -> str:
    """Name what was meant, if that can be told, and where all commands are."""
    if token.startswith("-"):
        return f"option {token} stands before the command; use: rota COMMAND {token} …"
    if token in (command.name for group in GROUPS.values() for command in group):
        return told  # below it, as in `rota token mak`
    close = re.search(r'Did you mean "([^"]+)"', told)
    meant = _MEANT.get(token) or (close[1] if close else None)
    hint = f'Did you mean "{meant}"? ' if meant else ""
    return f'Unknown command "{token}". {hint}`rota --help` lists all'


def _say_help() -> int:
    from rota.cli.output import paint, say, say_painted

    width = max(len(command.name) for group in GROUPS.values() for command in group)
    say(f"Usage: rota COMMAND\n\n{ABOUT}")
    for title, commands in GROUPS.items():
        say_painted(f"\n{paint(title, 'bold')}")
        for command in commands:
            say_painted(f"  {paint(f'{command.name:<{width}}', 'cyan')}  {command.help}")
    say(f"\n{BEGIN}")
    return OK


def _pipe() -> Console:
    """Help for a pipe: a line for each thing, folded by whoever reads it, and no blanks behind."""
    from rich.console import Console

    class Lines(StringIO):
        def write(self, text: str) -> int:
            return sys.stdout.write(re.sub(r" +$", "", text, flags=re.MULTILINE))

    return Console(file=Lines(), width=PIPE_WIDTH)


def make_app(*, plain_help: bool = False) -> App:
    """`plain_help`: boxes are for people, a pipe gets plain lines."""
    from cyclopts import App, Group, Parameter

    app = App(
        name="rota",
        help=ABOUT,
        help_epilogue=BEGIN,
        help_formatter="plain" if plain_help else None,
        version=f"rota {VERSION}",
        version_flags=["--version"],
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        default_parameter=Parameter(negative=(), show_default=False),
    )
    for title, commands in GROUPS.items():
        group = Group.create_ordered(title)
        for place, command in enumerate(commands):
            app.command(
                f"rota.cli.{command.path}",
                name=command.name,
                help=f"{command.help}\n\n{command.more}".rstrip(),
                help_epilogue="\n\n".join(f"Example: {one}" for one in command.examples),
                group=group,
                sort_key=place,
            )
    return app


def _refuse(tokens: Sequence[str], message: str, code: int) -> int:
    """One line on stderr, so that stdout holds answers only."""
    if "--json" in tokens:
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
