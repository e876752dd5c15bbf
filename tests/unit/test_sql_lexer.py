"""The lexer: with and without words it sees the same quotes and comments, in any text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import rota
from rota.errors import Invalid
from rota.model.sql_lexer import DIALECTS, Lines, Token, all_of, lex, line_of

PARTS = [
    *"'\"`[]$;-/*{}()EeUuXxNn&a_0 \n\r\t\\.,é\xa0", "--", "/*", "*/", "$$", "$a$", "''", "\\'",
    "E'", "u&'", "x'", "${A}", "$${A}", "${A:-'}", "name", "a$b$", "1e5",
]  # fmt: skip
texts = st.lists(st.sampled_from(PARTS), max_size=30).map("".join)


def enclosing(text: str, dialect: str, *, template: bool, words: bool) -> list[Token] | str:
    try:
        found = list(lex(text, dialect, template=template, with_words=words))
    except Invalid as fault:
        return str(fault)
    return [token for token in found if token.kind not in ("word", "semicolon")]


@pytest.mark.parametrize("template", [True, False])
@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=500)
@given(text=texts)
@example(text="SELECT a$b$ - 1, $b$x$b$")
@example(text="nameE'\\' - 'x'")
def test_words_do_not_matter_to_quotes(dialect: str, template: bool, text: str) -> None:
    told = enclosing(text, dialect, template=template, words=True)
    assert enclosing(text, dialect, template=template, words=False) == told


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("words", [True, False])
def test_a_long_text_is_read_once(dialect: str, words: bool) -> None:
    """Ends at all: what is read again from every character would take minutes."""
    for part in ("a - b ", "'x' + ", "$ ", "x$y ", "-- ", "name", "é"):
        text = part * (1_000_000 // len(part))
        assert all(token.end for token in lex(text, dialect, with_words=words))


@given(text=st.text(st.sampled_from("ab\n"), max_size=20), offset=st.integers(0, 20))
def test_lines_are_counted_alike(text: str, offset: int) -> None:
    offset = min(offset, len(text))
    assert Lines(text, 3).of(offset) == line_of(text, offset, 3)


def test_groups_that_give_nothing_back_are_made_in_one_place() -> None:
    """The first Pythons 3.11 misread them without what `all_of` adds; this one may be newer."""
    made = re.compile(r"\)(?:[*+?]|\{\w+\})\+|\(\?>")
    sources = [file.read_text("utf-8") for file in Path(rota.__file__).parent.rglob("*.py")]
    assert [one for source in sources for one in made.findall(source)] == ["){times}+"]
    assert re.match(all_of("[0-9 ]++", r"(?!\$)[^A-Z]") + r"\$", "12 ,$")
