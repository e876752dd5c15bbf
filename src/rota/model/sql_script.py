"""The statements of a SQL file, and those that control transactions or the session."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rota.model.sql_lexer import Lines, lex

_AUTONOMOUS: Final = re.compile(r"\ufeff?--[ \t]*rota:[ \t]*autonomous[ \t]*\r?(?:\n|\Z)")
_MOST_KEYWORDS: Final = 5

# These statements affect only their session, and are cheap to repeat.
_SESSION: Final = {
    "duckdb": frozenset({"ATTACH", "DETACH", "USE", "SET", "RESET", "LOAD", "INSTALL"}),
    "postgres": frozenset({"SET", "RESET", "LOAD"}),
    "sqlite": frozenset({"ATTACH", "DETACH"}),
}
_OF_SECRET: Final = frozenset({"OR", "REPLACE", "TEMPORARY", "TEMP"})
_OF_TRANSACTION: Final = frozenset({"LOCAL", "TRANSACTION", "CONSTRAINTS"})
# Other PRAGMAs of SQLite may do work, or change the file; these affect only the connection.
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
    """The first keywords of a statement, in capitals, and the line in which it begins.

    `start` and `end` enclose its text, with the comments before it and without its semicolon."""

    keywords: tuple[str, ...]
    line: int
    start: int
    end: int

    @property
    def removes(self) -> bool:
        """True if it removes something from the session."""
        return self.keywords[0] in ("DETACH", "DROP")


def is_autonomous(text: str) -> bool:
    """True for a file whose first line asks to run it without a transaction."""
    return _AUTONOMOUS.match(text) is not None


def own_transaction(text: str, dialect: str) -> int | None:
    """The line of the first statement that would begin or end a transaction, or None.

    Call it with the variables replaced: raw values are SQL."""
    return next(
        (
            statement.line
            for statement in statements(text, dialect)
            if _controls(statement.keywords)
        ),
        None,
    )


def session_statements(text: str, dialect: str) -> Iterator[Statement]:
    """The statements that only change the session: ATTACH, SET, LOAD, and temporary secrets."""
    return (
        statement
        for statement in statements(text, dialect)
        if _is_of_session(statement, text, dialect)
    )


def makes_secret(text: str, dialect: str) -> bool:
    """True if a script creates a secret that ends with its database instance."""
    if dialect != "duckdb" or "secret" not in text.lower():  # a quick test, true for most files
        return False
    candidates = statements(text, dialect)
    return any(
        statement.keywords[0] == "CREATE" and _is_secret(statement, text)
        for statement in candidates
    )


def statements(text: str, dialect: str) -> Iterator[Statement]:
    """The statements of a script. The body of a trigger or function is a part of its statement."""
    lines = Lines(text)
    keywords: list[str] = []
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
                yield _statement(lines, keywords, first, start, token.start)
            keywords, start, first, depth = [], token.end, -1, 0
        elif in_body:
            in_body = not (at_start and word == "END")
            at_start = False
        else:
            first = first if first >= 0 else token.start
            keywords.append(word)
            in_body = at_start = _opens_body(keywords, dialect)
    rest = text[position:].lstrip()
    if first >= 0 or rest:
        first = first if first >= 0 else len(text) - len(rest)
        yield _statement(lines, keywords, first, start, len(text))


def _statement(lines: Lines, keywords: list[str], first: int, start: int, end: int) -> Statement:
    first_keywords = tuple(keywords[:_MOST_KEYWORDS]) or ("",)
    return Statement(keywords=first_keywords, line=lines.of(first), start=start, end=end)


def _opens_body(keywords: list[str], dialect: str) -> bool:
    """True after the keywords that open a body; elsewhere `begin` may be a name."""
    if keywords[0] != "CREATE":
        return False
    if dialect == "sqlite":
        return keywords[-1] == "BEGIN" and "TRIGGER" in keywords[1:3]
    return keywords[-2:] == ["BEGIN", "ATOMIC"]


def _is_of_session(statement: Statement, text: str, dialect: str) -> bool:
    keywords = statement.keywords
    match keywords[0]:
        case "SET" if not _OF_TRANSACTION.isdisjoint(keywords[1:2]):
            return False
        case "CREATE" | "DROP":
            return dialect == "duckdb" and _is_secret(statement, text)
        case "PRAGMA" if dialect == "sqlite":
            return not _PRAGMAS.isdisjoint(keywords[1:3])  # its schema may stand before it
        case "PRAGMA" if dialect == "duckdb":
            return _assigns(text[statement.start : statement.end])
        case first:
            return first in _SESSION[dialect]


def _is_secret(statement: Statement, text: str) -> bool:
    """True for [CREATE OR REPLACE] [TEMPORARY] SECRET. A persistent secret is data."""
    keywords = statement.keywords
    position = keywords.index("SECRET") if "SECRET" in keywords else len(keywords)
    if position == len(keywords) or not _OF_SECRET.issuperset(keywords[1:position]):
        return False
    return _head(text[statement.start : statement.end]).isdisjoint(("IN", "FROM"))


def _head(text: str) -> set[str]:
    """The words before the first parenthesis."""
    names, position = set(), 0
    for token in lex(text, "duckdb"):
        if "(" in text[position : token.start]:
            break
        position = token.end
        if token.kind == "word":
            names.add(text[token.start : token.end].upper())
    return names


def _assigns(pragma: str) -> bool:
    """True if the name is followed by `=`: then the PRAGMA is a SET, else a call."""
    named = position = 0
    for token in lex(pragma, "duckdb"):
        gap, position = pragma[position : token.start].strip(), token.end
        if named == 2 and gap:
            return gap.startswith("=")
        named += token.kind != "comment"
    return named == 2 and pragma[position:].strip().startswith("=")


def _controls(keywords: tuple[str, ...]) -> bool:
    """True if a statement begins or ends a transaction. Savepoints are allowed in a step."""
    match keywords[0]:
        case "BEGIN" | "COMMIT" | "END" | "ABORT":
            return True
        case "ROLLBACK":
            return "TO" not in keywords[1:3]
        case "START" | "PREPARE":
            return keywords[1:2] == ("TRANSACTION",)
        case _:
            return False
