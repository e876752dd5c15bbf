"""Where quotes, comments and words of a SQL text begin and end, as its engine sees them.

Not a parser: it knows only what decides how far a quote or comment reaches. In a template a
variable is one piece, also inside a quote, whatever its default holds. Block comments nest on
PostgreSQL and DuckDB, not on SQLite; a literal that goes on after a line break keeps its kind.
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

# The kinds of quote, by what opens them, in small letters.
_OPENINGS: Final = {
    "'": "string", "e'": "escaped", "u&'": "unicode", "x'": "bits", "b'": "bits",
    '"': "identifier", 'u&"': "unicode_identifier", "`": "backtick", "[": "bracket",
}  # fmt: skip
QUOTED: Final = frozenset({*_OPENINGS.values(), "dollar"})


def all_of(*alternatives: str, times: str = "*") -> str:
    """A pattern that takes these for as long as one is found, and gives nothing back. The last
    alternative, which is never found, is for Python before 3.11.5: what follows such a group was
    looked for wherever the last alternative had looked to in vain."""
    return f"(?:{'|'.join(alternatives)}|{_NEVER}){times}+"


# After this a quote carries on with the literal before it, on PostgreSQL and DuckDB.
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
    text: str, dialect: str, *, template: bool = False, words: bool = True, line: int = 1
) -> Iterator[Token]:
    """The tokens of a text; nothing between them opens a quote or comment. A quote that is never
    closed is refused by its line; the text begins in `line`. Without `words`, and semicolons, it
    is several times faster."""
    if dialect not in DIALECTS:
        raise Invalid(f"dialect {dialect!r} is unknown; use one of {', '.join(DIALECTS)}")
    if (nul := text.find("\0")) >= 0:
        raise Invalid(f"line {line_of(text, nul, line)}: the text holds a NUL character; remove it")
    beginning, rest = _patterns(dialect, template, words)
    find = beginning.search if words else beginning.match
    position, carried = 0, ""
    while found := find(text, position):
        kind = found.lastgroup or ""
        start, end = found.span(kind)
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
            shown = (text[start : start + 20].splitlines() or [""])[0]
            raise Invalid(f"line {line_of(text, start, line)}: {shown} … is never closed")
        yield Token(kind, start, end)
        position = end


class Lines:
    """The lines of a text, for many questions: counting from its beginning each time would take
    minutes for a long one. The text begins in line `first`."""

    def __init__(self, text: str, first: int = 1) -> None:
        self.first = first
        self.ends = [found.start() for found in re.finditer("\n", text)]

    def of(self, offset: int) -> int:
        return bisect_left(self.ends, offset) + self.first


def line_of(text: str, offset: int, first: int = 1) -> int:
    """The line that an offset lies in, where the text begins in line `first`."""
    return text.count("\n", 0, offset) + first


def _dollar_end(text: str, start: int, tag: str, template: bool) -> int:
    pieces = f"{VARIABLE}|{LITERAL}|" if template else ""
    edge = re.compile(f"{pieces}({re.escape(tag)})")
    ends = (found.end() for found in edge.finditer(text, start + len(tag)) if found[1])
    return next(ends, -1)


def _comment_end(text: str, start: int, *, nests: bool) -> int:
    if not nests:
        closed = text.find("*/", start + 2)
        return closed + 2 if closed >= 0 else len(text)  # SQLite is content with an open one
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return -1


@cache
def _patterns(
    dialect: str, template: bool, words: bool
) -> tuple[re.Pattern[str], dict[str, re.Pattern[str]]]:
    """What a token begins with; and for each kind of quote the rest after its opening."""
    sqlite = dialect == "sqlite"
    high = rf"[^\x00-\x7f{_WIDE_BLANKS}]" if dialect == "duckdb" else r"[^\x00-\x7f]"
    letter = f"(?:[A-Za-z_]|{high})"
    piece = f"(?:{VARIABLE}|{LITERAL})" if template else _NEVER
    # JSON in a dollar quote, $${"a": 1}$$, begins as the literal does: there a name must follow.
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
    if not words:
        word = alternatives.pop("word")
        alternatives.pop("semicolon")
        # Words as a whole, so that the end of one is not taken for the beginning of a quote; and
        # whatever begins no token, so that the skipping always ends where one does.
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
        # A backslash before a variable stays alone, so that the variable is seen, and refused.
        "escaped": rest("'", rf"\\(?!{piece}).", rf"\\(?={piece})", "''"),
        "unicode": rest("'", "''"),
        "bits": rest("'"),
        "identifier": rest('"', '""'),
        "unicode_identifier": rest('"', '""'),
        "backtick": rest("`", "``"),
        "bracket": rest(r"\]"),
    }
