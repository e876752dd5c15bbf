"""The schema of a store: the scripts that make it, and which stores we understand.

Migrations have numbers and are applied once: schema.sql is the first, files in migrations/ follow.
Views, and the functions of PostgreSQL, have no history: they are replaced as a whole where their
text is another one. `meta` keeps what made a store: the number of its last migration with a hash
of all up to it, number and hash of its views and functions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from rota.errors import WrongSchema
from rota.model.duration import format_duration
from rota.model.option import Flag, Instant, Option, Whole
from rota.model.schedule import OPTIONS, to_json_value
from rota.storage.engine import Transaction
from rota.storage.rows import JSON_OPTIONS
from rota.storage.statements import substitute

# Keys of `meta`.
NUMBER: Final = "schema_version"
HASH: Final = "schema"
VIEWS: Final = "views"
FUNCTIONS: Final = "functions"

FOLDER = Path(__file__).parent
_INSTANT: Final = re.compile(r"\{instant ([^{}]+)\}")
_OPTION: Final = re.compile(r"\{option (\w+)\}")
_VIEW: Final = re.compile(r"CREATE OR REPLACE VIEW (\S+) AS")
_COMMENT: Final = re.compile(r"--[^\n]*")
_OWN_NUMBER: Final = re.compile(r"-- number: (\d+)\n")


@dataclass(frozen=True, slots=True)
class Script:
    """SQL that `migrate` applies, and what `meta` says of it afterwards."""

    name: str
    sql: str
    meta: Mapping[str, str]


class Schema:
    """The scripts of one engine, with their substitutions made.

    `instant` is how its views have an instant, `json_instant` one that is JSON text, `view` how
    they begin, with ? for column and name. `typed` are the options of schedules that the table has
    as columns, too.
    `shown` and `place` name the store in messages, `anew` says how to make room for another one.
    """

    def __init__(
        self,
        engine: str,
        substitutions: Mapping[str, str],
        *,
        shown: str,
        place: str = "",
        anew: str,
        instant: str = "?",
        json_instant: str = "CAST(? AS timestamptz)",
        typed: Collection[str] = (),
        view: str = "CREATE OR REPLACE VIEW ? AS",
    ) -> None:
        self.engine, self.substitutions = engine, substitutions
        self.instant, self.view = instant, view
        self.json_instant, self.typed = json_instant, typed
        self.shown, self.place, self.anew = shown, place, anew

    # What a store's `meta` means

    def check(self, meta: Mapping[str, str]) -> None:
        """WrongSchema unless this version of Rota can work with the store as it is."""
        current, newest = _number(meta), len(self.migrations)
        if current == 0:
            raise WrongSchema(
                f"{self.shown} holds no Rota store{self.place} yet; run `rota migrate`"
            )
        self.check_origin(meta)
        if current < newest:
            raise WrongSchema(
                f"{self.shown} has schema {current}, this Rota needs {newest}; run `rota migrate`"
            )
        if current > newest:
            raise WrongSchema(
                f"{self.shown} has schema {current}, made by a newer Rota "
                f"(this one knows {newest}); upgrade Rota on this machine"
            )

    def check_origin(self, meta: Mapping[str, str]) -> None:
        """WrongSchema for a store that no migration leads to: before the first release schema.sql
        is edited in place. Stores of the first development versions have numbers up to 14, and no
        hash."""
        current = _number(meta)
        if 0 < current <= len(self.migrations):
            known = meta.get(HASH) == self.migrations[current - 1].meta[HASH]
        else:
            known = current == 0 or HASH in meta
        if not known:
            raise WrongSchema(
                f"the store in {self.shown}{self.place} was made by another development version of "
                f"Rota; create it anew: {self.anew}, and run `rota migrate`"
            )

    def pending(self, meta: Mapping[str, str]) -> list[Script]:
        """What `migrate` would apply; nothing to the store of a newer Rota."""
        self.check_origin(meta)
        current = _number(meta)
        if current > len(self.migrations):
            return []
        migrations = self.migrations[current:]
        # After a migration they are made again in any case: it may have had to drop some of them.
        made = {} if migrations else meta
        return migrations + [
            script
            for script in self.replaced
            if made.get(script.name) != script.meta[script.name] and not _is_newer(meta, script)
        ]

    def next_transaction(self, meta: Mapping[str, str]) -> list[Script]:
        """The part of it for one transaction: one migration; with the last, views and functions."""
        pending = self.pending(meta)
        more = _number(meta) + 1 < len(self.migrations)
        return pending[:1] if more else pending

    # The scripts

    @cached_property
    def migrations(self) -> list[Script]:
        """In order; the number of each is its place, from 1."""
        folder = FOLDER / self.engine
        files = [folder / "schema.sql", *sorted((folder / "migrations").glob("*.sql"))]
        scripts: list[Script] = []
        texts: list[str] = []
        for number, file in enumerate(files, 1):
            name = "0001_schema" if number == 1 else file.stem
            assert name.startswith(f"{number:04}_"), f"{file} is not migration {number}"
            sql = self._expand(file)
            texts.append(sql)
            scripts.append(Script(name, sql, {NUMBER: str(number), HASH: _hash(texts)}))
        return scripts

    @cached_property
    def replaced(self) -> list[Script]:
        """Views, those that others read first; then functions, where there are any."""
        views = [
            self._expand(FOLDER / self.engine / "views.sql"),
            self._expand(FOLDER / "views.sql"),
        ]
        scripts = [_replaced(VIEWS, "\n".join(reversed(views)), "\n".join(views))]
        if (file := FOLDER / self.engine / "functions.sql").exists():
            sql = self._expand(file)
            scripts.append(_replaced(FUNCTIONS, sql, sql))
        return scripts

    def _expand(self, file: Path) -> str:
        text = file.read_text("utf-8")
        sql = _INSTANT.sub(lambda macro: self.instant.replace("?", macro[1]), text)
        sql = _OPTION.sub(lambda macro: self._option(OPTIONS[macro[1]]), sql)
        sql = sql.replace("{default options}", _literal(_DEFAULTS))
        sql = sql.replace("{more options}", self._more_options(_OPTION.findall(text)))
        sql = _VIEW.sub(lambda found: self.view.replace("?", found[1]), sql)
        return substitute(sql, self.substitutions)

    def _option(self, option: Option) -> str:
        """An option of a schedule, from its row's JSON, with the type that its kind has."""
        if option.name in self.typed:
            return option.name
        value = f"options ->> '{option.name}'"
        match option.kind:
            case Instant():
                value = self.json_instant.replace("?", f"({value})")
            case Whole():
                value = f"CAST({value} AS integer)"
            case Flag():
                value = f"CAST({value} AS boolean)"
        # A row has what differs from the default.
        return value if option.nullable else f"coalesce({value}, {_literal(option.default)})"

    def _more_options(self, placed: Collection[str]) -> str:
        """Every option that the view `schedules` shows and that has no place in it by name."""
        more = (OPTIONS[name] for name in JSON_OPTIONS if name not in placed)
        return "".join(
            f",\n       {self._option(option)} AS {option.name}"
            for option in more
            if option.in_view
        )


_DEFAULTS: Final = json.dumps({name: to_json_value(OPTIONS[name].default) for name in JSON_OPTIONS})


def _literal(value: Any) -> str:
    match value:
        case bool() | int():
            return str(value).lower()
        case timedelta():
            value = format_duration(value)
    return "'" + str(value).replace("'", "''") + "'"


def apply(tx: Transaction, scripts: Sequence[Script], run: Callable[[str], Any]) -> list[str]:
    """Apply them in an open transaction; their names."""
    for script in scripts:
        run(script.sql)
        for key, value in script.meta.items():
            tx.all("set_meta", key=key, value=value)
    return [script.name for script in scripts]


def _replaced(name: str, numbered: str, sql: str) -> Script:
    found = _OWN_NUMBER.match(numbered)
    assert found, f"{name} has no number in its first line"
    return Script(name, sql, {name: f"{found[1]} {_hash([sql])}"})


def _is_newer(meta: Mapping[str, str], script: Script) -> bool:
    """Whether a newer Rota made these views or functions of the store."""
    mine, theirs = script.meta[script.name], meta.get(script.name, "0")
    return int(theirs.partition(" ")[0]) > int(mine.partition(" ")[0])


def _number(meta: Mapping[str, str]) -> int:
    return int(meta.get(NUMBER, 0))


def _hash(texts: Sequence[str]) -> str:
    """The same for texts that differ in comments and blanks alone."""
    plain = " ".join(" ".join(_COMMENT.sub("", text).split()) for text in texts)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]
