"""The prompt of `rota sql`: lines are collected until a statement is complete.

With readline, where Python has it: history over sessions, and completion of keywords, views,
schedules and jobs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rota.cli.output import note, say
from rota.errors import RotaError
from rota.model.views import VIEWS
from rota.sql.parser import is_complete
from rota.sql.statements import KEYWORDS

HISTORY_LINES = 1_000
BEGIN, GO_ON = "rota> ", "  ... "
LEAVE = ("quit", "exit", "\\q")
HELP = ("help", "\\?", "\\h", "?")

GUIDE = """\
Statements end with a semicolon:
  SHOW [RUNNING|PAUSED] SCHEDULES;   SHOW SCHEDULE x;   SHOW JOBS;   SHOW RUNS [FOR JOB x];
  SHOW JOBS FOR SCHEDULE x;   SHOW CREATE SCHEDULE x;   EXPLAIN SCHEDULE x [COUNT n];
  CREATE SCHEDULE x FOR JOB j RECURRING '0 3 * * *';
  CREATE SCHEDULE x AS $$ SELECT 1 $$ [ON target] EVERY '5m' [WITH SCHEDULE OPTIONS (...)];
  ALTER SCHEDULE x SET ...;   PAUSE|RESUME|DROP SCHEDULE x [REASON '...'];
  PAUSE|RESUME|DROP SCHEDULES (SELECT id FROM schedules WHERE ...);
  PAUSE|RESUME|CANCEL JOBS FOR SCHEDULE x;   EXECUTE SCHEDULE x;   RUN JOB x [WITH (a = 1)];
  PAUSE|RESUME DISPATCH;   SELECT ... FROM"""


def prompt(run: Callable[[str], None], names: Callable[[], list[str]], dialect: str) -> None:
    """Until the user leaves: quit, or Ctrl-D."""
    say("Statements end with a semicolon; help shows them, quit leaves.")
    with _line_editing(names):
        lines: list[str] = []
        while True:
            try:
                line = input(GO_ON if lines else BEGIN)
            except KeyboardInterrupt:  # takes back what was typed
                lines = []
                print()
                continue
            except EOFError:
                print()
                return
            word = line.strip().rstrip(";").strip().lower()
            if not lines and word in LEAVE:
                return
            if not lines and word in HELP:
                say(f"{GUIDE} {', '.join(VIEWS)};")
                continue
            lines.append(line)
            text = "\n".join(lines)
            if not text.strip():
                lines = []
            elif is_complete(text, dialect):
                lines = []
                _run(run, text)


def _run(run: Callable[[str], None], text: str) -> None:
    try:
        run(text)
    except RotaError as fault:
        note(f"rota: {' '.join(str(fault).split())}")
    except KeyboardInterrupt:
        print("rota: stopped", file=sys.stderr)


@contextmanager
def _line_editing(names: Callable[[], list[str]]) -> Iterator[None]:
    try:
        import readline
    except ImportError:  # a prompt without comfort is a prompt
        yield
        return
    history = history_file()
    with suppress(OSError):
        if history is not None:
            readline.read_history_file(history)
    before = readline.get_completer(), readline.get_completer_delims()
    readline.set_completer(Completer(names))
    readline.set_completer_delims(" \t\n(),;='\"")
    # macOS has another library behind the same module.
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
    try:
        yield
    finally:
        readline.set_completer(before[0])
        readline.set_completer_delims(before[1])
        with suppress(OSError):
            if history is not None:
                _keep_history(readline, history)


def history_file() -> Path | None:
    """None for a user without a home."""
    state = os.environ.get("XDG_STATE_HOME")
    with suppress(RuntimeError):
        return Path(state or Path.home() / ".local" / "state") / "rota" / "sql_history"
    return None


def _keep_history(readline: Any, history: Path) -> None:
    """For its user alone: statements may hold what others should not see."""
    history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    history.touch(mode=0o600)
    readline.set_history_length(HISTORY_LINES)
    readline.write_history_file(history)


class Completer:
    """What may follow, by its beginning. Names are asked for once for each word."""

    def __init__(self, names: Callable[[], Sequence[str]]) -> None:
        self._names = names
        self._found: list[str] = []

    def __call__(self, text: str, state: int) -> str | None:
        if state == 0:
            self._found = self.words(text)
        return self._found[state] if state < len(self._found) else None

    def words(self, text: str) -> list[str]:
        begin = text.lower()
        known = [*KEYWORDS, *VIEWS, *self._names()]
        return sorted({word for word in known if word.lower().startswith(begin)})
