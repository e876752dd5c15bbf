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
# To open one takes as long, and the server's work for dozens of statements.
PATIENCE_SECONDS = 0.02


class Pool:
    def __init__(self, connect: Callable[[], Session], *, size: int) -> None:
        self._connect, self._size = connect, size
        self._closed = False
        self.begin()
        _POOLS.add(self)

    def begin(self) -> None:
        """With no connection; after a fork, too: ours are our parent's, who goes on using them."""
        self._changed = threading.Condition()
        self._idle: list[tuple[float, Session]] = []  # the last one used is at the end
        self._open = 0

    def lend(self, *, patient: bool = False) -> Lent:
        """A connection outside any transaction; it must be given back like that, or is closed.
        Who is patient waits a moment for another one's before a new one is opened."""
        return Lent(self, patient)

    def close(self) -> None:
        """Close what is idle now, and the others as they come back."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._open -= len(idle)
            self._changed.notify_all()
        for _, connection in idle:
            connection.close()

    def _take(self, patient: bool) -> Session:
        began = time.monotonic()
        deadline, open_at = began + WAIT_SECONDS, began + (PATIENCE_SECONDS if patient else 0.0)
        with self._changed:
            while True:
                if self._closed:
                    raise Unavailable("the store is closed")
                while self._idle:
                    _, connection = self._idle.pop(self._place())
                    if connection.is_alive():
                        return connection
                    self._discard(connection)
                now = time.monotonic()
                if self._open < self._size:
                    if now >= open_at or not self._open:
                        self._open += 1
                        break
                    self._changed.wait(open_at - now)
                elif not self._changed.wait(deadline - now):
                    raise Unavailable(
                        f"all {self._size} connections were busy for {WAIT_SECONDS:.0f} s; "
                        "raise pool_size"
                    )
        try:
            return self._connect()
        except BaseException:
            with self._changed:
                self._open -= 1
                self._changed.notify_all()  # the first may be patient, and not open another
            raise

    def _place(self) -> int:
        """Of the one that this thread had last: its server process has at hand what a loop sends
        again and again. Else one that is nobody's, else the one that was used last. Only among the
        last few, so that those that a quiet process does not need grow old and are closed."""
        me = get_ident()
        last = range(-1, -1 - min(OWN_AMONG, len(self._idle)), -1)
        for owner in (me, NOBODY):
            for place in last:
                if self._idle[place][1].used_by == owner:
                    return place
        return -1

    def _give_back(self, connection: Session, patient: bool) -> None:
        now = time.monotonic()
        if not patient:  # what the patient share stays whose it was
            connection.used_by = get_ident()
        with self._changed:
            idle = (
                connection.pgconn.transaction_status == TransactionStatus.IDLE
                and connection.pgconn.pipeline_status == PipelineStatus.OFF
            )
            if self._closed or not idle:
                self._discard(connection)
            else:
                self._idle.append((now, connection))
            while self._idle and self._idle[0][0] < now - IDLE_SECONDS:
                self._discard(self._idle.pop(0)[1])
            if idle:
                self._changed.notify()
            else:
                self._changed.notify_all()  # there is room for one, and the first may be patient

    def _discard(self, connection: Session) -> None:
        connection.close()
        self._open -= 1


class Lent:
    """A class, as it is entered for every statement: a generator takes three times as long."""

    __slots__ = ("_connection", "_patient", "_pool")

    def __init__(self, pool: Pool, patient: bool) -> None:
        self._pool, self._patient = pool, patient

    def __enter__(self) -> Session:
        self._connection = self._pool._take(self._patient)
        return self._connection

    def __exit__(self, *fault: object) -> None:
        self._pool._give_back(self._connection, self._patient)


_POOLS: WeakSet[Pool] = WeakSet()


def _begin_all() -> None:
    for pool in list(_POOLS):
        pool.begin()


# While the child has one thread: several that noticed the fork later would begin side by side.
os.register_at_fork(after_in_child=_begin_all)
