"""Tokens of a statement, with errors that name what was expected and where.

Words are keywords, names (letters, digits and . _ / -), numbers; "…" is a name, '…' and $$…$$ are
text. Comments are skipped. Queries are read by the lexer of their database.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, NoReturn

from rota.errors import Invalid
from rota.model.limits import STATEMENT_LENGTH, check_name, check_text
from rota.model.sql_lexer import all_of, lex

_BLANK: Final = re.compile(all_of(r"\s", r"--[^\n]*+", times="+"))
_WORD: Final = re.compile(all_of("[A-Za-z0-9_.]", r"/(?!\*)", "-(?!-)", times="+"))
_TEXT: Final = re.compile("'(" + all_of("[^']", "''") + ")'")
_NAME: Final = re.compile('"(' + all_of('[^"]', '""') + ')"')
_TAG: Final = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*)?\$")
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}\.[0-9]{1,18}")
_CONSTANTS: Final = {"TRUE": True, "FALSE": False, "NULL": None}
_PARENTHESIS: Final = re.compile(r"[()]")

SIMILARITY: Final = 0.75  # of a word to a keyword to be a typing error

WORD, NAME, TEXT, SYMBOL, END = "word", "name", "text", "symbol", "end"


@dataclass(frozen=True, slots=True)
class Token:
    """`value` is the text of a literal, a keyword in capitals, or the name."""

    kind: str
    value: str
    start: int
    end: int


class Reader:
    def __init__(self, text: str, dialect: str) -> None:
        self.text, self.dialect, self.position = text, dialect, 0
        self._peeked: Token | None = None
        self._before = ""  # the text of the last token, for messages
        check_text(text, "the text")
        if (nul := text.find("\0")) >= 0:
            raise Invalid(f"there is a NUL character at {self.location(nul)}; remove it")

    # Tokens

    def peek(self) -> Token:
        if self._peeked is None:
            self._skip()
            self._peeked = self._scan(self.position)
        return self._peeked

    def take(self) -> Token:
        token = self.peek()
        self.position, self._peeked = token.end, None
        self._before = self.text[token.start : token.end]
        return token

    def begin(self) -> None:
        """Start a new statement: messages no longer mention the previous one."""
        self._before = ""

    def _skip(self) -> None:
        while True:
            if blank := _BLANK.match(self.text, self.position):
                self.position = blank.end()
            elif self.text.startswith("/*", self.position):
                end = self.text.find("*/", self.position + 2)
                if end < 0:
                    self._open("/*", self.position)
                self.position = end + 2
            else:
                return

    def _scan(self, start: int) -> Token:
        text = self.text
        if start >= len(text):
            return Token(END, "", start, start)
        if word := _WORD.match(text, start):
            return Token(WORD, word[0], start, word.end())
        match text[start]:
            case "'":
                return self._literal(_TEXT, TEXT, start, "'")
            case '"':
                return self._literal(_NAME, NAME, start, '"')
            case "$" if tag := _TAG.match(text, start):
                end = text.find(tag[0], tag.end())
                if end < 0:
                    self._open(tag[0], start)
                return Token(TEXT, text[tag.end() : end], start, end + len(tag[0]))
            case symbol:
                return Token(SYMBOL, symbol, start, start + 1)

    def _literal(self, pattern: re.Pattern[str], kind: str, start: int, quote: str) -> Token:
        match = pattern.match(self.text, start)
        if match is None:
            self._open(quote, start)
        return Token(kind, match[1].replace(quote * 2, quote), start, match.end())

    def _open(self, what: str, start: int) -> NoReturn:
        raise Invalid(f"the {what} at {self.location(start)} is never closed")

    # Grammar

    def at(self, *keywords: str) -> bool:
        token = self.peek()
        return token.kind == WORD and token.value.upper() in keywords

    def accept(self, *keywords: str) -> str | None:
        """Take and return the next keyword if it is one of these."""
        return self.take().value.upper() if self.at(*keywords) else None

    def expect(self, *keywords: str, or_else: str = "") -> str:
        keyword = self.accept(*keywords)
        if keyword is None:
            self.fail(listed([*keywords, *([or_else] if or_else else [])]), keywords)
        return keyword

    def accept_symbol(self, symbol: str) -> bool:
        token = self.peek()
        if (token.kind, token.value) == (SYMBOL, symbol):
            self.take()
            return True
        return False

    def expect_symbol(self, symbol: str) -> None:
        if not self.accept_symbol(symbol):
            self.fail(repr(symbol))

    def name(self, what: str) -> str:
        token = self.peek()
        if token.kind not in (WORD, NAME, TEXT):
            self.fail(f"the name of {'an' if what[0] in 'ao' else 'a'} {what}")
        return check_name(self.take().value, what)

    def literal(self, what: str) -> str:
        if self.peek().kind != TEXT:
            self.fail(f"{what} in '…'")
        return self.take().value

    def value(self, *, bare: bool) -> Any:
        """Text, a number, TRUE, FALSE or NULL; with `bare` also a word without quotes, as text."""
        token = self.peek()
        if token.kind == TEXT:
            return self.take().value
        if token.kind == WORD:
            if token.value.upper() in _CONSTANTS:
                return _CONSTANTS[self.take().value.upper()]
            if _INTEGER.fullmatch(token.value):
                return int(self.take().value)
            if _NUMBER.fullmatch(token.value):
                return float(self.take().value)
            if bare:
                return self.take().value
            self.fail(f"a value (text stands in quotes: '{_cut(token.value)}')")
        self.fail("a value")

    def is_over(self) -> bool:
        """True at a semicolon or the end."""
        token = self.peek()
        return token.kind == END or (token.kind, token.value) == (SYMBOL, ";")

    def query(self, *, closed: bool) -> str:
        """The text of a query: up to the semicolon, or with `closed` up to the `)` around it."""
        self._skip()
        start, self._peeked = self.position, None
        rest = self.text[start : start + STATEMENT_LENGTH + 1]
        depth, before, end = 0, 0, -1
        for token in lex(rest, self.dialect, line=self._line(start)):
            depth, end = _balance(rest, before, token.start, depth, closed)
            before = token.end
            if end >= 0:
                break
            if token.kind == "semicolon":
                end = token.start
                break
        else:
            depth, end = _balance(rest, before, len(rest), depth, closed)
        if closed and (end < 0 or rest[end : end + 1] != ")"):
            raise Invalid(f"the ( before {self.location(start)} is never closed")
        self.position = start + (len(rest) if end < 0 else end)
        return self.text[start : self.position].strip()

    # Positions and errors

    def location(self, offset: int) -> str:
        """line:column, both from 1."""
        return f"{self._line(offset)}:{offset - self.text.rfind(chr(10), 0, offset)}"

    def _line(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1

    def fail(self, expected: str, keywords: Sequence[str] = ()) -> NoReturn:
        """Raise Invalid: what was expected, what was found, and a suggestion."""
        token = self.peek()
        actual = "the end" if token.kind == END else repr(_cut(self.text[token.start : token.end]))
        after = f" after {_cut(self._before)}" if self._before else ""
        close = []
        if token.kind == WORD:
            close = get_close_matches(token.value.upper(), keywords, cutoff=SIMILARITY)
        hint = f"; did you mean {close[0]}?" if close else ""
        if close:  # a typing error: name only the close keywords
            expected = listed([word for word in keywords if word in close])
        raise Invalid(
            f"expected {expected}{after}, got {actual} at {self.location(token.start)}{hint}"
        )


def _balance(text: str, start: int, end: int, depth: int, closed: bool) -> tuple[int, int]:
    """(depth, offset of the first unmatched `)`, or -1)."""
    for match in _PARENTHESIS.finditer(text, start, end):
        depth += 1 if match[0] == "(" else -1
        if closed and depth < 0:
            return depth, match.start()
    return depth, -1


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
