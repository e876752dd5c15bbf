"""What a SQL file says about its own transactions, and where its statements begin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rota.model.sql_lexer import Lines, lex

_AUTONOMOUS: Final = re.compile(r"\ufeff?--[ \t]*rota:[ \t]*autonomous[ \t]*\r?(?:\n|\Z)")
_WORDS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The first words of a statement, in capitals, and the line in which it begins; `start` and
    `end` enclose its text, with the comments before it and without its semicolon."""

    words: tuple[str, ...]
    line: int
    start: int
    end: int


def is_autonomous(text: str) -> bool:
    """True for a file whose first line asks for no transaction around it."""
    return _AUTONOMOUS.match(text) is not None


def own_transaction(text: str, dialect: str) -> int | None:
    """The line of the first statement that would begin or end a transaction, or None.

    Ask it of the text with its variables replaced: raw values are SQL."""
    return next((one.line for one in statements(text, dialect) if _controls(one.words)), None)


def statements(text: str, dialect: str) -> Iterator[Statement]:
    """The statements of a script. What lies in quotes, or in the body of a trigger or function,
    is part of the statement around it."""
    lines = Lines(text)
    words: list[str] = []
    start = position = depth = 0
    first, in_body, at_start = -1, False, False
    for token in lex(text, dialect):
        gap, position = text[position : token.start], token.end
        if first < 0 and not gap.isspace() and gap:
            first = token.start - len(gap.lstrip())
        if dialect == "postgres":
            depth += gap.count("(") - gap.count(")")  # a rule may hold several statements
        if token.kind == "comment":
            continue
        word = text[token.start : token.end].upper() if token.kind == "word" else ""
        if token.kind == "semicolon":
            at_start = True
            if in_body or depth > 0:
                continue
            if first >= 0:
                yield _statement(lines, words, first, start, token.start)
            words, start, first, depth = [], token.end, -1, 0
        elif in_body:
            in_body = not (at_start and word == "END")
            at_start = False
        else:
            first = first if first >= 0 else token.start
            words.append(word)
            in_body = at_start = _opens_body(words, dialect)
    rest = text[position:].lstrip()
    if first >= 0 or rest:
        first = first if first >= 0 else len(text) - len(rest)
        yield _statement(lines, words, first, start, len(text))


def _statement(lines: Lines, words: list[str], first: int, start: int, end: int) -> Statement:
    told = tuple(words[:_WORDS]) or ("",)
    return Statement(words=told, line=lines.of(first), start=start, end=end)


def _opens_body(words: list[str], dialect: str) -> bool:
    """`begin` is also a name, so it must stand where a body can."""
    if words[0] != "CREATE":
        return False
    if dialect == "sqlite":
        return words[-1] == "BEGIN" and "TRIGGER" in words[1:3]
    return words[-2:] == ["BEGIN", "ATOMIC"]


def _controls(words: tuple[str, ...]) -> bool:
    """A savepoint lies inside the transaction of its step: it is allowed, and so is its end."""
    match words[0]:
        case "BEGIN" | "COMMIT" | "END" | "ABORT":
            return True
        case "ROLLBACK":
            return "TO" not in words[1:3]
        case "START" | "PREPARE":
            return words[1:2] == ("TRANSACTION",)
        case _:
            return False
