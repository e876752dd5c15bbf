"""What a SQL file says about its own transactions, and where its statements begin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rota.model.sql_lexer import Lines, lex

_AUTONOMOUS: Final = re.compile(r"\ufeff?--[ \t]*rota:[ \t]*autonomous[ \t]*\r?(?:\n|\Z)")
_WORDS: Final = 5

# What a statement of these does is undone with its session, and costs nothing to do again.
_SESSION: Final = {
    "duckdb": frozenset({"ATTACH", "DETACH", "USE", "SET", "RESET", "LOAD", "INSTALL"}),
    "postgres": frozenset({"SET", "RESET", "LOAD"}),
    "sqlite": frozenset({"ATTACH", "DETACH"}),
}
_OF_SECRET: Final = frozenset({"OR", "REPLACE", "TEMPORARY", "TEMP"})
_OF_TRANSACTION: Final = frozenset({"LOCAL", "TRANSACTION", "CONSTRAINTS"})
# A PRAGMA of SQLite may also do work, or be kept in the file: these are the connection's own.
_PRAGMAS: Final = frozenset({
    "ANALYSIS_LIMIT", "AUTOMATIC_INDEX", "BUSY_TIMEOUT", "CACHE_SIZE", "CACHE_SPILL",
    "CASE_SENSITIVE_LIKE", "CELL_SIZE_CHECK", "FOREIGN_KEYS", "FULLFSYNC", "HARD_HEAP_LIMIT",
    "IGNORE_CHECK_CONSTRAINTS", "JOURNAL_SIZE_LIMIT", "LEGACY_ALTER_TABLE", "LOCKING_MODE",
    "MAX_PAGE_COUNT", "MMAP_SIZE", "QUERY_ONLY", "READ_UNCOMMITTED", "RECURSIVE_TRIGGERS",
    "REVERSE_UNORDERED_SELECTS", "SECURE_DELETE", "SOFT_HEAP_LIMIT", "SYNCHRONOUS", "TEMP_STORE",
    "THREADS", "TRUSTED_SCHEMA", "WAL_AUTOCHECKPOINT", "WRITABLE_SCHEMA",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The first words of a statement, in capitals, and the line in which it begins; `start` and
    `end` enclose its text, with the comments before it and without its semicolon."""

    words: tuple[str, ...]
    line: int
    start: int
    end: int

    @property
    def removes(self) -> bool:
        """It takes away what the session has."""
        return self.words[0] in ("DETACH", "DROP")


def is_autonomous(text: str) -> bool:
    """True for a file whose first line asks for no transaction around it."""
    return _AUTONOMOUS.match(text) is not None


def own_transaction(text: str, dialect: str) -> int | None:
    """The line of the first statement that would begin or end a transaction, or None.

    Ask it of the text with its variables replaced: raw values are SQL."""
    return next((one.line for one in statements(text, dialect) if _controls(one.words)), None)


def session_statements(text: str, dialect: str) -> Iterator[Statement]:
    """The statements that make the session what it is, and do no work beside that: what is
    attached, set and loaded, and secrets that are not kept."""
    return (one for one in statements(text, dialect) if _is_of_session(one, text, dialect))


def makes_secret(text: str, dialect: str) -> bool:
    """Whether a script makes a secret that ends with its database instance."""
    if dialect != "duckdb" or "secret" not in text.lower():  # which is quick, and mostly so
        return False
    found = statements(text, dialect)
    return any(one.words[0] == "CREATE" and _is_secret(one, text) for one in found)


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


def _is_of_session(statement: Statement, text: str, dialect: str) -> bool:
    words = statement.words
    match words[0]:
        case "SET" if not _OF_TRANSACTION.isdisjoint(words[1:2]):
            return False
        case "CREATE" | "DROP":
            return dialect == "duckdb" and _is_secret(statement, text)
        case "PRAGMA" if dialect == "sqlite":
            return not _PRAGMAS.isdisjoint(words[1:3])  # its schema may stand before it
        case "PRAGMA" if dialect == "duckdb":
            return _assigns(text[statement.start : statement.end])
        case first:
            return first in _SESSION[dialect]


def _is_secret(statement: Statement, text: str) -> bool:
    """CREATE OR REPLACE TEMPORARY SECRET, or less. One that is kept somewhere is data."""
    words = statement.words
    place = words.index("SECRET") if "SECRET" in words else len(words)
    if place == len(words) or not _OF_SECRET.issuperset(words[1:place]):
        return False
    return _head(text[statement.start : statement.end]).isdisjoint(("IN", "FROM"))


def _head(text: str) -> set[str]:
    """The words before the first parenthesis."""
    found, position = set(), 0
    for token in lex(text, "duckdb"):
        if "(" in text[position : token.start]:
            break
        position = token.end
        if token.kind == "word":
            found.add(text[token.start : token.end].upper())
    return found


def _assigns(pragma: str) -> bool:
    """Whether its name is followed by = : then it is another word for SET, else a call."""
    named = position = 0
    for token in lex(pragma, "duckdb"):
        gap, position = pragma[position : token.start].strip(), token.end
        if named == 2 and gap:
            return gap.startswith("=")
        named += token.kind != "comment"
    return named == 2 and pragma[position:].strip().startswith("=")


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
