"""`ctx.db` of a handler in a child process whose target is a DuckDB file.

Only one process can open a DuckDB file: the worker, which may have the store there or run SQL jobs
on it. The child sends each statement to its worker and reads the rows in pages. Methods that return
whole tables (`df()`, `arrow()`, relations) need a handler in the worker: `isolation = "thread"`.
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

# A page ends at either limit. One more row of ROW_BYTES still fits into a message.
ROWS, PAGE_BYTES = 500, 512 * 1024
ROW_BYTES = LONGEST - 2 * PAGE_BYTES
AGAIN_SECONDS = 0.1
CLEANUP_SECONDS = 5.0

_packing = Packing()
pack, unpack = _packing.pack, _packing.unpack


# In the worker


class ConnectionServer:
    """Executes the statements of a child's call on the attempt's connection.

    When the attempt is stopped, the running statement is interrupted every AGAIN_SECONDS until it
    ends: an interrupt that arrives between statements has no effect. A later statement of the
    handler, such as clean-up, has CLEANUP_SECONDS: a dead child no longer waits for its result."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._changed = threading.Condition()
        self._statement = 0
        self._connection: Any = None
        self._running = self._ended = False
        context.on_stop(self._stop)

    def do(self, params: dict[str, Any]) -> Any:
        """Execute a request. An error of the database is returned; the child raises it."""
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
        # After a lost lease there is no clean-up: another attempt may have begun.
        cleanup_seconds = 0.0 if reason == "lost" else CLEANUP_SECONDS
        threading.Thread(
            target=self._interrupt, args=(last, cleanup_seconds), name="rota-interrupt", daemon=True
        ).start()

    def _interrupt(self, last: int, cleanup_seconds: float) -> None:
        while statement := self._next():
            wait = 0.0 if statement == last else cleanup_seconds
            while not self._over(statement, wait):
                with self._changed, suppress(Exception):  # its connection may be gone
                    if self._running and self._statement == statement:
                        self._connection.interrupt()
                wait = AGAIN_SECONDS

    def _next(self) -> int:
        """Wait for a running statement and return its number; 0 after the call."""
        with self._changed:
            self._changed.wait_for(lambda: self._running or self._ended)
            return 0 if self._ended else self._statement

    def _over(self, statement: int, within: float) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._running or self._statement != statement, within
            )


def _page(connection: Any) -> dict[str, Any]:
    """The next rows. Fetched one at a time, because their length is not known before."""
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
    """The methods of a DuckDB connection that work through the worker."""

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
            self._more = False  # after an error no more rows: some would be missing
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
        # Some statements refuse None; all accept an empty list as no parameters.
        answer = self._ask(
            {"do": do, "sql": sql, "args": pack([] if parameters is None else parameters)}
        )
        columns = answer["columns"]
        self._rows, self._more = [], columns is not None
        self.description = columns and [(*column, *[None] * 5) for column in columns]
        return self

    def _ask(self, params: dict[str, Any]) -> Any:
        answer = self._port("db", params)
        if answer is not None and "fault" in answer:
            raise _fault(*answer["fault"])
        return answer


def _fault(kind: str, text: str) -> Exception:
    with suppress(ImportError):
        import duckdb

        error_type = getattr(duckdb, kind, None)
        if isinstance(error_type, type) and issubclass(error_type, Exception):
            return error_type(text)
    return RotaError(f"{kind}: {text}")
