"""How each engine writes what the macros of common.sql stand for.

| macro | stands for |
|---|---|
| `{prefix}` `{views}` `{schema}` `{now}` | names of this store, and the instant by its clock |
| `{moment}` | the same instant wherever it stands in one statement |
| `{rows a: seq bigint, at instant}` | the parameter rows, as a table `a` with these columns |
| `{types seq bigint, at instant}` | on DuckDB the types of such rows, as JSON |
| `{lists a: :seqs bigint}` | lists that are bound as one parameter each, as a table `a` |
| `{in :ids bigint}` `{not in :ids bigint}` | one of such a list, or none |
| `{in rows: seq bigint}` | one of the parameter rows, which have this column |
| `{in fenced :ids bigint}` | one of a list that PostgreSQL's planner shall not count |
| `{in SELECT …}` | one of the rows of a subquery, which is run once |
| `{empty :ids}` | such a list is empty |
| `{seconds x}` `{micros x}` | so many seconds as a span; an instant as microseconds |
| `{whole x}` | the whole part of a number that is not negative |
| `{columns runs}` `{names new_run}` | a list of `rows.COLUMNS`, as it is read and as it is named |
| `{values a.new_run}` `{values :new_run}` | its values, from a table or from parameters |
| `{placed a.due_at, {now}, a.wanted_key}` | the values of `{names placed}` for a new run |
| `{set new_job from a}` | an assignment for each of its columns |
| `{run :id}` | the condition that a run has this id |
| `{terminal state}` | the condition that a run has ended, as the index of such runs has it |
| `{fence x}` | a condition that PostgreSQL's planner shall not look for an index for |
| `{lock}` `{skip locked}` | the rows are ours until the commit; those of others are passed over |
| `{ignore conflicts run_files: number = a.number}` | what is there already is left as it is |
| `{ignore conflicts and repeats queues: name = a.name}` | and of equal parameter rows one counts |
| `{index runs_due}` | SQLite shall use this index |
| `{position}` `{least}` `{greatest}` | a function that has another name |

Casts are written as PostgreSQL's (`::type`); SQLite has none.

PostgreSQL reads parameter rows from one array per column, and never learns how many there are: the
arrays stand in subqueries. DuckDB reads them from JSON. SQLite runs the statement once for each
row, whose columns are parameters: JSON would cost it up to 24 times as much.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from rota.storage.rows import COLUMNS, READ_AS_TEXT

QUOTED = r"'(?:[^']|'')*'"
_COMMENT = re.compile(r"^ *--[^\n]*\n", re.MULTILINE)
# Macros may stand in a macro. JSON, as which DuckDB's types are written, begins with a quote.
_MACRO = re.compile(r"\{([a-z](?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
_SUBSTITUTED = frozenset({"prefix", "views", "schema", "now"})
_MOMENT = "(SELECT now FROM t)"
# What PostgreSQL calls a type, and DuckDB.
_TYPES = {
    "bigint": ("bigint", "BIGINT"),
    "integer": ("integer", "INTEGER"),
    "boolean": ("boolean", "BOOLEAN"),
    "float": ("float8", "DOUBLE"),
    "instant": ("timestamptz", "TIMESTAMPTZ"),
    "json": ("json", "VARCHAR"),
    "text": ("text", "VARCHAR"),
    "uuid": ("uuid", "VARCHAR"),
}
_ENDED = ("succeeded", "dead", "cancelled")


class MacroError(ValueError):
    """A statement that cannot be written for an engine."""


class Dialect:
    """What an engine writes. This one is PostgreSQL's."""

    name = "postgres"
    functions: Mapping[str, str] = {"position": "strpos", "least": "least", "greatest": "greatest"}

    def __init__(self, substitutions: Mapping[str, str]) -> None:
        self._substitutions = substitutions

    def write(self, name: str, text: str) -> str:
        """The text of a statement with its macros written out, and without comments."""
        try:
            return self._write(_COMMENT.sub("", text + "\n").strip()).strip()
        except MacroError as fault:
            raise MacroError(f"statement {name} for {self.name}: {fault}") from None

    def _write(self, text: str) -> str:
        sql = self._expand(text)
        if _MOMENT in sql and "{moment}" in text:
            if text.startswith("WITH"):
                raise MacroError("{moment} adds a WITH and there is one already; put `t` into it")
            sql = f"WITH t AS MATERIALIZED (SELECT {self._known('now')} AS now)\n{sql}"
        return sql

    def _expand(self, text: str) -> str:
        return _MACRO.sub(lambda found: self._macro(found[1]), text)

    def _known(self, name: str) -> str:
        return self._substitutions.get(name, "{" + name + "}")

    def _macro(self, inner: str) -> str:
        if inner in _SUBSTITUTED:
            return self._known(inner)
        if inner in self.functions:
            return self.functions[inner]
        for word, write in _MACROS.items():
            if inner == word or inner.startswith(word + " "):
                return write(self, self._expand(inner[len(word) :].strip()))
        raise MacroError(f"{{{inner}}} is no macro; {__name__} lists those there are")

    def moment(self, _: str) -> str:
        return _MOMENT

    def type(self, kind: str) -> str:
        return _TYPES[known_type(kind)][0]

    def rows(self, inner: str) -> str:
        alias, columns = typed_columns(inner)
        return self._unnest(alias, columns, columns.values())

    def types(self, inner: str) -> str:
        raise MacroError(f"{{types {inner}}} is for DuckDB, which reads rows from JSON")

    def lists(self, inner: str) -> str:
        alias, lists = typed_lists(inner)
        return self._unnest(alias, lists, lists.values())

    def _unnest(self, alias: str, names: Iterable[str], kinds: Iterable[str]) -> str:
        arrays = [
            f"(SELECT :{name}::{self.type(kind)}[])"
            for name, kind in zip(names, kinds, strict=True)
        ]
        return f"unnest({', '.join(arrays)}) AS {alias}({', '.join(names)})"

    def one_of(self, inner: str) -> str:
        if inner.startswith("rows:"):
            inner = f":{inner[5:].strip()}"
        return f"= ANY ({self._array(inner)})"

    def none_of(self, inner: str) -> str:
        return f"<> ALL ({self._array(inner)})"

    def _array(self, inner: str) -> str:
        if inner.startswith("SELECT"):
            return f"ARRAY({inner})"
        fenced = inner.startswith("fenced ")
        parameter, kind = typed_list(inner.removeprefix("fenced "))
        array = f"{self.type(kind)}[]"
        return f"(SELECT {parameter}::{array})::{array}" if fenced else f"{parameter}::{array}"

    def empty(self, parameter: str) -> str:
        return f"{parameter}::text[] = '{{}}'"

    def seconds(self, expression: str) -> str:
        return f"make_interval(secs => {expression})"

    def micros(self, expression: str) -> str:
        return f"(extract(epoch FROM {expression}) * 1000000)::bigint"

    def whole(self, expression: str) -> str:
        return f"floor({expression})::integer"

    def columns(self, name: str) -> str:
        return ", ".join(
            f"{column}::text"
            if kind in ("json", "uuid") or (not kind and column in READ_AS_TEXT)
            else column
            for column, kind in column_list(name).items()
        )

    def names(self, name: str) -> str:
        return ", ".join(column_list(name))

    def values(self, inner: str) -> str:
        if inner.startswith(":"):
            columns = column_list(inner[1:])
            return ", ".join(f":{c}::{self.type(kind)}" for c, kind in columns.items())
        alias, _, name = inner.rpartition(".")
        return ", ".join(f"{alias}.{c}" for c in column_list(name))

    def assign(self, inner: str) -> str:
        name, _, alias = inner.partition(" from ")
        return ", ".join(f"{c} = {alias}.{c}" for c in column_list(name))

    def placed(self, inner: str) -> str:
        """Where a new run begins: it waits for its instant or for a slot, or is queued."""
        parts = [part.strip() for part in inner.split(",")]
        if len(parts) != 3:
            raise MacroError(
                f"{{placed {inner}}} takes when the run is due, the instant of now and the key it "
                "wants, as in {placed a.due_at, {now}, a.wanted_key}"
            )
        due, now, key = parts
        state = f"WHEN {due} > {now} THEN 'waiting' WHEN {key} IS NULL THEN 'queued' ELSE 'held'"
        return f"CASE {state} END, {due}, {now}, CASE WHEN {due} <= {now} THEN {now} END"

    def run(self, value: str) -> str:
        """Ids are unique in a table of their own, which is written once for each run."""
        return f"seq = (SELECT seq FROM {self._known('prefix')}run_ids WHERE id = {value})"

    def terminal(self, state: str) -> str:
        return f"{state} IN ({', '.join(map(repr, _ENDED))})"

    def fence(self, condition: str) -> str:
        return f"CASE WHEN {condition} THEN true ELSE false END"

    def lock(self, alias: str) -> str:
        return f"FOR UPDATE OF {alias}" if alias else "FOR UPDATE"

    def skip_locked(self, alias: str) -> str:
        return f"{self.lock(alias)} SKIP LOCKED"

    def ignore_conflicts(self, inner: str) -> str:
        _, keys = conflict_keys(inner)
        return f"ON CONFLICT ({', '.join(keys)}) DO NOTHING"

    def ignore_repeats(self, inner: str) -> str:
        return self.ignore_conflicts(inner)

    def index(self, name: str) -> str:
        return ""


class OneWriterDialect(Dialect):
    """What SQLite and DuckDB have in common: a transaction that writes is alone until its end,
    lists are bound as JSON, and :now is bound once for all of a transaction."""

    def moment(self, _: str) -> str:
        return self._known("now")

    def one_of(self, inner: str) -> str:
        if inner.startswith("SELECT"):
            return f"IN ({inner})"
        if inner.startswith("rows:"):
            return self._one_of_rows(inner[5:].strip())
        return f"IN ({self._elements(*typed_list(inner.removeprefix('fenced ')))})"

    def none_of(self, inner: str) -> str:
        return f"NOT {self.one_of(inner)}"

    def _elements(self, parameter: str, kind: str) -> str:
        raise NotImplementedError

    def _one_of_rows(self, column: str) -> str:
        raise NotImplementedError

    def empty(self, parameter: str) -> str:
        return f"{parameter} = '[]'"

    def columns(self, name: str) -> str:
        return self.names(name)

    def run(self, value: str) -> str:
        return f"id = {value}"

    def fence(self, condition: str) -> str:
        return condition

    def lock(self, alias: str) -> str:
        return ""

    def skip_locked(self, alias: str) -> str:
        return ""


class SqliteDialect(OneWriterDialect):
    name = "sqlite"
    functions: Mapping[str, str] = {"position": "instr", "least": "min", "greatest": "max"}

    _CAST = re.compile(rf"({QUOTED})|::[a-z]\w*")
    # The row is the last table of its clause, which goes with it.
    _ROWS = re.compile(r"\s*(?:\b(?:FROM|USING)|,)\s*\{rows ([^{}]*)\}(?!\s*(?:,|JOIN|CROSS|LEFT))")
    _INSERT = re.compile(r"^(INSERT INTO [^()]*\([^()]*\)\s+)SELECT (.*)$", re.DOTALL)
    _ALIAS = re.compile(r"\b[a-z]\w*\.(?=\w)")

    def _write(self, text: str) -> str:
        if (found := self._ROWS.search(text)) is not None:
            head, tail = text[: found.start()], text[found.end() :]
            if not tail.lstrip().startswith("WHERE"):
                # A third quicker than a SELECT of values.
                head = self._INSERT.sub(r"\1VALUES (\2)", head)
            text = self._bind_row(head + tail, found[1])
        sql = self._CAST.sub(lambda m: m[1] or "", self._expand(text))
        # RETURNING knows no alias.
        head, returning, answer = sql.rpartition("RETURNING")
        return head + returning + self._ALIAS.sub("", answer) if returning else sql

    def _bind_row(self, text: str, inner: str) -> str:
        """The columns of the row are parameters: the statement is sent once for each."""
        alias, columns = typed_columns(inner)

        def bind(found: re.Match[str]) -> str:
            if found[1]:
                return found[1]
            if found[2] not in columns:
                raise MacroError(f"{alias}.{found[2]} is no column of {{rows {inner}}}")
            return f":{found[2]}"

        text = text.replace(f"{{values {alias}.", "{values :")
        return re.sub(rf"""({QUOTED})|\b{alias}\."?(\w+)"?""", bind, text)

    def rows(self, inner: str) -> str:
        raise MacroError(
            f"{{rows {inner}}} must follow FROM, USING or a comma and be the last table there, "
            "because SQLite runs the statement once for each row, without that table"
        )

    def lists(self, inner: str) -> str:
        alias, lists = typed_lists(inner)
        values = ", ".join(f"{name}.value AS {name}" for name in lists)
        first, *others = lists
        joined = "".join(
            f" JOIN json_each(:{name}) AS {name} ON {name}.key = {first}.key" for name in others
        )
        return f"(SELECT {values} FROM json_each(:{first}) AS {first}{joined}) AS {alias}"

    def _elements(self, parameter: str, kind: str) -> str:
        return f"SELECT value FROM json_each({parameter})"

    def _one_of_rows(self, column: str) -> str:
        return f"= {typed_list(f':{column}')[0]}"

    def seconds(self, expression: str) -> str:
        return f"CAST({expression} * 1000000 AS INTEGER)"

    def micros(self, expression: str) -> str:
        return expression

    def whole(self, expression: str) -> str:
        return f"CAST({expression} AS INTEGER)"

    def terminal(self, state: str) -> str:
        return "(" + " OR ".join(f"{state} = {ended!r}" for ended in _ENDED) + ")"

    def index(self, name: str) -> str:
        return f"INDEXED BY {self._known('prefix')}{name}"


class DuckdbDialect(OneWriterDialect):
    name = "duckdb"
    functions: Mapping[str, str] = {"position": "instr", "least": "least", "greatest": "greatest"}

    _TEXT = re.compile(rf"({QUOTED})|::(?:json|text|uuid)\b")

    def _write(self, text: str) -> str:
        return self._TEXT.sub(
            lambda m: m[1] or "", self._expand(text)
        )  # all are text here, and a cast would take its name from a column

    def type(self, kind: str) -> str:
        return _TYPES[known_type(kind)][1]

    def rows(self, inner: str) -> str:
        alias, _, columns = inner.partition(":")
        typed_columns(inner)
        read = f"from_json_strict(:rows, {self.types(columns)})"
        return f"(SELECT unnest({read}, recursive := true)) AS {alias}"

    def types(self, inner: str) -> str:
        _, columns = typed_columns(f"a:{inner}")
        types = ", ".join(f'"{name}": "{self.type(kind)}"' for name, kind in columns.items())
        return f"'[{{{types}}}]'"

    def lists(self, inner: str) -> str:
        alias, lists = typed_lists(inner)
        values = [f"{self._unnested(f':{name}', kind)} AS {name}" for name, kind in lists.items()]
        return f"(SELECT {', '.join(values)}) AS {alias}"

    def _elements(self, parameter: str, kind: str) -> str:
        return f"SELECT {self._unnested(parameter, kind)}"

    def _one_of_rows(self, column: str) -> str:
        read = f"from_json_strict(:rows, {self.types(column)})"
        return f"IN (SELECT unnest({read}, recursive := true))"

    def _unnested(self, parameter: str, kind: str) -> str:
        return f"""unnest(from_json_strict({parameter}, '["{self.type(kind)}"]'))"""

    def seconds(self, expression: str) -> str:
        return f"to_microseconds(CAST({expression}::DOUBLE * 1000000 AS BIGINT))"

    def micros(self, expression: str) -> str:
        return f"epoch_us({expression})"

    def whole(self, expression: str) -> str:
        return f"CAST(floor({expression}) AS INTEGER)"

    def ignore_conflicts(self, inner: str) -> str:
        """Nothing is unique by an index: what is there is compared first."""
        table, keys = conflict_keys(inner)
        same = " AND ".join(f"known.{key} = {value}" for key, value in keys.items())
        table = f"{self._known('prefix')}{table}"
        return f"WHERE NOT EXISTS (SELECT 1 FROM {table} AS known WHERE {same})"

    def ignore_repeats(self, inner: str) -> str:
        _, keys = conflict_keys(inner)
        first = f"row_number() OVER (PARTITION BY {', '.join(keys.values())}) = 1"
        return f"{self.ignore_conflicts(inner)}\nQUALIFY {first}"


# By the name of the engine, which is that of its folder, too.
DIALECTS: Mapping[str, type[Dialect]] = {
    "sqlite": SqliteDialect,
    "postgres": Dialect,
    "duckdb": DuckdbDialect,
}
_MACROS: Mapping[str, Callable[[Dialect, str], str]] = {
    "moment": lambda dialect, inner: dialect.moment(inner),
    "rows": lambda dialect, inner: dialect.rows(inner),
    "types": lambda dialect, inner: dialect.types(inner),
    "lists": lambda dialect, inner: dialect.lists(inner),
    "in": lambda dialect, inner: dialect.one_of(inner),
    "not in": lambda dialect, inner: dialect.none_of(inner),
    "empty": lambda dialect, inner: dialect.empty(inner),
    "seconds": lambda dialect, inner: dialect.seconds(inner),
    "micros": lambda dialect, inner: dialect.micros(inner),
    "whole": lambda dialect, inner: dialect.whole(inner),
    "columns": lambda dialect, inner: dialect.columns(inner),
    "names": lambda dialect, inner: dialect.names(inner),
    "values": lambda dialect, inner: dialect.values(inner),
    "set": lambda dialect, inner: dialect.assign(inner),
    "placed": lambda dialect, inner: dialect.placed(inner),
    "run": lambda dialect, inner: dialect.run(inner),
    "terminal": lambda dialect, inner: dialect.terminal(inner),
    "fence": lambda dialect, inner: dialect.fence(inner),
    "lock": lambda dialect, inner: dialect.lock(inner),
    "skip locked": lambda dialect, inner: dialect.skip_locked(inner),
    "ignore conflicts and repeats": lambda dialect, inner: dialect.ignore_repeats(inner),
    "ignore conflicts": lambda dialect, inner: dialect.ignore_conflicts(inner),
    "index": lambda dialect, inner: dialect.index(inner),
}


# What stands in a macro


def typed_columns(inner: str) -> tuple[str, dict[str, str]]:
    """`a: seq bigint, new_run` as the alias and the type of each column; a name without a type is
    that of a list of columns."""
    alias, colon, rest = inner.partition(":")
    if not colon or not alias.isidentifier():
        raise MacroError(f"{{rows {inner}}} must begin with an alias, as in {{rows a: seq bigint}}")
    columns: dict[str, str] = {}
    for part in rest.split(","):
        name, _, kind = part.strip().partition(" ")
        columns |= {name: kind} if kind else column_list(name)
    for kind in columns.values():
        known_type(kind)
    return alias, columns


def typed_lists(inner: str) -> tuple[str, dict[str, str]]:
    """`a: :seqs bigint, :numbers bigint` as the alias and the type of each list."""
    alias, colon, rest = inner.partition(": ")
    if not colon or not alias.isidentifier():
        raise MacroError(
            f"{{lists {inner}}} must begin with an alias, as in {{lists a: :seqs bigint}}"
        )
    lists = [typed_list(part.strip()) for part in rest.split(",")]
    return alias, {parameter[1:]: kind for parameter, kind in lists}


def typed_list(inner: str) -> tuple[str, str]:
    """`:ids bigint` as the parameter and its type."""
    parameter, _, kind = inner.partition(" ")
    if not parameter.startswith(":"):
        raise MacroError(f"{inner!r} must be a parameter and its type, as in :ids bigint")
    return parameter, known_type(kind)


def known_type(kind: str) -> str:
    if kind not in _TYPES:
        raise MacroError(f"{kind!r} is no type; use one of {', '.join(_TYPES)}")
    return kind


def column_list(name: str) -> Mapping[str, str]:
    if name not in COLUMNS:
        raise MacroError(f"{name!r} is no list of columns; use one of {', '.join(COLUMNS)}")
    return COLUMNS[name]


def conflict_keys(inner: str) -> tuple[str, dict[str, str]]:
    """`steps: run_seq = :seq, number = :number` as the table and what its key is compared with."""
    table, _, rest = inner.partition(":")
    pairs = [part.partition("=") for part in rest.split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise MacroError(
            f"{{ignore conflicts {inner}}} must name a table and its key, as in "
            "{ignore conflicts run_files: number = a.number}"
        )
    return table, {key.strip(): value.strip() for key, _, value in pairs}
