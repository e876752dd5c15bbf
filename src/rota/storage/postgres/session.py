"""A connection of ours, and the short way to send a statement on it.

The driver's cursor does for every statement what is the same each time: it reads the SQL, chooses
a type for every parameter, looks the statement up. Here a statement is numbered once and prepared
once a connection, and its parameters are text already: a round trip takes half of the time.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format
from psycopg.rows import TupleRow

from rota.storage.statements import parameters, to_numbered, to_pyformat

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

# Prepared at this use: what is sent once is not worth a round trip.
PREPARE_AT = 3
# What loops send again and again is prepared at its first use, not planned twice before.
HOT = frozenset({
    "due_schedules", "next_fire_at", "fire_free", "claim_at_once", "claim_marked_runs",
    "succeed_runs",
})  # fmt: skip
# The plan was made for another shape of the tables, somebody discarded it, or it has the name of
# another one: prepare it again, elsewhere.
STALE_PLAN = frozenset({"0A000", "26000", "42P05"})
_BAD = int(ConnStatus.BAD)
_ANSWERED = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
# How long a wait goes on before it lets a signal's handler have its turn, at the latest.
WAIT_MILLISECONDS = 1_000
# How long a caller waits for something said behind his statement.
SAID_MILLISECONDS = 50


class Statement:
    """SQL as the server takes it, and the parameters that a caller must bring."""

    __slots__ = ("handle", "names", "numbered", "order", "prepare_at", "sql")

    def __init__(self, name: str, sql: str) -> None:
        self.sql = to_pyformat(sql).encode()
        self.order = tuple(parameters(sql))
        self.numbered = to_numbered(sql).encode()
        self.handle = f"rota_{name}".encode()
        self.prepare_at = 1 if name in HOT else PREPARE_AT
        self.names = tuple(name for name in self.order if name != "now")


class Session(psycopg.Connection[TupleRow]):
    """In autocommit, used by one thread at a time."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.prepares = True  # False keeps plans out of the session: behind a pooler
        self.used_by = 0  # the thread that had it last
        self.verb: str | None = None  # whose it is: of one that is sent again and again
        self.locally = b""  # what a transaction sets for itself, where the session keeps nothing
        self._uses: dict[bytes, int] = {}
        self._poll = select.poll()
        self._poll.register(self.pgconn.socket, select.POLLIN)
        self._transformer = Transformer(self)

    def is_alive(self) -> bool:
        """False if the server has closed it while nobody looked; costs no round trip."""
        if self.pgconn.status == _BAD:
            return False
        if not self._poll.poll(0):
            return True
        try:
            self.pgconn.consume_input()  # a notice, or the end
        except psycopg.Error:
            return False
        return not self._poll.poll(0)

    def run(
        self, statement: Statement, bound: Mapping[str, str | None], then: bytes | None = None
    ) -> PGresult:
        """One round trip, with a plan that is made already once it is prepared. `then` follows in
        a transaction of its own; what becomes of it is nobody's concern, and where it takes long
        this session is closed."""
        values = [
            None if (value := bound[name]) is None else value.encode() for name in statement.order
        ]
        handle = statement.handle
        uses = self._uses.get(handle, 0) + 1
        if not self.prepares or uses < statement.prepare_at:
            self._uses[handle] = uses
            return self._ask(
                self.pgconn.send_query_params,
                statement.numbered, values, None, None, Format.BINARY,
                then=then,
            )  # fmt: skip
        try:
            if uses == statement.prepare_at:
                self._ask(self.pgconn.send_prepare, handle, statement.numbered)
                self._uses[handle] = uses
            return self._ask(
                self.pgconn.send_query_prepared, handle, values, None, Format.BINARY, then=then
            )
        except psycopg.Error as fault:
            if fault.sqlstate in STALE_PLAN:
                self.close()  # its other plans are no better
            raise

    def begin(self, sql: bytes) -> None:
        """Begin a transaction that is set as ours are, in one round trip."""
        self.simple(sql + self.locally)

    def simple(self, sql: bytes) -> None:
        """Statements without parameters or answers, such as COMMIT."""
        self._ask(self.pgconn.send_query, sql)

    def rows(self, result: PGresult) -> list[dict[str, Any]]:
        names = [(result.fname(at) or b"").decode() for at in range(result.nfields)]
        return self._load(result, lambda values: dict(zip(names, values, strict=True)))

    def tuples(self, result: PGresult) -> list[tuple[Any, ...]]:
        return self._load(result, tuple)

    def _load(self, result: PGresult, make: Callable[[Sequence[Any]], Any]) -> list[Any]:
        if not result.nfields:
            return []
        self._transformer.set_pgresult(result)
        try:
            return self._transformer.load_rows(0, result.ntuples, make)
        finally:
            self._transformer.set_pgresult(None)  # a large answer is not kept until the next one

    def _ask(self, send: Callable[..., None], *args: Any, then: bytes | None = None) -> PGresult:
        """Send, and wait for the answer. After an interrupt nobody knows what the server does
        with it, so the connection is closed."""
        try:
            if then is None:
                result = self._answer_to(send, args)
            else:
                result = self._answer_before(then, send, args)
        except psycopg.Error:
            raise
        except BaseException:
            self.close()
            raise
        return _checked(result)

    def _answer_to(self, send: Callable[..., None], args: tuple[Any, ...]) -> PGresult:
        pgconn, poll = self.pgconn, self._poll.poll
        send(*args)
        if pgconn.flush():
            self._wait_to_send()
            self._flush()
        result = None
        while True:
            # Before each part of it: the driver would wait for the rest with all threads stopped.
            while pgconn.is_busy():  # as `_await_answer`, which is a call more for every statement
                poll(WAIT_MILLISECONDS)
                pgconn.consume_input()
            last = pgconn.get_result()
            if last is None:
                break
            if result is None or last.status not in _ANSWERED:
                result = last
        assert result is not None
        return result

    def _answer_before(
        self, then: bytes, send: Callable[..., None], args: tuple[Any, ...]
    ) -> PGresult:
        """The same, and say something behind it. The answer is the last word before the server
        has committed: what it refuses, it may refuse as late as that."""
        pgconn = self.pgconn
        result = None
        pgconn.enter_pipeline_mode()
        send(*args)
        pgconn.pipeline_sync()
        pgconn.send_query_params(then, None)
        pgconn.pipeline_sync()
        self._flush()
        while True:
            self._await_answer()
            answer = pgconn.get_result()
            if answer is None and pgconn.status != ConnStatus.OK:
                raise psycopg.OperationalError(pgconn.get_error_message())
            if answer is None:
                continue
            if answer.status == ExecStatus.PIPELINE_SYNC:
                break
            if result is None or answer.status not in _ANSWERED:
                result = answer
        self._end_said()
        assert result is not None
        return result

    def _end_said(self) -> None:
        """Wait a moment for what was said. It may have to wait for others, all over the server:
        then this connection is given up, and the server finishes alone."""
        pgconn = self.pgconn
        with suppress(psycopg.Error):
            while pgconn.status == ConnStatus.OK:
                if pgconn.is_busy():
                    if not self._poll.poll(SAID_MILLISECONDS):
                        break
                    pgconn.consume_input()
                elif (answer := pgconn.get_result()) and answer.status == ExecStatus.PIPELINE_SYNC:
                    pgconn.exit_pipeline_mode()
                    return
        self.close()

    def _flush(self) -> None:
        while self.pgconn.flush():  # the server reads more slowly than we send
            self._wait_to_send()

    def _await_answer(self) -> None:
        while self.pgconn.is_busy():
            # Also when there is nothing to see: encrypted, it may be here already.
            self._poll.poll(WAIT_MILLISECONDS)
            self.pgconn.consume_input()

    def _wait_to_send(self) -> None:
        """Both ways: a server that waits for us to read would not read either."""
        self._poll.modify(self.pgconn.socket, select.POLLIN | select.POLLOUT)
        try:
            for _, event in self._poll.poll(WAIT_MILLISECONDS):
                if event & select.POLLIN:
                    self.pgconn.consume_input()
        finally:
            self._poll.modify(self.pgconn.socket, select.POLLIN)


def _checked(result: PGresult) -> PGresult:
    """The answer, or what the server holds against it."""
    if result.status in _ANSWERED:
        return result
    if result.error_field(DiagnosticField.SQLSTATE) is None:  # the connection itself broke
        raise psycopg.OperationalError(result.get_error_message())
    raise error_from_result(result)
