"""`ctx.db` of a handler in a child process whose target is a DuckDB file.

DuckDB lets one process open a file, and that is the worker: it may hold the store there, or run SQL
jobs on it. So the child asks its worker, a statement and a page of rows at a time. What hands over
whole tables (`df()`, `arrow()`, relations) needs a handler in the worker: `isolation = "thread"`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from rota.errors import Invalid, RotaError
from rota.executors.messages import LONGEST
from rota.model.packing import Packing

if TYPE_CHECKING:
    from rota.executors.context import Context

# An answer ends at whichever of these comes first; one more row of the longest fits behind both.
ROWS, PAGE_BYTES = 500, 512 * 1024
ROW_BYTES = LONGEST - 2 * PAGE_BYTES
AGAIN_SECONDS = 0.1
CLEANUP_SECONDS = 5.0

_packing = Packing()
pack, unpack = _packing.pack, _packing.unpack


# In the worker


class Served:
    """What the child of one call asks for, done on the attempt's own connection.

    The statement that runs when the attempt should end is interrupted, again and again, because an
    interrupt that comes too early ends nothing. One that the handler begins after that, to clean
    up, has `CLEANUP_SECONDS`: the child may be dead by then, and nobody wait for it."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._changed = threading.Condition()
        self._statement = 0
        self._connection: Any = None
        self._running = self._ended = False
        context.on_stop(self._stop)

    def do(self, params: dict[str, Any]) -> Any:
        """A fault of the database is an answer: the child raises it by its own name."""
        try:
            return self._do(params)
        except RotaError:
            raise
        except Exception as fault:
            return {"fault": [type(fault).__name__, str(fault)]}

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _do(self, params: dict[str, Any]) -> Any:
        if params["do"] == "close":
            self.context.close()
            return None
        connection = self.context.db
        match params["do"]:
            case "execute":
                with self._run(connection):
                    connection.execute(params["sql"], unpack(params["args"]))
            case "executemany":
                with self._run(connection):
                    connection.executemany(params["sql"], unpack(params["args"]))
            case _:
                with self._run(connection):
                    return _page(connection)
        columns = connection.description
        return {"columns": columns and [[str(part) for part in column[:2]] for column in columns]}

    @contextmanager
    def _run(self, connection: Any) -> Iterator[None]:
        with self._changed:
            self._statement += 1
            self._connection, self._running = connection, True
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._running = False
                self._changed.notify_all()

    def _stop(self, reason: str) -> None:
        with self._changed:
            last = self._statement if self._running else 0
        # Who lost the lease has nothing to clean up: another attempt may have begun.
        patience = 0.0 if reason == "lost" else CLEANUP_SECONDS
        threading.Thread(
            target=self._interrupt, args=(last, patience), name="rota-interrupt", daemon=True
        ).start()

    def _interrupt(self, last: int, patience: float) -> None:
        while statement := self._next():
            wait = 0.0 if statement == last else patience
            while not self._over(statement, wait):
                with self._changed, suppress(Exception):  # its connection may be gone
                    if self._running and self._statement == statement:
                        self._connection.interrupt()
                wait = AGAIN_SECONDS

    def _next(self) -> int:
        """The statement that runs, or will; 0 once there is none to come."""
        with self._changed:
            self._changed.wait_for(lambda: self._running or self._ended)
            return 0 if self._ended else self._statement

    def _over(self, statement: int, within: float) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._running or self._statement != statement, within
            )


def _page(connection: Any) -> dict[str, Any]:
    """Row by row: nobody knows how long they are before."""
    rows: list[msgspec.Raw] = []
    size = 0
    while len(rows) < ROWS and size < PAGE_BYTES:
        if (row := connection.fetchone()) is None:
            return {"rows": rows, "more": False}
        line = msgspec.json.encode(pack(row))
        if len(line) > ROW_BYTES:
            raise Invalid(
                f"a row of {len(line):,} bytes cannot pass to a child process, {ROW_BYTES:,} is "
                "the most; select less of it, or give the job isolation='thread'"
            )
        rows.append(msgspec.Raw(line))
        size += len(line)
    return {"rows": rows, "more": True}


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
            self._more = False  # after a fault nothing comes: rows would be missing before it
            page = self._ask({"do": "fetch"})
            self._rows += unpack(page["rows"])
            self._more = page["more"]
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
