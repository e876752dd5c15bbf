"""What a SQL file says about its own transactions, and where its statements begin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rota.model.sql_lexer import lex, line_of

_AUTONOMOUS: Final = re.compile(r"\ufeff?--[ \t]*rota:[ \t]*autonomous[ \t]*\r?(?:\n|\Z)")
_WORDS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The first words of a statement, in capitals, and the line of the first one."""

    words: tuple[str, ...]
    line: int


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
    words: list[str] = []
    line, in_body, at_start = 0, False, False
    for token in lex(text, dialect):
        word = text[token.start : token.end].upper() if token.kind == "word" else ""
        if token.kind == "comment":
            continue
        if token.kind == "semicolon":
            at_start = True
            if words and not in_body:
                yield Statement(words=tuple(words[:_WORDS]), line=line)
                words.clear()
        elif in_body:
            in_body = not (at_start and word == "END")
            at_start = False
        else:
            line = line if words else line_of(text, token.start)
            words.append(word)
            in_body = at_start = _opens_body(words, dialect)
    if words:
        yield Statement(words=tuple(words[:_WORDS]), line=line)


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
