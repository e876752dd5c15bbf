"""Hints between processes: NOTIFY says that there may be work, LISTEN hears it.

Losing one costs only time, so nothing here ever raises into the work itself.
"""

from __future__ import annotations

import atexit
import os
import random
import select
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from weakref import WeakSet

import psycopg

from rota.errors import RotaError
from rota.storage.postgres.session import Session

# NOTIFY takes a lock of the whole server at commit. One in this time is enough to wake everybody.
QUIET_SECONDS = 0.005
# Many producers share that time: each sends as much less often as there are others, up to so many.
# When all of them stop, the last run of one is told of within ten times as long.
CROWD = 10
# What was counted over a longer time than this says nothing of who is there now.
COUNTED_SECONDS = 0.1
# So much later the thread sends what nobody has sent with something of his own: that is cheaper.
LULL_SECONDS = 0.004
THREAD_ONLY_SECONDS = 10.0
VERIFY_SECONDS = 2.0
RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 10.0
EXIT_SECONDS = 2.0
HEARING_SECONDS = 0.5  # a server that is away is not waited for
# A trial of the channel; nobody is woken by it.
TRIAL = "trial "


class Crowd:
    """How many producers there seem to be: how many runs were made for each one of ours."""

    def __init__(self) -> None:
        self._at, self._seq, self._made = float("-inf"), 0, 0

    def count(self, at: float, seq: int, made: int) -> float:
        """From 1, when all are ours. `seq` is the newest one, and we have `made` so many so far."""
        all_made, ours = seq - self._seq, made - self._made
        known = at - self._at <= COUNTED_SECONDS
        self._at, self._seq, self._made = at, seq, made
        return min(max(all_made / ours, 1.0), CROWD) if known and ours else 1.0


class Notifier:
    """Sends at once, then at most once in QUIET_SECONDS; what was asked last is always sent.

    Others' hints are for our runs, too: in a crowd all send so much together. That is a guess, on
    which nothing rests: each still tells of his own last one.
    """

    def __init__(self, send: Callable[[], None]) -> None:
        self._send = send
        self._closing = False
        self.begin()
        _NOTIFIERS.add(self)

    def begin(self) -> None:
        """With no thread; after a fork, too: ours is our parent's, and perhaps had the lock."""
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._asked = self._told = 0  # how often, and what all were told of that was asked so far
        self._sent_at = self._thread_only_until = float("-inf")
        self._crowd, self._made, self._producers = Crowd(), 0, 1.0
        self._thread: threading.Thread | None = None

    def may_send(self) -> int | None:
        """A number if nobody has sent one for a while: then the caller sends it behind what he
        commits, and says so by `sent`. Else he asks for it by `notify` when he has."""
        # Without the lock: of two that look at the same moment both may send.
        now = time.monotonic()
        quiet = QUIET_SECONDS * self._producers
        if now - self._sent_at < quiet or now < self._thread_only_until:
            return None
        with self._changed:
            self._sent_at = now
            return self._asked

    def sent(self, number: int, *, made: int = 1, seq: int | None = None) -> None:
        """This one was for those who had asked before it, too. It came behind so many runs that
        were `made`, of which `seq` is the last one."""
        with self._changed:
            self._told = max(self._told, number)
            self._made += made
            if seq is not None:
                self._producers = self._crowd.count(self._sent_at, seq, self._made)

    def keep_to_thread(self) -> None:
        """Nobody but the thread sends for a while: only it can wait for long."""
        with self._changed:
            self._thread_only_until = time.monotonic() + THREAD_ONLY_SECONDS
            self._producers = 1.0  # it does not count

    def notify(self, made: int = 1) -> None:
        with self._lock:
            if self._closing:
                return
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="rota-notify", daemon=True)
                thread.start()
                self._thread = thread  # once it runs: it says itself that it has ended
            if self._asked == self._told:  # else the thread waits for its time already
                self._changed.notify()
            self._asked += 1
            self._made += made

    def close(self, timeout: float) -> None:
        """Send what is still to be sent, if the server takes it in time, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if (thread := self._thread) is not None:
            thread.join(timeout)

    def _run(self) -> None:
        try:
            while self._next():
                with suppress(psycopg.Error, RotaError):  # others look on their own within a second
                    self._send()
        finally:
            self._thread = None  # whoever asks next begins another one

    def _next(self) -> bool:
        with self._changed:
            while True:
                if self._asked == self._told:
                    if self._closing:
                        return False
                    self._changed.wait()
                    continue
                now = time.monotonic()
                quiet = QUIET_SECONDS * self._producers
                early = self._sent_at + quiet + LULL_SECONDS - now
                if early <= 0:
                    self._told, self._sent_at = self._asked, now
                    return True
                self._changed.wait(early)


_NOTIFIERS: WeakSet[Notifier] = WeakSet()


def _begin_all() -> None:
    for notifier in list(_NOTIFIERS):
        notifier.begin()


# While the child has one thread: several that noticed the fork later would begin side by side.
os.register_at_fork(after_in_child=_begin_all)


def _end_all() -> None:
    for notifier in list(_NOTIFIERS):
        notifier.close(EXIT_SECONDS)


# A program that ends without closing its store has said something to others a moment ago, perhaps.
atexit.register(_end_all)


class Listener:
    """Calls `wake` for each notification that is not our own, and after each reconnect. Whoever
    starts it waits until it hears: what he looks for after that need not be looked for twice."""

    def __init__(
        self,
        connect: Callable[[], Session],
        channel: str,
        wake: Callable[[], None],
        *,
        ignore: str,
    ) -> None:
        self._connect, self._channel, self._wake, self._ignore = connect, channel, wake, ignore
        self._stopping, self._hearing = threading.Event(), threading.Event()
        self._late = False  # whoever started it goes on without it
        self._end, self._ender = os.pipe()  # closing one end wakes who waits at the other
        self._thread = threading.Thread(target=self._run, name="rota-wake", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._late = not self._hearing.wait(HEARING_SECONDS)

    def stop(self) -> None:
        if self._stopping.is_set():
            return
        self._stopping.set()
        os.close(self._ender)
        if self._thread.is_alive():
            self._thread.join(EXIT_SECONDS)

    def _run(self) -> None:
        try:
            self._listen()
        finally:
            os.close(self._end)

    def _listen(self) -> None:
        delay = RETRY_SECONDS
        while not self._stopping.is_set():
            try:
                with self._connect() as connection:
                    connection.execute(f'LISTEN "{self._channel}"')
                    if self._late or self._hearing.is_set():
                        self._wake()  # what was said while nobody listened
                    self._hearing.set()
                    delay = RETRY_SECONDS
                    self._hear(connection)
            except BaseException:  # whatever it was: a listener that ends would not be missed
                # Apart from each other, or all processes would come back at the same moment.
                self._stopping.wait(random.uniform(delay / 2, delay))
                delay = min(delay * 2, LONGEST_RETRY_SECONDS)

    def _hear(self, connection: Session) -> None:
        poll = select.poll()
        poll.register(connection.pgconn.socket, select.POLLIN)
        poll.register(self._end, select.POLLIN)
        while not self._stopping.is_set():
            poll.poll()
            connection.pgconn.consume_input()
            while (heard := connection.pgconn.notifies()) is not None:
                payload = heard.extra.decode()
                if payload != self._ignore and not payload.startswith(TRIAL):
                    self._wake()


def delivers(
    lend: Callable[[], AbstractContextManager[Session]], channel: str, send: Callable[[str], None]
) -> bool:
    """Whether what one session sends reaches another one. A server that is away is believed."""
    try:
        with lend() as connection:
            return _hears(connection, channel, send)
    except RotaError:
        return True


def _hears(connection: Session, channel: str, send: Callable[[str], None]) -> bool:
    trial, left_clean = TRIAL + uuid.uuid4().hex, False
    try:
        try:
            connection.execute(f'LISTEN "{channel}"')
            send(trial)
        except psycopg.Error as fault:
            return fault.sqlstate is None
        deadline = time.monotonic() + VERIFY_SECONDS
        try:
            while (left := deadline - time.monotonic()) > 0:
                if any(n.payload == trial for n in connection.notifies(timeout=left, stop_after=1)):
                    connection.execute(f'UNLISTEN "{channel}"')
                    left_clean = True
                    return True
        except psycopg.Error:  # the session is lost, whoever ended it
            return True
        return False
    finally:
        if not left_clean:  # nobody is to get it while it listens: it would hear, and never look
            connection.close()
