"""`ctx.db` of a handler in a child process whose target is a DuckDB file.

DuckDB lets one process open a file, and that is the worker: it may hold the store there, or run SQL
jobs on it. So the child asks its worker, a statement and a page of rows at a time. What hands over
whole tables (`df()`, `arrow()`, relations) needs a handler in the worker: `isolation = "thread"`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rota.errors import Invalid, RotaError

if TYPE_CHECKING:
    from rota.executors.context import Context

ROWS = 500  # in one answer
WHOLE = 2**63

_TO_TEXT: dict[type, tuple[str, Callable[[Any], str]]] = {
    bytes: ("bytes", lambda value: base64.b64encode(value).decode()),
    datetime: ("datetime", datetime.isoformat),
    date: ("date", date.isoformat),
    time: ("time", time.isoformat),
    timedelta: ("timedelta", lambda value: str(value // timedelta(microseconds=1))),
    Decimal: ("decimal", str),
    UUID: ("uuid", str),
    int: ("int", str),
    float: ("float", str),
}
_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "bytes": base64.b64decode,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda text: timedelta(microseconds=int(text)),
    "decimal": Decimal,
    "uuid": UUID,
    "int": int,
    "float": float,
}


def pack(value: Any) -> Any:
    """A value of SQL as JSON that `unpack` makes the same again. What is no plain JSON value is an
    object with one name, its kind."""
    match value:
        case None | bool() | str():
            return value
        case int() if -WHOLE <= value < WHOLE:
            return value
        case float() if math.isfinite(value):
            return value
        case list():
            return [pack(inner) for inner in value]
        case tuple():
            return {"tuple": [pack(inner) for inner in value]}
        case dict():
            return {"dict": [[pack(key), pack(inner)] for key, inner in value.items()]}
    known = _TO_TEXT.get(type(value))
    if known is None:
        raise Invalid(f"a {type(value).__name__} cannot pass between a child and its worker")
    kind, to_text = known
    return {kind: to_text(value)}


def unpack(value: Any) -> Any:
    match value:
        case list():
            return [unpack(inner) for inner in value]
        case dict():
            ((kind, told),) = value.items()
            if kind == "tuple":
                return tuple(unpack(inner) for inner in told)
            if kind == "dict":
                return {_key(unpack(key)): unpack(inner) for key, inner in told}
            return _FROM_TEXT[kind](told)
        case _:
            return value


def _key(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# In the worker


def serve(context: Context, params: dict[str, Any]) -> Any:
    """Do what the child asks on the attempt's own connection. A fault of the database is an answer:
    the child raises it by its own name."""
    try:
        return _serve(context, params)
    except RotaError:
        raise
    except Exception as fault:
        return {"fault": [type(fault).__name__, str(fault)]}


def _serve(context: Context, params: dict[str, Any]) -> Any:
    if params["do"] == "close":
        context.close()
        return None
    first, connection = not context.has_db, context.db
    if first:
        context.on_stop(lambda reason: _interrupt(connection))
    match params["do"]:
        case "execute":
            connection.execute(params["sql"], unpack(params["args"]))
        case "executemany":
            connection.executemany(params["sql"], unpack(params["args"]))
        case _:
            return {"rows": pack(connection.fetchmany(ROWS))}
    columns = connection.description
    return {"columns": columns and [[str(part) for part in column[:2]] for column in columns]}


def _interrupt(connection: Any) -> None:
    with suppress(Exception):  # it has ended meanwhile
        connection.interrupt()


# In the child


class RemoteConnection:
    """As much of a DuckDB connection as can be asked for."""

    def __init__(self, port: Callable[[str, dict[str, Any]], Any]) -> None:
        self._port = port
        self._rows: list[Any] = []
        self._more = False
        self.description: list[tuple[str, str, None, None, None, None, None]] | None = None

    def execute(self, sql: str, parameters: Any = None) -> RemoteConnection:
        return self._run("execute", sql, parameters)

    def executemany(self, sql: str, parameters: Sequence[Any]) -> RemoteConnection:
        return self._run("executemany", sql, list(parameters))

    sql = query = execute

    def fetchone(self) -> Any:
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int = 1) -> list[Any]:
        while len(self._rows) < size and self._more:
            page = unpack(self._ask({"do": "fetch"})["rows"])
            self._rows += page
            self._more = len(page) == ROWS
        rows, self._rows = self._rows[:size], self._rows[size:]
        return rows

    def fetchall(self) -> list[Any]:
        rows: list[Any] = []
        while page := self.fetchmany(ROWS):
            rows += page
        return rows

    def begin(self) -> RemoteConnection:
        return self.execute("BEGIN TRANSACTION")

    def commit(self) -> RemoteConnection:
        return self.execute("COMMIT")

    def rollback(self) -> RemoteConnection:
        return self.execute("ROLLBACK")

    def close(self) -> None:
        self._rows, self._more = [], False
        self._ask({"do": "close"})

    def __iter__(self) -> Iterator[Any]:
        while (row := self.fetchone()) is not None:
            yield row

    def __enter__(self) -> RemoteConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"ctx.db has no {name!r} in a child process, where it asks its worker, the one process "
            "that may open a DuckDB file; give the job isolation='thread' to have all of DuckDB"
        )

    def _run(self, do: str, sql: str, parameters: Any) -> RemoteConnection:
        # None is not the same as no parameters to every statement, and an empty list is.
        told = self._ask(
            {"do": do, "sql": sql, "args": pack([] if parameters is None else parameters)}
        )
        columns = told["columns"]
        self._rows, self._more = [], columns is not None
        self.description = columns and [(*column, *[None] * 5) for column in columns]
        return self

    def _ask(self, params: dict[str, Any]) -> Any:
        told = self._port("db", params)
        if told is not None and "fault" in told:
            raise _fault(*told["fault"])
        return told


def _fault(kind: str, text: str) -> Exception:
    with suppress(ImportError):
        import duckdb

        found = getattr(duckdb, kind, None)
        if isinstance(found, type) and issubclass(found, Exception):
            return found(text)
    return RotaError(f"{kind}: {text}")
