"""Variables in SQL texts: `${NAME}`, `${NAME:-default}`, `${NAME:raw}`, and `$${` for a plain `${`.

A value is put in once, is not searched for variables, and cannot change the SQL around it. Inside
quotes it is escaped for that quote. Without quotes it must be a number or a plain name; a keyword
is a plain name: `ORDER BY x ${DIRECTION}`. The result is lexed again: if a quote or comment is not
where the template had it, the text is refused. Only `:raw` puts in SQL, and it must not change the
quotes after it. The body of a function or DO is SQL with quotes of its own. Comments are not
changed. A default applies where the variable is not set, or empty. Messages never contain a value:
it may be a secret.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rota.errors import Invalid
from rota.model.environment import INJECTED, RESERVED
from rota.model.limits import INTERPOLATED_LENGTH
from rota.model.sql_lexer import LITERAL, QUOTED, VARIABLE, Lines, Token, lex
from rota.model.sql_quotes import dollar_parts, escape, misplaced, unfit

VARIABLE_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]*")

_TAG: Final = re.compile(r"\$\w*\$")
_PIECE: Final = re.compile(f"({VARIABLE})|{LITERAL}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A variable at its position in a text."""

    name: str
    default: str | None
    raw: bool
    line: int


def readable(name: str, injected: Collection[str] = INJECTED) -> bool:
    """False for Rota's settings, which may hold secrets; true for its variables of a run."""
    return not name.startswith(RESERVED) or name in injected


def variable_of(name: str) -> str:
    """The variable of an argument of that name."""
    return name.upper().replace("-", "_")


def uses(text: str, dialect: str) -> tuple[Use, ...]:
    """Every variable outside of comments, in order."""
    return tuple(_uses(text, dialect, 1))


def variables(text: str, dialect: str) -> tuple[str, ...]:
    """The names of the variables, each once, in order of first use."""
    return tuple(dict.fromkeys(use.name for use in uses(text, dialect)))


def missing(text: str, values: Mapping[str, str], dialect: str) -> tuple[str, ...]:
    """The names that have neither a value nor a default, or may not be read."""
    return tuple(
        dict.fromkeys(use.name for use in uses(text, dialect) if _value(use, values) is None)
    )


def missing_message(
    names: Collection[str], injected: Collection[str] = INJECTED, where: str = "in SQL"
) -> str:
    """One message about all missing names."""
    unset = [name for name in names if readable(name, injected)]
    messages = []
    if unset:
        are = (
            "variables {} are not set; set them" if unset[1:] else "variable {} is not set; set it"
        )
        messages.append(
            are.format(", ".join(unset))
            + f" in the environment, or give a default: ${{{unset[0]}:-…}}"
        )
    if hidden := [name for name in names if not readable(name, injected)]:
        messages.append(
            f"{', '.join(hidden)} cannot be read {where}; only {', '.join(injected)} can"
        )
    return "; ".join(messages)


class Script(str):
    """SQL with its variables replaced, which maps its lines to those of the template.

    `added` are the lines that values added, as (first line, count)."""

    added: tuple[tuple[int, int], ...] = ()

    def line(self, made: int) -> int:
        """The line of the template for a line of this text."""
        return made - sum(
            min(count, made + 1 - first) for first, count in self.added if first <= made
        )

    def part(self, start: int, end: int) -> Script:
        """A part of the text, with empty lines before it so that its line numbers stay."""
        made = Script("\n" * self.count("\n", 0, start) + self[start:end])
        made.added = self.added
        return made


def interpolate(text: str, values: Mapping[str, str], dialect: str) -> Script:
    """The text with every variable replaced; Invalid if a value is not allowed at its position."""
    if names := missing(text, values, dialect):
        raise Invalid(missing_message(names))
    return _Rendering(text, values, dialect, 1).render()


def _value(use: Use, values: Mapping[str, str]) -> str | None:
    if not readable(use.name):
        return None
    value = values.get(use.name)
    return use.default if use.default is not None and not value else value


def _uses(text: str, dialect: str, line: int) -> Iterator[Use]:
    lines = Lines(text, line)
    for token, is_code in _template(text, dialect, line):
        if is_code:
            tag, body = dollar_parts(text[token.start : token.end])
            yield from _uses(body, dialect, lines.of(token.start + len(tag)))
        elif token.kind == "variable" or token.kind in QUOTED:
            for match in _pieces(text, token):
                if match[1]:
                    yield _use(match[1], lines.of(match.start()))


def _template(text: str, dialect: str, line: int) -> Iterator[tuple[Token, bool]]:
    """(token, is it SQL in a dollar quote) for each token of a template.

    SQL in a dollar quote is the body of a function (AS $$ … $$) or of DO."""
    first = last = ""
    may_hold = dialect == "postgres" and _TAG.search(text) is not None
    for token in lex(text, dialect, template=True, with_words=may_hold, line=line):
        holds_code = last == "AS" or first == "DO"
        yield token, token.kind == "dollar" and may_hold and holds_code
        if token.kind == "semicolon":
            first = last = ""
        elif token.kind != "comment":
            last = text[token.start : token.end].upper() if token.kind == "word" else "-"
            first = first or last


def _pieces(text: str, token: Token) -> Iterator[re.Match[str]]:
    """The variables and literals in a token. The tag of a dollar quote is no literal."""
    is_dollar = token.kind == "dollar"
    tag = dollar_parts(text[token.start : token.end])[0] if is_dollar else ""
    return _PIECE.finditer(text, token.start + len(tag), token.end - len(tag))


def _use(written: str, line: int) -> Use:
    name, colon, option = written[2:-1].partition(":")
    if colon and option != "raw" and not option.startswith("-"):
        raise Invalid(
            f"line {line}: {written} is not a variable; write ${{{name}}}, ${{{name}:-default}} "
            f"or ${{{name}:raw}}, or $${{ for a plain ${{"
        )
    default = option[1:] if option.startswith("-") else None
    return Use(name=name, default=default, raw=option == "raw", line=line)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A value at its position in the result, and the kind of quote it was escaped for."""

    use: Use
    kind: str
    start: int
    end: int


class _Rendering:
    """The rendering of one text that begins in `line`, with the tokens expected in the result."""

    def __init__(self, text: str, values: Mapping[str, str], dialect: str, line: int) -> None:
        self.text, self.values, self.dialect, self.line = text, values, dialect, line
        self.lines = Lines(text, line)
        self.output: list[str] = []
        self.length = self.raws = 0
        self.breaks = 0  # of lines, in the result so far
        self.added: list[tuple[int, int]] = []
        self.expected: list[Token] = []  # the quotes and comments of the result
        self.placed: list[_Placed] = []

    def render(self) -> Script:
        position = 0
        for token, is_code in _template(self.text, self.dialect, self.line):
            self._put(self.text[position : token.start])
            position, start, raws = token.end, self.length, self.raws
            if is_code:
                self._put_code(token)
            elif token.kind in QUOTED or token.kind in ("variable", "literal"):
                self._put_pieces(token)
            else:
                self._put(self.text[token.start : token.end])
            # Raw text may close the quote that it stands in, and open it again.
            if _encloses(token) and self.raws == raws:
                self.expected.append(Token(token.kind, start, self.length))
        self._put(self.text[position:])
        made = Script("".join(self.output))
        made.added = tuple(self.added)
        self._check(made)
        return made

    def _put(self, text: str) -> None:
        self.output.append(text)
        self.length += len(text)
        self.breaks += text.count("\n")
        if self.length > INTERPOLATED_LENGTH:
            raise Invalid(
                f"the text is longer than {INTERPOLATED_LENGTH:,} characters with its variables; "
                "load large data from a file or a table"
            )

    def _put_code(self, token: Token) -> None:
        tag, body = dollar_parts(self.text[token.start : token.end])
        line = self.lines.of(token.start + len(tag))
        made = _Rendering(body, self.values, self.dialect, line).render()
        if (made + tag).index(tag) < len(made):
            raise Invalid(
                f"line {line}: the value of a variable in this body holds {tag}, which ends it; "
                "use another tag"
            )
        self.added += [(first + self.breaks, count) for first, count in made.added]
        self._put(tag + made + tag)

    def _put_pieces(self, token: Token) -> None:
        """Write a variable without quotes, or a quote with its variables."""
        position = token.start
        for match in _pieces(self.text, token):
            before = self.text[position : match.start()]
            self._put(before)
            position = match.end()
            if match[1]:
                self._put_value(match[1], match.start(), token, before)
            else:
                self._put("${")
        self._put(self.text[position : token.end])

    def _put_value(self, written: str, offset: int, token: Token, before: str) -> None:
        use = _use(written, self.lines.of(offset))
        value = _value(use, self.values) or ""
        quote = self.text[token.start : token.end]
        fault = unfit(value)
        if not fault and not use.raw:
            fault = misplaced(value, token.kind, quote, before, self.dialect)
        if fault:
            raise Invalid(f"line {use.line}: the value of {use.name} {fault.format(use.name)}")
        if use.raw:
            self.raws += 1
        else:
            value = escape(value, token.kind)
        self.placed.append(_Placed(use, token.kind, self.length, self.length + len(value)))
        if count := value.count("\n"):
            self.added.append((self.breaks + 2, count))
        self._put(value)

    def _check(self, made: str) -> None:
        """Lex the result; Invalid if a value changed the quotes or comments of the template.

        Raw text may add quotes of its own."""
        if not self.placed:
            return
        try:
            tokens = [item for item in lex(made, self.dialect, with_words=False) if _encloses(item)]
        except Invalid:
            raise self._changed(len(made)) from None
        wrong = set(self.expected) - set(tokens)
        if not self.raws:
            wrong |= set(tokens) - set(self.expected)
        else:
            wrong |= {Token("", item.start, item.end) for item in self._strays(tokens)}
        if wrong:
            raise self._changed(min(token.start for token in wrong))

    def _strays(self, tokens: list[Token]) -> Iterator[_Placed]:
        starts = [token.start for token in tokens]
        for placed in self.placed:
            around = tokens[bisect_right(starts, placed.start) - 1] if starts else None
            inside = around is not None and around.start <= placed.start < around.end
            kind = around.kind if around is not None and inside else "variable"
            if kind != placed.kind and not placed.use.raw:
                yield placed

    def _changed(self, offset: int) -> Invalid:
        """The error about a changed quote: names raw text if there is any, else the next value."""
        raw = [placed.use for placed in self.placed if placed.use.raw]
        if raw:
            return Invalid(
                f"line {raw[0].line}: the raw text of {raw[0].name} leaves a quote or comment "
                "open, or closes one; it must end as it began"
            )
        near = [placed.use for placed in self.placed if placed.end >= offset] or [
            self.placed[-1].use
        ]
        return Invalid(
            f"line {near[0].line}: the value of {near[0].name} would change the meaning of the "
            f"text around it; put a blank before and after ${{{near[0].name}}}, or quotes"
        )


def _encloses(token: Token) -> bool:
    return token.kind in QUOTED or token.kind == "comment"
