"""Print answers: JSON for programs, tables for people, plain columns for pipes.

Text from jobs (errors, log lines, arguments) may hold anything, so what moves a cursor, colours a
terminal or turns the direction of text is shown and never sent. Nothing in it is markup.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

# Control characters, but for line ends and tabs; marks that turn the direction of text, which can
# make a line say what it does not; line ends that only some programs know.
_TURNING = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_LINE_ENDS = "\u2028\u2029"
_CONTROL = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNING}{_LINE_ENDS}\ufeff]")
# The same where JSON itself has not escaped them.
_IN_JSON = re.compile(rf"[\x7f-\x9f{_TURNING}{_LINE_ENDS}\ufeff]")
_COLOURS = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "dim": "2", "bold": "1"}

# Words that deserve a colour wherever they stand alone in a cell.
STYLES = {
    "succeeded": "green", "ACTIVE": "green", "running": "cyan", "fired": "green",
    "dead": "red", "failed": "red", "timed_out": "red", "lost": "red", "BROKEN": "red",
    "cancelled": "yellow", "paused": "yellow", "PAUSED": "yellow", "held": "yellow",
    "missed": "yellow", "skipped": "yellow", "dropped": "yellow", "DISABLED": "yellow",
    "FINISHED": "dim",
}  # fmt: skip

# The last column of a table on a terminal is folded, but not narrower than this.
NARROWEST = 24


def say(text: str = "") -> None:
    print(clean(text))


def note(text: str) -> None:
    """Beside the answer: on stderr, so that it never gets into a pipe."""
    print(clean(text), file=sys.stderr)


def say_json(value: Any, *, lines: bool = False) -> None:
    """One JSON document; with `lines` on one line, flushed, as part of a stream."""
    import json

    text = json.dumps(plain(value), ensure_ascii=False, indent=None if lines else 2)
    # The value is the same, and a terminal that shows it is not moved by it.
    print(_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text), flush=lines)


def plain(value: Any) -> Any:
    """As JSON: instants ISO 8601 in UTC, durations as text."""
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case timedelta():
            from rota.model.duration import format_duration

            return format_duration(value)
        case Mapping():
            return {str(name): plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case _:
            return value


def say_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = "") -> None:
    """Aligned columns. A terminal gets colours and folded cells, a pipe every character."""
    cells = [["-" if cell is None else one_line(str(cell)) for cell in row] for row in rows]
    if not cells:
        if empty:
            note(empty)
    elif sys.stdout.isatty():
        _rich_table(columns, cells)
    else:
        _plain_table(columns, cells)


def say_fields(fields: Mapping[str, object]) -> None:
    """Names and values in two columns; what is None or empty is left out."""
    told = {name: str(value) for name, value in fields.items() if value not in (None, "", {}, [])}
    width = max(map(len, told), default=0)
    for name, value in told.items():
        value = value.replace("\n", "\n" + " " * (width + 4))
        say_painted(
            f"  {paint(f'{name:<{width}}', 'dim')}  {paint(clean(value), STYLES.get(value))}"
        )


def say_heading(text: str) -> None:
    say_painted(f"\n{paint(clean(text), 'bold')}")


def say_painted(text: str) -> None:
    """Text that was cleaned before its colours were added."""
    print(text)


def paint(text: str, colour: str | None, *, stream: Any = None) -> str:
    if colour is None or not coloured(sys.stdout if stream is None else stream):
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def coloured(stream: Any) -> bool:
    import os

    return bool(
        stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def clean(text: str) -> str:
    """What would not be seen is spelled out; line ends and tabs stay."""
    return _CONTROL.sub(_spelled, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The same where a line end would begin another row: it is spelled out, too."""
    return clean(text).replace("\n", "\\n").replace("\t", "\\t")


def _spelled(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def _plain_table(columns: Sequence[str], cells: list[list[str]]) -> None:
    rows = [list(columns), *cells]
    widths = _widths(rows)
    for row in rows:
        print(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def _rich_table(columns: Sequence[str], cells: list[list[str]]) -> None:
    """The last column folds; the others are there to be copied, and stay whole.

    Where even they do not fit, the lines are as long as they must be and the terminal wraps them.
    """
    from rich.cells import cell_len
    from rich.console import Console, ConsoleDimensions
    from rich.table import Table
    from rich.text import Text

    *whole, last = _widths([list(columns), *cells], cell_len)
    needed = sum(width + 2 for width in whole) + min(last, NARROWEST)
    console = Console(highlight=False)
    # Both: a dumb terminal counts as 80 columns wide unless it is told its height, too.
    console.size = ConsoleDimensions(max(console.width, needed), console.height)
    head = "bold" if coloured(sys.stdout) else ""
    table = Table(box=None, pad_edge=False, header_style=head, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=place < len(whole))
    for row in cells:
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    console.print(table)


def _widths(rows: list[list[str]], width: Callable[[str], int] = len) -> list[int]:
    return [max(width(row[place]) for row in rows) for place in range(len(rows[0]))]
