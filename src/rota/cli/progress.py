"""How far a command is: a bar where the total is known, else a spinner, in one line on stderr.

Nothing is drawn with --json, off a terminal or on a dumb one, nor before the work has taken a
while: then `rich` is not even imported.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from rota.cli.output import one_line

if TYPE_CHECKING:
    from rich.live import Live
    from rich.spinner import Spinner

BAR_SECONDS = 2.0
SPINNER_SECONDS = 0.5  # for who waits for one run
DRAW_SECONDS = 0.1  # between two drawings
BAR_WIDTH = 30


class Progress:
    """Used with `with`: whatever ends the work, the line is gone and the cursor is back."""

    def __init__(
        self,
        *,
        silent: bool,
        after: float | None = None,
        stream: TextIO | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._silent = silent or not can_draw(self._stream)
        self._monotonic = monotonic
        self._first_at = monotonic() + (BAR_SECONDS if after is None else after)
        self._live: Live | None = None
        self._spinner: Spinner | None = None
        self._drawn_at = float("-inf")
        self._total = 0
        self._began: tuple[float, int] = (0.0, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    @property
    def drawn(self) -> bool:
        """Whether something is shown by now, or would be."""
        return not self._silent and self._monotonic() >= self._first_at

    def show(self, text: str, done: int = 0, total: int = 0) -> None:
        """`total` 0: it is not known."""
        if self._silent:
            return
        if total != self._total or done < self._began[1]:
            self._total, self._began = total, (self._monotonic(), done)
        now = self._monotonic()
        if now < max(self._first_at, self._drawn_at + DRAW_SECONDS):
            return
        self._drawn_at = now
        if self._live is None:
            self._live = self._start()
        self._live.update(self._line(text, done, total), refresh=True)

    def clear(self) -> None:
        """Before anything else is written. The next `show` draws it again."""
        live, self._live, self._drawn_at = self._live, None, float("-inf")
        if live is not None:
            live.stop()

    def _start(self) -> Live:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        console = Console(file=self._stream, force_terminal=True, highlight=False)
        self._spinner = Spinner("dots")
        # No thread of its own: it would be measured by `rota bench`. No redirection: what others
        # write to stdout and stderr goes there.
        live = Live(
            console=console, transient=True, auto_refresh=False, redirect_stdout=False,
            redirect_stderr=False,
        )  # fmt: skip
        live.start()
        return live

    def _line(self, text: str, done: int, total: int) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        cells: list[Any] = [Text(one_line(text), no_wrap=True, overflow="ellipsis")]
        if total:
            figures = f"{done:,} of {total:,}{self._rest(done, total)}"
            bar = ProgressBar(total=total, completed=done, width=BAR_WIDTH)
            cells = [*cells, bar, Text(figures, no_wrap=True)]
        else:
            cells = [self._spinner, *cells]
        row = Table.grid(padding=(0, 1))
        for _ in cells:
            row.add_column(no_wrap=True, overflow="ellipsis")
        row.add_row(*cells)
        return row

    def _rest(self, done: int, total: int) -> str:
        """How long it will take yet, at the speed so far."""
        at, before = self._began
        if done <= before:
            return ""
        seconds = (self._monotonic() - at) * (total - done) / (done - before)
        minutes, left = divmod(round(seconds), 60)
        return f", {minutes}:{left:02} left"


def can_draw(stream: TextIO) -> bool:
    """Whether it is a terminal that can move its cursor. With NO_COLOR `rich` leaves the colour."""
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
