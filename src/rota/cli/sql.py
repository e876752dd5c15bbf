"""`rota sql`: statements and queries, from the command line, a file, a pipe or a prompt.

Every text opens the store anew: a prompt that waits for its user keeps nothing open.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, Any

from rota.cli.options import HERE, Option, Where
from rota.cli.output import (
    NARROWEST,
    note,
    plain,
    say,
    say_fields,
    say_heading,
    say_json,
    say_table,
)
from rota.cli.store import operating, reading, settings_of
from rota.config import Settings
from rota.errors import Invalid, RotaError
from rota.executors.targets import STORE, kind_of
from rota.flow.control import Control
from rota.model.limits import SQL_FILE_BYTES
from rota.model.result import Result
from rota.model.roles import VIEWER
from rota.sql.execute import VIA, Statements
from rota.sql.parser import parse
from rota.sql.show import CREATE_STATEMENT
from rota.storage.operations.audit import Actor

Show = Callable[[Result], None]


def sql(
    *,
    command: Annotated[
        str | None,
        Option(
            "Run these statements and end. Several are divided by semicolons.",
            "STATEMENT",
            names=("--command", "-c"),
        ),
    ] = None,
    file: Annotated[
        Path | None,
        Option(
            "Run the statements in this file and end; - is the standard input.",
            "FILE",
            names=("--file", "-f"),
        ),
    ] = None,
    csv: Annotated[bool, Option("Answer as CSV with a header.")] = False,
    where: Where = HERE,
) -> None:
    """Ask and act in SQL: queries over the views, and statements about schedules and runs."""
    if command is not None and file is not None:
        raise Invalid("give --command or --file, not both")
    if csv and where.json:
        raise Invalid("give --json or --csv, not both")
    show: Show = _say_json if where.json else _say_csv if csv else _say_table
    if command is not None:
        return run(command, where, show)
    if file is not None or not sys.stdin.isatty():
        return run(_read(Path("-") if file is None else file), where, show)
    from rota.cli.prompt import prompt

    prompt(lambda text: run(text, where, show), lambda: _names(where), _dialect(where))


def run(text: str, where: Where, show: Show) -> None:
    """Each statement of a text. None of them if one cannot be understood."""
    settings = settings_of(where)
    found = parse(text, kind_of(settings.database, "database"))
    if not found:
        raise Invalid("there is no statement; try SHOW SCHEDULES, or SELECT * FROM runs")
    looks_only = all(statement.role == VIEWER for statement in found)
    with _statements(where, settings, looks_only=looks_only) as statements:
        for statement in found:
            result = statements.execute(statement)
            show(result)
            if result.more:
                note(f"there are more; the first {len(result.rows):,} rows are shown")


@contextmanager
def _statements(where: Where, settings: Settings, *, looks_only: bool) -> Iterator[Statements]:
    opened = reading(where) if looks_only else operating(where)
    with opened as control:
        mine = control.as_actor(Actor(by=control.actor.by, via=VIA))
        yield Statements(mine, timezone=settings.timezone, targets={STORE, *settings.targets})


def _dialect(where: Where) -> str:
    return kind_of(settings_of(where).database, "database")


def _names(where: Where) -> list[str]:
    """Schedules and jobs, to be completed; none where they cannot be asked for now."""
    try:
        with reading(where) as control:
            return _known(control)
    except RotaError:
        return []


def _known(control: Control) -> list[str]:
    schedules = [one.name for one in control.schedules()]
    return [*schedules, *(one["name"] for one in control.jobs())]


def _read(file: Path) -> str:
    if str(file) == "-":
        content = sys.stdin.buffer.read(SQL_FILE_BYTES + 1)
    else:
        try:
            with file.open("rb") as opened:
                content = opened.read(SQL_FILE_BYTES + 1)
        except OSError as fault:
            raise Invalid(f"{file} cannot be read: {fault.strerror}") from None
    if len(content) > SQL_FILE_BYTES:
        raise Invalid(f"{file} is larger than {SQL_FILE_BYTES:,} bytes; divide it")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Invalid(f"{file} is not UTF-8; save it as UTF-8") from None


# Answers


def _say_json(result: Result) -> None:
    say_json(result.records())


def _say_csv(result: Result) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(result.names)
    writer.writerows([_as_text(cell, "") for cell in row] for row in result.rows)


def _say_table(result: Result) -> None:
    """A table; on a terminal that is too narrow for it, one line for each value."""
    if result.names[-1:] == (CREATE_STATEMENT,) and len(result.rows) == 1:
        return say(f"{result.rows[0][-1]}")  # to be pasted
    rows = [[_as_text(cell, None) for cell in row] for row in result.rows]
    if not sys.stdout.isatty() or _width(result.names, rows) <= get_terminal_size().columns:
        return say_table(result.names, rows, empty="no rows")
    for number, row in enumerate(rows, start=1):
        say_heading(f"{number} of {len(rows)}")
        say_fields(dict(zip(result.names, row, strict=True)))


def _width(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> int:
    """Of the whole table; its last column can be folded."""
    widths = [max(map(len, column)) for column in zip(names, *_texts(rows), strict=True)]
    return sum(width + 2 for width in widths[:-1]) + min(widths[-1], NARROWEST)


def _texts(rows: Sequence[Sequence[str | None]]) -> list[list[str]]:
    return [[cell or "-" for cell in row] for row in rows]


def _as_text(cell: Any, nothing: str | None) -> str | None:
    match cell:
        case None:
            return nothing
        case bool():
            return "true" if cell else "false"
        case datetime() if cell.tzinfo is not None:
            return cell.astimezone(UTC).isoformat(" ").replace("+00:00", "Z")
        case list() | dict():
            import json

            return json.dumps(plain(cell), ensure_ascii=False)
        case _:
            return str(plain(cell))
