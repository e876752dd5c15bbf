"""Variables in SQL texts: what is one, what goes in where, and what is refused with the way out."""

from __future__ import annotations

import pytest

from rota.errors import Invalid
from rota.model.environment import INJECTED
from rota.model.interpolate import (
    Use,
    interpolate,
    missing,
    missing_message,
    readable,
    uses,
    variables,
)
from rota.model.limits import INTERPOLATED_LENGTH, VARIABLE_LENGTH
from rota.model.sql_lexer import DIALECTS

EVIL = "x'; DROP TABLE t; --"
TAGGED = ("duckdb", "postgres")

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


# Which variables there are


@every_dialect
def test_variables_are_named_once_in_order(dialect: str) -> None:
    assert variables("${B} '${A}' \"${B}\" ${C:-1} ${D:raw}", dialect) == ("B", "A", "C", "D")


@every_dialect
def test_uses_tell_line_default_and_raw(dialect: str) -> None:
    text = "SELECT ${A},\n '\n${B:-it's}',\n ${C:raw} ${D:-}"
    assert uses(text, dialect) == (
        Use(name="A", default=None, raw=False, line=1),
        Use(name="B", default="it's", raw=False, line=3),
        Use(name="C", default=None, raw=True, line=4),
        Use(name="D", default="", raw=False, line=4),
    )


@every_dialect
@pytest.mark.parametrize(
    "text", ["${a}", "${1A}", "${}", "${A B}", "$A", "$ {A}", "{A}", "'${Aé}'"]
)
def test_what_is_no_variable_is_left_alone(dialect: str, text: str) -> None:
    assert variables(text, dialect) == ()
    assert interpolate(text, {"A": "1"}, dialect) == text


@every_dialect
@pytest.mark.parametrize("text", ["SELECT ${A:x}", "SELECT '${A:RAW}'", "SELECT '${A:=1}'"])
def test_a_variable_with_an_unknown_option_is_refused(dialect: str, text: str) -> None:
    with pytest.raises(Invalid, match=r"line 1: .* write \$\{A\}, \$\{A:-default\}"):
        interpolate(text, {"A": "1"}, dialect)


@every_dialect
@pytest.mark.parametrize("text", ["-- ${A}", "/* ${A} */ SELECT 1", "SELECT 1 -- it's ${A}\n+ 1"])
def test_comments_are_left_alone(dialect: str, text: str) -> None:
    assert variables(text, dialect) == ()
    assert interpolate(text, {"A": "1"}, dialect) == text


def test_comments_nest_where_the_engine_nests_them() -> None:
    text = "/* a /* b */ ${A} */"
    assert variables(text, "postgres") == variables(text, "duckdb") == ()
    assert variables(text, "sqlite") == ("A",)


def test_a_line_comment_ends_where_the_engine_ends_it() -> None:
    text = "SELECT 1 -- comment\r${A}"
    assert variables(text, "postgres") == variables(text, "duckdb") == ("A",)
    assert variables(text, "sqlite") == ()


@pytest.mark.parametrize("text", ["'--' ${A}", "'/*' ${A}", '"/*" ${A}', "1/2 ${A} 3-4"])
@every_dialect
def test_a_comment_in_quotes_is_none(dialect: str, text: str) -> None:
    assert variables(text, dialect) == ("A",)


@every_dialect
def test_missing_names_each_without_value_and_default(dialect: str) -> None:
    text = "${A} '${B}' ${C:-1} ${D} ${ROTA_TOKEN} ${ROTA_TOKEN:-x} ${ROTA_RUN_ID} ${D}"
    values = {"A": "1", "ROTA_TOKEN": "secret", "ROTA_RUN_ID": "r"}
    assert missing(text, values, dialect) == ("B", "D", "ROTA_TOKEN")
    with pytest.raises(Invalid, match=r"variables B, D are not set.*ROTA_TOKEN cannot be read"):
        interpolate(text, values, dialect)


def test_the_message_about_one_missing_name() -> None:
    told = "variable A is not set; set it in the environment, or give a default: ${A:-…}"
    assert missing_message(["A"]) == told


def test_only_injected_names_of_rota_can_be_read() -> None:
    assert all(readable(name) for name in [*INJECTED, "HOME", "ROTATION"])
    assert not readable("ROTA_DATABASE")
    assert not readable("ROTA_")


# What goes in


@every_dialect
@pytest.mark.parametrize(
    "value", ["1", "-1", "+1", "1.5", ".5", "1.", "1e9", "-2.5E-3", "orders", "_x1", "DESC", "null"]
)
def test_a_number_or_a_plain_name_goes_in_bare(dialect: str, value: str) -> None:
    assert interpolate("SELECT ${A} FROM t", {"A": value}, dialect) == f"SELECT {value} FROM t"


@every_dialect
@pytest.mark.parametrize(
    "value", ["", " ", "a b", "a.b", "1a", "1;", "a'", "--", "é", "٣", "1\n", "0x1", "a$b", EVIL]
)
def test_anything_else_is_refused_bare_with_the_way_out(dialect: str, value: str) -> None:
    with pytest.raises(Invalid) as caught:
        interpolate("SELECT\n ${A}", {"A": value}, dialect)
    assert "line 2: the value of A is neither a number nor a plain name" in str(caught.value)
    assert "write '${A}', or ${A:raw}" in str(caught.value)
    assert EVIL not in str(caught.value)


@every_dialect
def test_words_are_made_of_variables(dialect: str) -> None:
    text = "SELECT * FROM ${S}.orders_${Y}_${M}"
    made = interpolate(text, {"S": "s", "Y": "2026", "M": "01"}, dialect)
    assert made == "SELECT * FROM s.orders_2026_01"


@every_dialect
@pytest.mark.parametrize(
    ("text", "made"),
    [("'${A}'", "'a''\\\"`]'"), ('"${A}"', '"a\'\\""`]"'), ("'''${A}'''", "'''a''\\\"`]'''")],
)
def test_values_are_escaped_for_their_quote(dialect: str, text: str, made: str) -> None:
    assert interpolate(text, {"A": "a'\\\"`]"}, dialect) == made


@pytest.mark.parametrize("dialect", TAGGED)
@pytest.mark.parametrize(
    "text", ["E'${A}'", "e'x\\'${A}'", "E'x'\n'${A}'", "E'x' -- it's\n  -- so\n '${A}'"]
)
def test_backslashes_are_doubled_where_they_escape(dialect: str, text: str) -> None:
    made = interpolate(text, {"A": "\\'"}, dialect)
    assert made == text.replace("${A}", "\\\\''")


@pytest.mark.parametrize(
    "text", ["'x' '${A}'", "E'x' '${A}'", "nameE'${A}'", "éE'${A}'", "N'${A}'"]
)
def test_other_literals_keep_their_backslashes(text: str) -> None:
    assert interpolate(text, {"A": "\\'"}, "postgres") == text.replace("${A}", "\\''")


@pytest.mark.parametrize("dialect", TAGGED)
@pytest.mark.parametrize("text", ["$$${A}$$", "$a$ ${A} $a$", "$é1$$$ ${A}$é1$", "1$a$${A}$a$"])
def test_dollar_quotes_take_values_as_they_are(dialect: str, text: str) -> None:
    assert interpolate(text, {"A": "it's \\ $b$."}, dialect) == text.replace("${A}", "it's \\ $b$.")


def test_sqlite_has_quotes_of_its_own() -> None:
    assert interpolate("`${A}` [${A}]", {"A": "a`'\""}, "sqlite") == "`a``'\"` [a`'\"]"
    assert interpolate("E'${A}'", {"A": "\\"}, "sqlite") == "E'\\'"


@every_dialect
def test_hexadecimal_goes_into_binary_literals(dialect: str) -> None:
    assert interpolate("X'00${A}'", {"A": "fF09"}, dialect) == "X'00fF09'"


@every_dialect
def test_values_are_not_read_again(dialect: str) -> None:
    values = {"A": "${B}$${C}${A}", "B": "no"}
    assert interpolate("'${A}' ${B}", values, dialect) == "'${B}$${C}${A}' no"


@every_dialect
def test_a_doubled_dollar_is_a_plain_one(dialect: str) -> None:
    assert interpolate("'$${A}' \"$${x}\" $${A}", {}, dialect) == "'${A}' \"${x}\" ${A}"
    assert variables("'$${A}' $${A}", dialect) == ()


@pytest.mark.parametrize("dialect", TAGGED)
def test_json_in_a_dollar_quote_is_no_literal(dialect: str) -> None:
    text = """SELECT $${"a": "${A}"}$$"""
    assert interpolate(text, {"A": "b"}, dialect) == """SELECT $${"a": "b"}$$"""


@every_dialect
def test_a_default_counts_for_nothing_and_for_unset(dialect: str) -> None:
    text = "'${A:-it's}' ${B:-10} '${C:-}'"
    assert interpolate(text, {"B": ""}, dialect) == "'it''s' 10 ''"
    assert interpolate(text, {"A": "a", "B": "2", "C": "c"}, dialect) == "'a' 2 'c'"


@every_dialect
def test_nothing_is_a_value_in_quotes(dialect: str) -> None:
    assert missing("'${A}'", {"A": ""}, dialect) == ()
    assert interpolate("'${A}'", {"A": ""}, dialect) == "''"


@every_dialect
def test_a_default_follows_the_rules_of_values(dialect: str) -> None:
    with pytest.raises(Invalid, match="neither a number nor a plain name"):
        interpolate("SELECT ${A:-'x'}", {}, dialect)


# Bodies of functions


def test_a_body_has_quotes_of_its_own() -> None:
    text = "CREATE FUNCTION f() RETURNS text LANGUAGE sql AS $$ SELECT '${A}' -- ${B}\n$$"
    assert variables(text, "postgres") == ("A",)
    made = interpolate(text, {"A": EVIL}, "postgres")
    assert made == text.replace("${A}", "x''; DROP TABLE t; --")


@pytest.mark.parametrize("head", ["DO", "do language plpgsql", "DO -- so\n"])
def test_the_body_of_do_is_code(head: str) -> None:
    made = interpolate(f"{head} $$BEGIN PERFORM '${{A}}'; END$$", {"A": EVIL}, "postgres")
    assert made == f"{head} $$BEGIN PERFORM 'x''; DROP TABLE t; --'; END$$"


@pytest.mark.parametrize("value", ["$$", "a$$; DROP TABLE t; $$"])
def test_a_value_cannot_end_a_body(value: str) -> None:
    with pytest.raises(Invalid, match=r"line 2: .* holds \$\$"):
        interpolate("SELECT 1;\nDO $$BEGIN PERFORM '${A}'; END$$", {"A": value}, "postgres")


def test_lines_are_counted_through_bodies() -> None:
    text = "SELECT 1;\nDO $$\nBEGIN\n  PERFORM ${A};\nEND $$"
    assert uses(text, "postgres")[0].line == 4
    with pytest.raises(Invalid, match="line 4: "):
        interpolate(text, {"A": EVIL}, "postgres")


# Raw


@every_dialect
def test_raw_text_goes_in_as_it_is(dialect: str) -> None:
    made = interpolate("${A:raw} '${B}'", {"A": "x = 'y' /* z */ AND", "B": "'"}, dialect)
    assert made == "x = 'y' /* z */ AND ''''"
    assert interpolate("('${A:raw}')", {"A": "a', 'b"}, dialect) == "('a', 'b')"


@every_dialect
@pytest.mark.parametrize("raw", ["'", "'a' --", "/*", '"', "a' \""])
def test_raw_text_must_end_as_it_began(dialect: str, raw: str) -> None:
    with pytest.raises(Invalid, match="raw text of A leaves a quote or comment open"):
        interpolate("SELECT ${A:raw} '${B}'", {"A": raw, "B": "\n; DROP TABLE t"}, dialect)


@every_dialect
def test_raw_text_cannot_free_its_neighbour(dialect: str) -> None:
    values = {"A": "x', ", "B": "DROP", "C": "'"}
    with pytest.raises(Invalid, match="raw text of A"):
        interpolate("SELECT '${A:raw}${B} ${C:raw}'", values, dialect)


# Refused


@every_dialect
@pytest.mark.parametrize(("text", "value"), [("3-${A}", "-5"), ("${A}'00'", "X")])
def test_a_value_never_changes_what_is_around_it(dialect: str, text: str, value: str) -> None:
    with pytest.raises(Invalid, match=r"line 2: the value of A would change .* put a blank before"):
        interpolate(f"SELECT '${{B}}',\n{text}", {"A": value, "B": "x"}, dialect)


@pytest.mark.parametrize("dialect", TAGGED)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}'a\\'", "E"),
        ("${A}&'a'", "U"),
        ("$$${A}$$", "a$"),
        ("$a$${A}$a$", "$a"),
        ("SELECT ${A}$b$ x $b$", "y"),
    ],
)
def test_a_value_never_makes_a_quote(dialect: str, text: str, value: str) -> None:
    with pytest.raises(Invalid, match="the value of A would change the meaning"):
        interpolate(text, {"A": value}, dialect)


@pytest.mark.parametrize("dialect", TAGGED)
def test_a_value_with_the_closing_tag_is_refused(dialect: str) -> None:
    with pytest.raises(Invalid, match=r"line 1: the value of A holds \$b\$, .* use another tag"):
        interpolate("$b$${A}$b$", {"A": "x$b$; DROP TABLE t"}, dialect)


@pytest.mark.parametrize("dialect", TAGGED)
@pytest.mark.parametrize("text", ["U&'${A}'", 'u&"${A}"', "U&'x'\n'${A}'"])
def test_unicode_quotes_take_no_variable(dialect: str, text: str) -> None:
    with pytest.raises(Invalid, match=r"stands in a U& quote.* use a plain quote"):
        interpolate(text, {"A": "x"}, dialect)


@pytest.mark.parametrize("dialect", TAGGED)
@pytest.mark.parametrize("before", ["\\", "\\\\\\", "\\x", "\\x4", "\\12", "\\u004", "\\U0000004"])
def test_no_value_follows_a_backslash(dialect: str, before: str) -> None:
    with pytest.raises(Invalid, match="follows a backslash"):
        interpolate(f"E'x{before}${{A}}'", {"A": "1"}, dialect)
    assert interpolate(f"E'x{before}\\\\n${{A}}'", {"A": "1"}, dialect)


@every_dialect
@pytest.mark.parametrize("value", ["'", "g", "1' '2"])
def test_binary_literals_take_hexadecimal_only(dialect: str, value: str) -> None:
    with pytest.raises(Invalid, match="line 1: the value of A is not hexadecimal"):
        interpolate("X'${A}'", {"A": value}, dialect)


def test_a_bracket_in_brackets_is_refused() -> None:
    with pytest.raises(Invalid, match=r'holds \], .* write "\$\{A\}"'):
        interpolate("SELECT [${A}]", {"A": "a]; DROP TABLE t"}, "sqlite")


@every_dialect
@pytest.mark.parametrize("text", ["'${A}'", "${A}", "${A:raw}"])
def test_what_no_text_can_hold_is_refused(dialect: str, text: str) -> None:
    with pytest.raises(Invalid, match="line 1: the value of A holds a NUL"):
        interpolate(text, {"A": "a\0b"}, dialect)
    with pytest.raises(Invalid, match="line 1: the value of A is not valid UTF-8"):
        interpolate(text, {"A": "a\udcff"}, dialect)


@every_dialect
def test_a_long_value_has_a_limit(dialect: str) -> None:
    fits = "'" * VARIABLE_LENGTH
    assert interpolate("'${A}'", {"A": fits}, dialect) == f"'{fits}{fits}'"
    with pytest.raises(Invalid, match="has 4,194,305 characters; the limit is 4,194,304"):
        interpolate("'${A}'", {"A": fits + "x"}, dialect)


def test_a_long_result_has_a_limit() -> None:
    times = INTERPOLATED_LENGTH // VARIABLE_LENGTH
    with pytest.raises(Invalid, match="longer than 67,108,864 characters"):
        interpolate("'${A}'" * times, {"A": "x" * VARIABLE_LENGTH}, "sqlite")


@every_dialect
@pytest.mark.parametrize("quote", ["'", '"', "x'"])
def test_a_quote_without_an_end_is_told_by_its_line(dialect: str, quote: str) -> None:
    with pytest.raises(Invalid, match=rf"line 3: {quote}open … is never closed"):
        interpolate(f"SELECT 'a\nb';\nSELECT {quote}open\n${{A}}", {"A": "1"}, dialect)


@pytest.mark.parametrize("dialect", TAGGED)
@pytest.mark.parametrize("opening", ["$$", "$body$", "/*", "/* /* */", "E'\\'", "U&'"])
def test_so_are_the_quotes_of_some_engines(dialect: str, opening: str) -> None:
    with pytest.raises(Invalid, match=r"line 2: .* is never closed"):
        variables(f"SELECT 1;\n{opening} open", dialect)


def test_sqlite_lets_a_comment_stay_open() -> None:
    assert interpolate("SELECT 1 /* ${A}", {}, "sqlite") == "SELECT 1 /* ${A}"


@every_dialect
def test_a_nul_in_the_text_is_told_by_its_line(dialect: str) -> None:
    with pytest.raises(Invalid, match="line 2: the text holds a NUL"):
        variables("SELECT 1;\n\0", dialect)


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(Invalid, match="'oracle' is unknown; use one of duckdb, postgres, sqlite"):
        variables("SELECT 1", "oracle")


def test_the_lines_of_the_text_before_are_known() -> None:
    text = "'${A}' ${B}\n'${A}'\nDO $$ SELECT '${A}';\n'${A}' $$;\n${B}"
    made = interpolate(text, {"A": "x\ny\n", "B": "1"}, "postgres")
    assert [made.line(number) for number in range(1, made.count("\n") + 2)] == [
        1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5,
    ]  # fmt: skip
