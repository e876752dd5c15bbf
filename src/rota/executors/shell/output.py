"""The output of a command as log lines, and its last lines for the outcome.

Standard output is logged as INFO and standard error as WARNING. At most LOG_LINES lines of both
together are stored, each up to LOG_LINE_LENGTH. A last line reports how many were cut. Secrets are
removed from a line before it is cut.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rota.model.limits import LOG_LINE_LENGTH, LOG_LINES, TAIL_LENGTH, TAIL_LINES, clip
from rota.model.redact import SHAPE_LENGTH, redact_text, shorten
from rota.model.secrets import Secrets, known

# Bytes stored of a line without an end.
LONGEST = 8 * LOG_LINE_LENGTH
TAIL_BYTES = 8 * TAIL_LENGTH


@dataclass(slots=True)
class Budget:
    """The number of lines that both streams have logged."""

    lines: int = 0

    def end(self, logger: logging.Logger) -> None:
        if self.lines > LOG_LINES:
            logger.warning("[%s more lines were cut]", f"{self.lines - LOG_LINES:,}")


class Stream:
    """Splits a stream into log lines."""

    def __init__(
        self, logger: logging.Logger, level: int, secrets: Secrets, budget: Budget
    ) -> None:
        self._logger, self._level, self._secrets = logger, level, secrets
        self._budget = budget
        self._rest, self._dropped = b"", 0
        self._tail, self._tail_cut = bytearray(), False

    def feed(self, piece: bytes) -> None:
        self._remember(piece)
        if self._budget.lines >= LOG_LINES:
            # Only newlines are counted, so endless output needs no memory.
            self._budget.lines += piece.count(b"\n")
            self._rest = piece[-1:].strip(b"\n")
            return
        if self._dropped:
            # This piece does not continue the stored part of the line; joined, the halves of a
            # secret would not be recognised.
            before, newline, piece = piece.partition(b"\n")
            self._dropped += len(before)
            if not newline:
                return
            piece = newline + piece
        *lines, rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._write(line)
        self._rest = rest[:LONGEST]
        self._dropped = len(rest) - len(self._rest)

    def end(self) -> None:
        """Log a last line that has no newline."""
        if self._rest:
            self._write(self._rest)
        self._rest = b""

    def tail(self) -> str:
        """The last lines, without secrets."""
        text = bytes(self._tail).decode("utf-8", "replace")
        text = redact_text(text, self._secrets)[self._slack if self._tail_cut else 0 :]
        lines = [line.rstrip() for line in text.strip().splitlines()][-TAIL_LINES:]
        return clip("\n".join(lines)[-TAIL_LENGTH:], TAIL_LENGTH)

    def _remember(self, piece: bytes) -> None:
        self._tail += piece[-TAIL_BYTES:]
        if (over := len(self._tail) - TAIL_BYTES) > 0 or len(piece) > TAIL_BYTES:
            del self._tail[: max(over, 0)]
            self._tail_cut = True

    def _write(self, line: bytes) -> None:
        self._budget.lines += 1
        dropped, self._dropped = self._dropped, 0
        if self._budget.lines > LOG_LINES:
            return
        text = line.decode("utf-8", "replace").rstrip("\r")
        if dropped:
            text = redact_text(text, self._secrets)[: -self._slack]
        text = shorten(text, LOG_LINE_LENGTH, self._secrets)
        if dropped:
            text += f" [{dropped:,} more bytes were cut]"
        self._logger.log(self._level, "%s", text)

    @property
    def _slack(self) -> int:
        """The length to remove at a cut: part of a secret there would not be recognised."""
        return max(self._secrets.longest, known().longest, SHAPE_LENGTH)
