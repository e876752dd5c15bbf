"""Read the words of a line by the table of a command's options.

    --name VALUE   --name=VALUE   -n VALUE   -nVALUE   -n=VALUE   --flag   --   ARGUMENT

What follows `--` are arguments. A word that begins with `-` is an option, unless it is a number,
`-` itself, or text with a blank (`-c '-- a comment'`). Names are written out, flags take no value,
and an option is given once unless it may be repeated. Unknown options are reported first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rota.cli.options import Option
from rota.cli.table import Table, usage
from rota.errors import Invalid

END = "--"
LONGEST_SHOWN = 60  # characters of a word in a message
LONGEST_READ = 1_000  # characters that are searched for passwords before that
LONGEST_NAME = 40  # a longer one is not compared with the names that there are
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_BLANK = re.compile(r"\s")


class Missing(Invalid):
    """A value or an argument that the line lacks."""


def read(command: str, table: Table, words: Sequence[str]) -> dict[Option, Any]:
    """The values by their options; `Invalid` with the way out if the line cannot be meant."""
    given, arguments = _split(command, table, words)
    values: dict[Option, Any] = {}
    written: dict[Option, str] = {}
    for name, option, text in given:
        value = name != option.off if text is None else _value(option, name, text)
        if option.many:
            values.setdefault(option, []).append(value)
        elif option not in values:
            values[option], written[option] = value, name
        elif written[option] == name:
            raise Invalid(f"{name} is given twice; give it once")
        else:
            raise Invalid(f"{written[option]} and {name} set the same; give one of them")
    return values | _placed(command, table, arguments)


def _split(
    command: str, table: Table, words: Sequence[str]
) -> tuple[list[tuple[str, Option, str | None]], list[str]]:
    """(each option with its name and text, the arguments). A flag has no text."""
    known = {
        name: option for option in table.options for name in (*option.names, option.off) if name
    }
    given: list[tuple[str, Option, str | None]] = []
    arguments: list[str] = []
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if word == END:
            arguments += reversed(rest)
            break
        if not _is_option(word, known):
            arguments.append(word)
            continue
        name, text = _name_and_text(word, known)
        option = known.get(name)
        if option is None:
            raise Invalid(_unknown(command, name, known))
        if option.kind is bool:
            if text is not None:
                raise Invalid(f"{name} takes no value; leave out {shown(f'={text}')}")
        elif text is None:
            if not rest or not _is_value(rest[-1], known):
                raise Missing(_without_value(name, option, rest))
            text = rest.pop()
        given.append((name, option, text))
    return given, arguments


def _placed(command: str, table: Table, words: list[str]) -> dict[Option, Any]:
    """The arguments in their order."""
    values: dict[Option, Any] = {}
    place = 0
    for option in table.options:
        if option.names:
            continue
        if option.many:
            values[option] = [_value(option, option.metavar, word) for word in words[place:]]
            place = len(words)
        elif place < len(words):
            values[option] = _value(option, option.metavar, words[place])
            place += 1
        elif option.required:
            raise Missing(f"{option.metavar} is missing; use: {usage(command, table.options)}")
    if place < len(words):
        raise Invalid(
            f"{quoted(words[place])} is one argument too many; quote a value that holds blanks, "
            f"and use: {usage(command, table.options)}"
        )
    return values


def _name_and_text(word: str, known: Mapping[str, Option]) -> tuple[str, str | None]:
    """`--name=text`, `-n=text` and `-ntext`; None where the text is the next word."""
    if word.startswith("--"):
        name, equals, text = word.partition("=")
        return name.replace("_", "-"), text if equals else None
    name, text = word[:2], word[2:]
    if name not in known or (known[name].kind is bool and text[:1] != "=") or not text:
        return word, None
    return name, text.removeprefix("=")


def _is_option(word: str, known: Mapping[str, Option]) -> bool:
    """`-- a comment` is text, and so is `-5`; `--name=two words` is an option."""
    if not word.startswith("-") or word == "-" or _is_number(word):
        return False
    name, _ = _name_and_text(word, known)
    return name in known or not _BLANK.search(name)


def _is_value(word: str, known: Mapping[str, Option]) -> bool:
    """What follows an option: with a blank it is a value, unless it is `--name=…` of another."""
    if word == END:
        return False
    if word.startswith("--") and _name_and_text(word, known)[0] in known:
        return False
    return bool(_BLANK.search(word)) or not _is_option(word, known)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _value(option: Option, name: str, text: str) -> Any:
    if option.kind is Path:
        return Path(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{name} is not UTF-8: {quoted(text)}; write it as UTF-8") from None
    if option.kind is not int:
        return text
    try:
        if _WHOLE.fullmatch(text):
            return int(text)
    except ValueError:  # thousands of digits
        pass
    raise Invalid(f"{name} takes a whole number, not {quoted(text)}; write digits, such as 20")


def _without_value(name: str, option: Option, rest: list[str]) -> str:
    if not rest:
        return f"{name} lacks its value; use: {name} {option.metavar}"
    return (
        f"{name} lacks its value; a value that begins with - is written behind an equals sign: "
        f"{shown(f'{name}={rest[-1]}')}"
    )


def _unknown(command: str, name: str, known: Mapping[str, Option]) -> str:
    options = {one for one, option in known.items() if not option.hidden}
    meant = close_to(name, options)
    hint = f"Did you mean {meant}? " if meant else ""
    return f"Unknown option {shown(name)}. {hint}`rota {command} --help` lists all"


def close_to(word: str, names: set[str]) -> str | None:
    """The name that was probably meant: one that begins so, else one that is spelled alike."""
    from difflib import get_close_matches  # after a mistake only

    if len(word) > LONGEST_NAME:
        return None
    bare = {name.lstrip("-"): name for name in sorted(names)}
    text = word.lower().lstrip("-")
    begin = [name for name in bare if text and name.startswith(text)]
    close = begin or get_close_matches(text, bare, n=1)
    return bare[close[0]] if close else None


def quoted(text: str) -> str:
    return f"'{shown(text)}'"


def shown(text: str) -> str:
    """A word in a message: without passwords, and not a page of it."""
    from rota.model.redact import redact_text  # after a mistake only

    safe = redact_text(text[:LONGEST_READ])
    return safe if len(safe) <= LONGEST_SHOWN else f"{safe[:LONGEST_SHOWN]}…"
