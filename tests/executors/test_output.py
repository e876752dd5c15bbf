"""A child's output, cut into lines wherever the pieces were torn."""

from __future__ import annotations

import logging

import pytest

from rota.executors.output import LONGEST, Output
from rota.model.limits import LOG_LINE_LENGTH, LOG_LINES

MARK = "\x1emark"


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))


def lines_of(*pieces: bytes) -> list[tuple[str, str]]:
    logger, kept = logging.Logger("test"), Kept()
    logger.addHandler(kept)
    output = Output(logger, MARK)
    for piece in pieces:
        output.feed(piece)
    output.end()
    return kept.lines


RECORD = MARK.encode() + b'{"at":1.5,"level":"ERROR","text":"said"}\n'
CAFE = "caf\N{LATIN SMALL LETTER E WITH ACUTE}"


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_pieces_of_any_size_give_the_same_lines(size: int) -> None:
    stream = b"one\r\n" + RECORD + b"\ntwo, " + RECORD + CAFE.encode()
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert lines_of(*pieces) == [
        ("INFO", "one"), ("ERROR", "said"), ("INFO", ""), ("INFO", "two, "), ("ERROR", "said"),
        ("INFO", CAFE),
    ]  # fmt: skip


@pytest.mark.parametrize("size", [1, 5, 64, 100_000])
def test_the_count_of_cut_lines_is_exact(size: int) -> None:
    stream = b"ab\n" * (LOG_LINES + 7) + b"no newline"
    lines = lines_of(*(stream[at : at + size] for at in range(0, len(stream), size)))
    assert len(lines) == LOG_LINES + 1
    assert lines[-1] == ("WARNING", "[8 more lines were cut]")


def test_records_count_as_lines() -> None:
    assert lines_of(RECORD * (LOG_LINES + 1))[-1] == ("WARNING", "[1 more lines were cut]")


def test_a_long_line_keeps_both_its_ends_or_says_what_is_missing() -> None:
    (_, text), _ = lines_of(b"a" * LOG_LINE_LENGTH + b"b" * 10 + b"\nnext\n")
    assert len(text) <= LOG_LINE_LENGTH
    assert "characters cut" in text
    assert text.endswith("bbbb")
    (_, text), after = lines_of(b"a" * LONGEST, b"b" * 10, b"\nnext\n")
    assert text.endswith("[10 more bytes were cut]")
    assert after == ("INFO", "next")


@pytest.mark.parametrize("record", [b"{", b"[1]", b'{"at":1}', b'{"text":3,"at":1,"level":"X"}'])
def test_a_torn_record_is_shown_as_it_is(record: bytes) -> None:
    assert lines_of(MARK.encode() + record + b"\n") == [("INFO", record.decode())]
