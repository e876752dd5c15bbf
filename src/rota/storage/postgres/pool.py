"""Connections kept open between transactions.

A connection is opened by the thread that needs it. So a server that is away answers with its
reason and at once, a server that is back is used at once, and there is no thread to stop.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from threading import get_ident
from weakref import WeakSet

from psycopg.pq import PipelineStatus, TransactionStatus

from rota.errors import Unavailable
from rota.storage.postgres.session import Session

# How long a thread waits for another one's connection, and how long an unused one stays open.
WAIT_SECONDS = 30.0
IDLE_SECONDS = 300.0
OWN_AMONG = 3  # of the idle ones a thread looks for its own
NOBODY = 0
# As numbers: they are asked for after every statement.
_IDLE, _NO_PIPELINE = int(TransactionStatus.IDLE), int(PipelineStatus.OFF)
# To open one is the server's work for dozens of statements. The patient open one after the other,
# so far apart: each may do for all of them.
PATIENCE_SECONDS = 0.05


class Pool:
    def __init__(self, connect: Callable[[], Session], *, size: int) -> None:
        self._connect, self._size = connect, size
        self._closed = False
        self.begin()
        _POOLS.add(self)

    def begin(self) -> None:
        """With no connection; after a fork, too: ours are our parent's, who goes on using them."""
        # By the lock itself where nobody waits for a change: it is taken for every statement.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0  # for one that comes back
        self._idle: list[tuple[float, Session]] = []  # the last one used is at the end
        self._verbs: dict[str, Session] = {}  # which is whose
        self._open = 0
        self._opened_at = float("-inf")  # the last one, by somebody patient

    def lend(self, *, patient: bool = False, verb: str | None = None) -> Lent:
        """A connection outside any transaction; it must be given back like that, or is closed.
        Who is patient waits a moment for another one's before a new one is opened. A `verb` is
        sent again and again: its connection is lent to nobody else while another one can be
        opened."""
        return Lent(self, patient, verb)

    def close(self) -> None:
        """Close what is idle now, and the others as they come back."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._open -= len(idle)
            self._changed.notify_all()
        for _, connection in idle:
            connection.close()

    def _take(self, patient: bool, verb: str | None) -> Session:
        with self._lock:
            # The usual case: the last one that came back is the verb's or this thread's own.
            if self._idle:
                last = self._idle[-1][1]
                if last.verb == verb and (verb is not None or last.used_by == get_ident()):
                    del self._idle[-1]
                    if last.is_alive():
                        return last
                    self._discard(last)
        return self._wait_for_one(patient, verb)

    def _wait_for_one(self, patient: bool, verb: str | None) -> Session:
        began = time.monotonic()
        deadline = began + WAIT_SECONDS
        with self._changed:
            while True:
                if self._closed:
                    raise Unavailable("the store is closed")
                while (place := self._place(verb)) is not None:
                    _, connection = self._idle.pop(place)
                    if connection.is_alive():
                        return connection
                    self._discard(connection)
                now = time.monotonic()
                if self._open < self._size:
                    open_at = min(max(began, self._opened_at) + PATIENCE_SECONDS, deadline)
                    if not patient or now >= open_at or self._open == len(self._verbs):
                        self._open += 1
                        break
                    self._wait(open_at - now)
                elif not self._wait(deadline - now):
                    raise Unavailable(
                        f"all {self._size} connections were busy for {WAIT_SECONDS:.0f} s; "
                        "raise pool_size"
                    )
            if patient:
                self._opened_at = now
        try:
            return self._connect()
        except BaseException as fault:
            with self._changed:
                self._open -= 1
                self._changed.notify_all()  # the first may be patient, and not open another
                idle = self._any_idle() if isinstance(fault, Exception) else None
            if idle is None:
                raise
            return idle

    def _any_idle(self) -> Session | None:
        """A verb's, too: the server takes no more of us."""
        while self._idle:
            _, connection = self._idle.pop()
            if connection.is_alive():
                return connection
            self._discard(connection)
        return None

    def _wait(self, seconds: float) -> bool:
        self._waiting += 1
        try:
            return self._changed.wait(seconds)
        finally:
            self._waiting -= 1

    def _place(self, verb: str | None) -> int | None:
        """Of the verb's own, whose server process has its plan at hand. Else, of those that are no
        verb's, the one that this thread had last, one that is nobody's, the one that was used
        last. Only among the last few, so that those that a quiet process does not need grow old
        and are closed. A verb's is lent to another where there can be no more."""
        me, places = get_ident(), range(len(self._idle) - 1, -1, -1)
        if verb is not None:
            for place in places:
                if self._idle[place][1].verb == verb:
                    return place
        free = [place for place in places if self._idle[place][1].verb is None]
        for owner in (me, NOBODY):
            for place in free[:OWN_AMONG]:
                if self._idle[place][1].used_by == owner:
                    return place
        if free:
            return free[0]
        return places[0] if places and self._open >= self._size else None

    def _give_back(self, connection: Session, patient: bool, verb: str | None) -> None:
        now = time.monotonic()
        if not patient:  # what the patient share stays whose it was
            connection.used_by = get_ident()
        pgconn = connection.pgconn
        idle = pgconn.transaction_status == _IDLE and pgconn.pipeline_status == _NO_PIPELINE
        with self._lock:
            if self._closed or not idle:
                self._discard(connection)
            else:
                if verb is not None and connection.verb is None and verb not in self._verbs:
                    self._verbs[verb] = connection
                    connection.verb = verb
                self._idle.append((now, connection))
            while self._idle and self._idle[0][0] < now - IDLE_SECONDS:
                self._discard(self._idle.pop(0)[1])
            if self._waiting and idle:
                self._changed.notify()
            elif self._waiting:
                self._changed.notify_all()  # there is room for one, and the first may be patient

    def _discard(self, connection: Session) -> None:
        connection.close()
        self._open -= 1
        if connection.verb is not None:
            del self._verbs[connection.verb]


class Lent:
    """A class, as it is entered for every statement: a generator takes three times as long."""

    __slots__ = ("_connection", "_patient", "_pool", "_verb")

    def __init__(self, pool: Pool, patient: bool, verb: str | None) -> None:
        self._pool, self._patient, self._verb = pool, patient, verb

    def __enter__(self) -> Session:
        self._connection = self._pool._take(self._patient, self._verb)
        return self._connection

    def __exit__(self, *fault: object) -> None:
        self._pool._give_back(self._connection, self._patient, self._verb)


_POOLS: WeakSet[Pool] = WeakSet()


def _begin_all() -> None:
    for pool in list(_POOLS):
        pool.begin()


# While the child has one thread: several that noticed the fork later would begin side by side.
os.register_at_fork(after_in_child=_begin_all)
