"""Find quotes, comments and words in a SQL text, as its engine would.

Not a parser: it only decides where a quote or comment ends. In a template a variable is one piece,
also inside a quote, whatever its default contains. Block comments nest on PostgreSQL and DuckDB,
not on SQLite; a literal that continues after a line break keeps its kind.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from rota.errors import Invalid

DIALECTS: Final = ("duckdb", "postgres", "sqlite")

VARIABLE: Final = r"\$\{[A-Z_][A-Z0-9_]*(?::[^}\n]*)?\}"
LITERAL: Final = r"\$\$\{"
_NEVER: Final = r"(?!)"

# The kinds of quote by their opening, in lower case.
_OPENINGS: Final = {
    "'": "string", "e'": "escaped", "u&'": "unicode", "x'": "bits", "b'": "bits",
    '"': "identifier", 'u&"': "unicode_identifier", "`": "backtick", "[": "bracket",
}  # fmt: skip
QUOTED: Final = frozenset({*_OPENINGS.values(), "dollar"})


def all_of(*alternatives: str, times: str = "*") -> str:
    """A possessive pattern of repeated alternatives.

    The last alternative, which never matches, is for Python before 3.11.5: there, what follows a
    possessive group was searched from where its last alternative had failed."""
    return f"(?:{'|'.join(alternatives)}|{_NEVER}){times}+"


# Before a quote, this continues the previous literal, on PostgreSQL and DuckDB.
_CONTINUED: Final = re.compile(
    all_of(r"[ \t\f]", r"--[^\n\r]*+")
    + r"[\n\r]"
    + all_of(r"[ \t\n\r\f\v]", r"--[^\n\r]*+[\n\r]")
    + "'"
)
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")
# DuckDB reads these as blanks, PostgreSQL and SQLite as letters.
_WIDE_BLANKS: Final = "\x85\xa0\u1680\u2000-\u200d\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
WIDE_BLANK: Final = re.compile(f"[{_WIDE_BLANKS}]")


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is one of QUOTED, or comment, word, semicolon; in a template also variable and
    literal (`$${`), where they stand outside of quotes."""

    kind: str
    start: int
    end: int


def lex(
    text: str, dialect: str, *, template: bool = False, with_words: bool = True, line: int = 1
) -> Iterator[Token]:
    """The tokens of a text; no text between them opens a quote or comment.

    Invalid, with its line, for a quote that is never closed; the text begins in `line`. Without
    `with_words` there are no tokens for words and semicolons, which is several times faster."""
    if dialect not in DIALECTS:
        raise Invalid(f"dialect {dialect!r} is unknown; use one of {', '.join(DIALECTS)}")
    if (nul := text.find("\0")) >= 0:
        raise Invalid(f"line {line_of(text, nul, line)}: the text holds a NUL character; remove it")
    beginning, rest = _patterns(dialect, template, with_words)
    find = beginning.search if with_words else beginning.match
    position, carried = 0, ""
    while token_match := find(text, position):
        kind = token_match.lastgroup or ""
        start, end = token_match.span(kind)
        match kind:
            case "quote":
                kind, carried = carried or _OPENINGS[text[start:end].lower()], ""
                closed = rest[kind].match(text, end)
                end = closed.end() if closed else -1
                if closed and dialect != "sqlite" and _CONTINUED.match(text, end):
                    carried = kind
            case "dollar":
                end = _dollar_end(text, start, text[start:end], template)
            case "block":
                kind, end = "comment", _comment_end(text, start, nests=dialect != "sqlite")
        if end < 0:
            excerpt = (text[start : start + 20].splitlines() or [""])[0]
            raise Invalid(f"line {line_of(text, start, line)}: {excerpt} … is never closed")
        yield Token(kind, start, end)
        position = end


class Lines:
    """Line numbers of offsets in a text that begins in line `first`.

    For many lookups: counting from the beginning each time takes minutes for a long text."""

    def __init__(self, text: str, first: int = 1) -> None:
        self.first = first
        self.ends = [match.start() for match in re.finditer("\n", text)]

    def of(self, offset: int) -> int:
        return bisect_left(self.ends, offset) + self.first


def line_of(text: str, offset: int, first: int = 1) -> int:
    """The line of an offset in a text that begins in line `first`."""
    return text.count("\n", 0, offset) + first


def _dollar_end(text: str, start: int, tag: str, template: bool) -> int:
    pieces = f"{VARIABLE}|{LITERAL}|" if template else ""
    edge = re.compile(f"{pieces}({re.escape(tag)})")
    ends = (match.end() for match in edge.finditer(text, start + len(tag)) if match[1])
    return next(ends, -1)


def _comment_end(text: str, start: int, *, nests: bool) -> int:
    if not nests:
        closed = text.find("*/", start + 2)
        return closed + 2 if closed >= 0 else len(text)  # SQLite accepts an open comment
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return -1


@cache
def _patterns(
    dialect: str, template: bool, with_words: bool
) -> tuple[re.Pattern[str], dict[str, re.Pattern[str]]]:
    """(pattern of the beginning of a token, pattern of the rest by kind of quote)."""
    sqlite = dialect == "sqlite"
    high = rf"[^\x00-\x7f{_WIDE_BLANKS}]" if dialect == "duckdb" else r"[^\x00-\x7f]"
    letter = f"(?:[A-Za-z_]|{high})"
    piece = f"(?:{VARIABLE}|{LITERAL})" if template else _NEVER
    # JSON in a dollar quote, $${"a": 1}$$, begins like a literal, so a name must follow a literal.
    literal = LITERAL if sqlite else rf"{LITERAL}(?=[A-Z_][A-Z0-9_]*[:}}])"
    alternatives = {
        "variable": VARIABLE if template else _NEVER,
        "literal": literal if template else _NEVER,
        "comment": r"--[^\n]*+" if sqlite else r"--[^\n\r]*+",
        "block": r"/\*",
        "quote": r"[xX]'|['\"`[]" if sqlite else r"[eExXbB]'|[uU]&['\"]|['\"]",
        "dollar": _NEVER if sqlite else rf"\$(?:{letter}{all_of(letter, '[0-9]')})?\$",
        "word": letter + all_of(letter, "[0-9]", rf"(?!{piece})\$"),
        "semicolon": ";",
    }
    skipped = ""
    if not with_words:
        word = alternatives.pop("word")
        alternatives.pop("semicolon")
        # Skip whole words, so that the end of a word is not taken for the beginning of a quote; and
        # characters that begin no token, so that skipping always ends at the next token.
        others = "|".join(alternatives.values())
        skipped = all_of(
            f"(?!{alternatives['quote']}){word}",
            r"[0-9 \t\n\r\f\v(),.;:=<>+*!?%&|]++",
            f"(?!{others})[^A-Za-z_]",
        )
    tokens = "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in alternatives.items())
    beginning = f"{skipped}(?:{tokens})"

    def rest(close: str, *within: str) -> re.Pattern[str]:
        plain = rf"[^{close}\\$]++" if within and within[0].startswith(r"\\") else f"[^{close}$]++"
        return re.compile(all_of(piece, plain, *within, r"\$") + close, re.S)

    return re.compile(beginning), {
        "string": rest("'", "''"),
        # A backslash does not hide a following variable, so that the variable is found and refused.
        "escaped": rest("'", rf"\\(?!{piece}).", rf"\\(?={piece})", "''"),
        "unicode": rest("'", "''"),
        "bits": rest("'"),
        "identifier": rest('"', '""'),
        "unicode_identifier": rest('"', '""'),
        "backtick": rest("`", "``"),
        "bracket": rest(r"\]"),
    }
