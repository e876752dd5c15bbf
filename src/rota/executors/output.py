"""What a child prints, as log lines of the run that it works on.

Standard output, standard error and `ctx.logger` share one pipe, so that lines keep their order.
At most LOG_LINES lines are kept, each up to LOG_LINE_LENGTH; what was cut is said at the end.
"""

from __future__ import annotations

import logging

import msgspec

from rota.model.limits import LOG_LINE_LENGTH, LOG_LINES
from rota.model.redact import SHAPE_LENGTH, shorten
from rota.model.secrets import NO_SECRETS, Secrets

# A log record is JSON and may need six bytes for a character; longer lines lose their end here.
LONGEST = 8 * LOG_LINE_LENGTH


class Record(msgspec.Struct):
    """A line of `ctx.logger`, as it travels among the printed ones."""

    at: float
    level: str
    text: str


class Output:
    """Cuts the stream of one call into lines for the run's logger."""

    def __init__(self, logger: logging.Logger, mark: str, secrets: Secrets = NO_SECRETS) -> None:
        self._logger, self._mark, self._secrets = logger, mark.encode(), secrets
        self._rest, self._dropped = b"", 0
        self._lines = 0
        self.tail = ""

    def feed(self, piece: bytes) -> None:
        if self._lines >= LOG_LINES:
            # Endless output costs a count of its newlines, and no memory. The rest is only a
            # sign that a line has begun.
            self._lines += piece.count(b"\n")
            self._rest = piece[-1:].strip(b"\n")
            return
        *lines, rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._take(line)
        self._rest = rest[:LONGEST]
        self._dropped += len(rest) - len(self._rest)

    def end(self) -> None:
        """The call is over: a line without its newline counts, and so does what was cut."""
        if self._rest:
            self._take(self._rest)
        self._rest = b""
        if self._lines > LOG_LINES:
            self._logger.warning("[%s more lines were cut]", f"{self._lines - LOG_LINES:,}")

    def _take(self, line: bytes) -> None:
        # `print("…", end="")` may leave text before a record on the same line.
        text, marked, record = line.partition(self._mark)
        if text or not marked:
            self._write(text)
        if marked:
            self._log(record)

    def _write(self, line: bytes) -> None:
        self._lines += 1
        if self._lines > LOG_LINES:
            return
        told = line.decode("utf-8", "replace").rstrip("\r")
        if self._dropped:  # its end was cut, perhaps inside of a secret
            told = told[: LONGEST - SHAPE_LENGTH]
        text = shorten(told, LOG_LINE_LENGTH, self._secrets)
        if self._dropped:
            text += f" [{self._dropped:,} more bytes were cut]"
            self._dropped = 0
        self.tail = text
        self._logger.info("%s", text)

    def _log(self, record: bytes) -> None:
        try:
            told = msgspec.json.decode(record, type=Record)
        except msgspec.DecodeError:
            # Two processes wrote at once, and a long record was torn.
            self._write(record)
            return
        self._lines += 1
        if self._lines > LOG_LINES:
            return
        told_again = logging.makeLogRecord(
            {
                "name": self._logger.name,
                "msg": shorten(told.text, LOG_LINE_LENGTH, self._secrets),
                "created": told.at,
                "levelname": told.level,
                "levelno": logging.getLevelNamesMapping().get(told.level, logging.INFO),
            }
        )
        self._logger.handle(told_again)
