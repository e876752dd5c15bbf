"""The output of a child process as log lines of its run.

Standard output, standard error and `ctx.logger` share one pipe, so that lines keep their order.
At most LOG_LINES lines are stored, each up to LOG_LINE_LENGTH. A last line reports how many
were cut.
"""

from __future__ import annotations

import logging

import msgspec

from rota.model.limits import LOG_LINE_LENGTH, LOG_LINES
from rota.model.redact import SHAPE_LENGTH, shorten
from rota.model.secrets import NO_SECRETS, Secrets

# In bytes: JSON may need six for a character of a log record. Longer lines are cut here.
LONGEST = 8 * LOG_LINE_LENGTH


class Record(msgspec.Struct):
    """A line of `ctx.logger`, as it is sent between printed lines."""

    at: float
    level: str
    text: str


class Output:
    """Splits the output of a call into lines for the run's logger."""

    def __init__(self, logger: logging.Logger, mark: str, secrets: Secrets = NO_SECRETS) -> None:
        self._logger, self._mark, self._secrets = logger, mark.encode(), secrets
        self._rest, self._dropped = b"", 0
        self._lines = 0
        self.tail = ""

    def feed(self, piece: bytes) -> None:
        if self._lines >= LOG_LINES:
            # Only newlines are counted, so endless output needs no memory. The last byte shows
            # whether a line has begun.
            self._lines += piece.count(b"\n")
            self._rest = piece[-1:].strip(b"\n")
            return
        *lines, rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._take(line)
        self._rest = rest[:LONGEST]
        self._dropped += len(rest) - len(self._rest)

    def end(self) -> None:
        """Log the last line, which may have no newline, and the number of lines cut."""
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
        text = line.decode("utf-8", "replace").rstrip("\r")
        if self._dropped:  # its end was cut, perhaps inside a secret
            text = text[: LONGEST - SHAPE_LENGTH]
        text = shorten(text, LOG_LINE_LENGTH, self._secrets)
        if self._dropped:
            text += f" [{self._dropped:,} more bytes were cut]"
            self._dropped = 0
        self.tail = text
        self._logger.info("%s", text)

    def _log(self, line: bytes) -> None:
        try:
            record = msgspec.json.decode(line, type=Record)
        except msgspec.DecodeError:
            # Two processes wrote at once and split a long record.
            self._write(line)
            return
        self._lines += 1
        if self._lines > LOG_LINES:
            return
        log_record = logging.makeLogRecord(
            {
                "name": self._logger.name,
                "msg": shorten(record.text, LOG_LINE_LENGTH, self._secrets),
                "created": record.at,
                "levelname": record.level,
                "levelno": logging.getLevelNamesMapping().get(record.level, logging.INFO),
            }
        )
        self._logger.handle(log_record)
