"""What happened, line by line: the same seed gives the same lines."""

from __future__ import annotations

import hashlib

SHOWN = 60


class Violation(BaseException):
    """A promise was broken. Not an Exception: no `except` on the way may hide it."""


class Failed(Exception):
    """A seed that broke a promise, with the end of its history."""

    def __init__(self, seed: int, violation: Violation, history: History) -> None:
        told = f"seed {seed}: {violation}"
        how = f"replay it: python -m tests.simulation {seed}"
        super().__init__(f"{told}\n\n{history.tail()}\n\n{told}\n{how}")
        self.seed, self.violation = seed, violation


class History:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, elapsed: int, who: str, what: str) -> None:
        self.lines.append(f"{elapsed / 1e6:11.6f} {who:<14} {what}")

    def digest(self) -> str:
        """Two histories with one digest are the same history."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()

    def tail(self, lines: int = SHOWN) -> str:
        cut = len(self.lines) - lines
        begin = [f"… {cut} lines before"] if cut > 0 else []
        return "\n".join(begin + self.lines[-lines:])
