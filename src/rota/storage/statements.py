"""Named statements: SQL is written as SQL, once in common.sql; a statement in an engine's
queries.sql replaces the common one of that name.

`:name` marks a parameter. dialects.py has the macros, which stand for what each engine writes in
its own way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from rota.storage.dialects import DIALECTS, QUOTED

S = TypeVar("S")

_NAME = "\n-- name: "
# Not importlib.resources: it costs a command twice as much as to read the statements.
_HERE = Path(__file__).parent
# Quoted text and comments are left alone, and so are casts (::type).
_PARAMETER = re.compile(rf"({QUOTED}|--[^\n]*|::\w+)|:([a-z_]+)")


class Texts(Mapping[str, str]):
    """The statements of an engine, by name. The macros of each are written out when it is asked
    for: a command sends ten of two hundred."""

    def __init__(self, written: Mapping[str, str], write: Callable[[str, str], str]) -> None:
        self._written, self._write = written, write

    def __getitem__(self, name: str) -> str:
        return self._write(name, self._written[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._written)

    def __len__(self) -> int:
        return len(self._written)


def load_statements(engine: str, substitutions: Mapping[str, str], *more: str) -> Mapping[str, str]:
    """All statements of an engine, by name, as it reads them; `more` are further files of it."""
    written = read_statements("common.sql")
    for file in ("queries.sql", *more):
        written |= read_statements(f"{engine}/{file}")
    return Texts(written, DIALECTS[engine](substitutions).write)


def read_statements(file: str) -> dict[str, str]:
    """The statements of a file below storage/, by name, with their comments and macros."""
    text = (_HERE / file).read_text("utf-8")
    named = (part.partition("\n") for part in text.split(_NAME)[1:])
    return {name: body.partition("\n--------")[0].strip().rstrip(";") for name, _, body in named}


class Statements(dict[str, S]):
    """Statements by name, each made ready for its driver when it is first asked for: a command
    sends ten of two hundred. Two threads may make the same one; either will do."""

    def __init__(self, texts: Mapping[str, str], make: Callable[[str, str], S]) -> None:
        super().__init__()
        self._texts, self._make = texts, make

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def __missing__(self, name: str) -> S:
        made = self[name] = self._make(name, self._texts[name])
        return made


def load_script(engine: str, name: str, substitutions: Mapping[str, str]) -> str:
    """A script of an engine's own, with the substitutions made."""
    return substitute((_HERE / engine / name).read_text("utf-8"), substitutions)


def substitute(sql: str, substitutions: Mapping[str, str]) -> str:
    for name, value in substitutions.items():
        sql = sql.replace("{" + name + "}", value)
    return sql


def to_pyformat(sql: str) -> str:
    """`:name` as psycopg writes it; a literal % is doubled."""
    return _PARAMETER.sub(lambda m: m[1] if m[1] else f"%({m[2]})s", sql.replace("%", "%%"))


def to_numbered(sql: str) -> str:
    """`:name` as the server itself writes it: $1, $2, one number for each name."""
    numbers = {name: number for number, name in enumerate(parameters(sql), 1)}
    return _PARAMETER.sub(lambda m: m[1] if m[1] else f"${numbers[m[2]]}", sql)


def to_dollars(sql: str) -> str:
    """`:name` as DuckDB writes it."""
    return _PARAMETER.sub(lambda m: m[1] if m[1] else f"${m[2]}", sql)


def parameters(sql: str) -> list[str]:
    """The names of the parameters, in order of first use."""
    return list(dict.fromkeys(m[2] for m in _PARAMETER.finditer(sql) if m[2]))
