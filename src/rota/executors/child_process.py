"""A worker's end of one child process: start it, call it, stop it, bury it."""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from rota import errors
from rota.executors.context import Context
from rota.executors.messages import (
    CHANNEL_LOST,
    FROM_CHILD,
    PIECE,
    Answer,
    Ask,
    Begun,
    Call,
    Done,
    Examine,
    Examined,
    Hello,
    Lines,
    Message,
    Ready,
    encode,
)
from rota.executors.output import Output
from rota.executors.processes import Identity, ending, has_exited, signal_each, signal_tree

if TYPE_CHECKING:
    from rota.executors.remote import Served

# A pipe holds at most so many pieces; what is written while they are read can wait.
PIECES = 16
# The channel of a process that ends closes a moment before its exit code can be read.
EXIT_SECONDS = 5.0
START_SECONDS = 30.0
BURY_SECONDS = 5.0  # a process that waits inside the kernel cannot even be killed
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BOOT = "import sys; sys.path.append({!r}); from rota.executors.child import main; main({}, {})"


A = TypeVar("A", Done, Examined)


class ChildProcess:
    """One call at a time. Only `tell`, `send_signal` and `bury` may come from other threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._sending = threading.Lock()
        self._notes: deque[bytes] = deque()
        self._buried = False
        self._strays: list[Identity] = []
        self._served: Served | None = None
        self._lines = Lines()
        self.mark = "\x1e" + secrets.token_hex(8)
        self.loaded: dict[str, str] = {}
        self.calls = 0
        self.working = self.ready = self.begun = self.signalled = False
        self._hung_up = self._babbled = self._silent = False
        # Ours stay open only if it starts; theirs never do: it has them by then.
        with ExitStack() as theirs, ExitStack() as ours:
            self._channel, channel = socket.socketpair()
            ours.enter_context(self._channel)
            theirs.enter_context(channel)
            life, ends_life = os.pipe()
            ours.callback(os.close, ends_life)
            theirs.callback(os.close, life)
            self._output, output = os.pipe()
            ours.callback(os.close, self._output)
            theirs.callback(os.close, output)
            # -P and the hello below: the child imports what its worker imports, from there.
            boot = BOOT.format(ROOT, channel.fileno(), life)
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", boot],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(channel.fileno(), life),
                start_new_session=True,
            )
            self._ours = ours.pop_all()
        self.pid = self.process.pid
        os.set_blocking(self._output, False)
        self._poll = select.poll()
        self._poll.register(self._channel, select.POLLIN)
        self._poll.register(self._output, select.POLLIN)
        _LIVING.add(self)
        path = [entry for entry in sys.path if isinstance(entry, str)]
        with suppress(OSError):  # it has ended already, which its first call will show
            self.send(Hello(path=path, argv=sys.argv, mark=self.mark))

    def call(self, call: Call, context: Context, output: Output) -> Done | None:
        """Talk until the call is done; None if the child ended before that."""
        if not self._begin(call):
            return None
        try:
            return self._talk(Done, context, output)
        finally:
            if self._served is not None:
                self._served.end()
                self._served = None

    def examine(self, file: Examine, output: Output, within: float) -> Examined | None:
        """Have a file examined; None if the child ended before that, or did not answer in time.
        What counts is the time from when it takes the file up."""
        if not self._begin(file):
            return None
        if (found := self.wait(output, START_SECONDS, begun=True)) is None and self.begun:
            found = self.wait(output, within)
        return found

    def wait(self, output: Output, within: float, *, begun: bool = False) -> Examined | None:
        """Listen for an examined file a while longer, or until it is `begun`."""
        return self._talk(Examined, None, output, time.monotonic() + within, begun=begun)

    @property
    def ended(self) -> bool:
        """True once it was found that it listens no more."""
        return self._hung_up

    def _begin(self, message: Call | Examine) -> bool:
        self.begun = False
        try:
            self.send(message)
        except OSError:  # it cannot hear any more
            self._hung_up = True
            return False
        return True

    def _talk(
        self,
        kind: type[A],
        context: Context | None,
        output: Output,
        until: float | None = None,
        *,
        begun: bool = False,
    ) -> A | None:
        while not (begun and self.begun):
            ready = self._poll.poll(_milliseconds(until))
            if not ready:
                return None
            for descriptor, _ in ready:
                # First what was printed, so that it comes before what the handler said after it.
                self.drain(output)
                if descriptor == self._channel.fileno():
                    if isinstance(answer := self._hear(context), kind):
                        self.drain(output)
                        return answer
                    if self._hung_up:
                        return None
            if until is not None and time.monotonic() > until:
                return None  # one that prints without end is never quiet
        return None

    def _hear(self, context: Context | None) -> Message | None:
        try:
            piece = self._channel.recv(PIECE)
            self._hung_up = not piece
            for line in self._lines.feed(piece):
                match FROM_CHILD.decode(line):
                    case Ready():
                        self.ready = True
                    case Begun():
                        self.begun = True
                    case Ask() as ask if context is not None:
                        self._answer(ask, context)
                    case Done() | Examined() as answer:
                        return answer
        except OSError:
            self._hung_up = True
        except msgspec.DecodeError:
            # Nothing that comes after that can be trusted.
            self._hung_up = self._babbled = True
        return None

    def _answer(self, ask: Ask, context: Context) -> None:
        try:
            line = encode(Answer(number=ask.number, value=self._value(ask, context)))
        except errors.RotaError as error:
            line = encode(Answer(number=ask.number, error=(type(error).__name__, str(error))))
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            line = encode(Answer(number=ask.number, error=("RotaError", told)))
        if ask.number:
            with suppress(OSError):  # it has ended meanwhile, which the next look shows
                self._send_line(line)

    def _value(self, ask: Ask, context: Context) -> object:
        if ask.request != "db":
            return context.port(ask.request, ask.params)
        if self._served is None:
            from rota.executors.remote import Served

            self._served = Served(context)
        return self._served.do(ask.params)

    def send(self, message: Message) -> None:
        self._send_line(encode(message))

    def _send_line(self, line: bytes) -> None:
        with self._sending:
            self._channel.sendall(line)
        self._send_notes()

    def tell(self, message: Message) -> None:
        """Send without waiting: behind what is being sent, or what is sent next, if there is no
        room for it now. A child that does not listen will be made to end anyway."""
        self._notes.append(encode(message))
        self._send_notes(socket.MSG_DONTWAIT)

    def _send_notes(self, flags: int = 0) -> None:
        # Who has the lock looks here once more after it: nothing is forgotten between the two.
        while self._notes and self._sending.acquire(blocking=False):
            try:
                note = self._notes[0]
                sent = self._channel.send(note, flags)
                self._notes.popleft()
                if sent < len(note):
                    self._channel.sendall(note[sent:])
            except (OSError, IndexError):  # there is no room, or another thread was quicker
                return
            finally:
                self._sending.release()

    def send_signal(self, number: int, call: int) -> None:
        """Signal the child and what its handler started, if it still works on that call."""
        with self._guard:
            if self.working and self.calls == call and not self._buried:
                self.signalled = True
                self._strays += signal_tree(self.pid, number)

    def rest(self) -> None:
        """The call is over: no signal that was meant for it may still come."""
        with self._guard:
            self.working = False

    def finish(self, output: Output) -> str:
        """The child ended in the middle of a call: say how."""
        exited = self._babbled or has_exited(self.pid, within=EXIT_SECONDS)
        code = self.bury(output)
        if self._babbled:
            return "the handler wrote to a descriptor of its child process that is not its own"
        if not exited or code == CHANNEL_LOST:
            return "the handler closed the descriptors of its child process"
        if not self.ready:
            return f"child process could not start, {ending(code)}: {output.tail}"
        return f"child process {ending(code)}"

    def bury(self, output: Output | None = None) -> int:
        """End what is left of the child and its group, and collect it."""
        with self._guard:
            if not self._buried:
                self._buried = True
                # Before it is collected: its id, and so the group's, cannot be another's yet.
                self._strays += signal_tree(self.pid, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(BURY_SECONDS)
                signal_each(self._strays, signal.SIGKILL)
                if output is not None:
                    self.drain(output)
                self._ours.close()
        return self.process.returncode or 0

    def drain(self, output: Output) -> None:
        with suppress(BlockingIOError):
            for _ in range(0 if self._silent else PIECES):
                if not (piece := os.read(self._output, PIECE)):
                    self._silent = True  # closed by the child and by all it started
                    self._poll.unregister(self._output)
                    break
                output.feed(piece)

    def forget(self) -> None:
        """In a fork of the worker: its children are not ours, and must still see it end."""
        if not self._buried:
            self._buried = True
            self._ours.close()


_LIVING: weakref.WeakSet[ChildProcess] = weakref.WeakSet()


def _forget_all() -> None:
    for child in list(_LIVING):
        child.forget()


os.register_at_fork(after_in_child=_forget_all)


def _milliseconds(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic()) * 1000
