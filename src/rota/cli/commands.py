"""All commands: where the function of each is, its summary, its examples, and what would surprise.

Nothing is imported for a command that is not asked for, and `rota --help` needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple


class Command(NamedTuple):
    """One verb: where its function is, what it does, how it is used, and what would surprise."""

    name: str
    path: str
    help: str
    examples: tuple[str, ...]
    more: str = ""

    def function(self) -> Callable[..., Any]:
        module, _, name = self.path.partition(":")
        function: Callable[..., Any] = getattr(import_module(f"rota.cli.{module}"), name)
        return function


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
COMMANDS = {command.name: command for group in GROUPS.values() for command in group}

ABOUT = "Run SQL and Python on a timetable, inside the database you already have."
BEGIN = "Begin with: rota init, then rota up. More on a command: rota COMMAND --help"
