"""The worker's side of a child process: start it, call it, stop it, reap it."""

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
    from rota.executors.remote import ConnectionServer

# A full pipe is at most so many pieces; one drain() reads no more, so it always ends.
PIECES = 16
# The channel of an ending process closes shortly before its exit code is available.
EXIT_SECONDS = 5.0
START_SECONDS = 30.0
REAP_SECONDS = 5.0  # a process that waits inside the kernel survives even SIGKILL
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BOOT = "import sys; sys.path.append({!r}); from rota.executors.child import main; main({}, {})"


A = TypeVar("A", Done, Examined)


class ChildProcess:
    """A child process, which runs calls one at a time.

    Other threads may use only `send_nowait`, `send_signal` and `reap`."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._sending = threading.Lock()
        self._unsent: deque[bytes] = deque()
        self._reaped = False
        self._strays: list[Identity] = []
        self._server: ConnectionServer | None = None
        self._lines = Lines()
        self.mark = "\x1e" + secrets.token_hex(8)
        self.loaded: dict[str, str] = {}
        self.calls = 0
        self.working = self.ready = self.begun = self.signalled = False
        self._channel_closed = self._protocol_broken = self._output_closed = False
        # The child's ends are closed here in any case, ours only if the child does not start.
        with ExitStack() as theirs, ExitStack() as ours:
            self._channel, channel = socket.socketpair()
            ours.enter_context(self._channel)
            theirs.enter_context(channel)
            parent_pipe, worker_end = os.pipe()
            ours.callback(os.close, worker_end)
            theirs.callback(os.close, parent_pipe)
            self._output, output = os.pipe()
            ours.callback(os.close, self._output)
            theirs.callback(os.close, output)
            # -P: no folder is added to sys.path, which Hello below sets to that of the worker.
            boot = BOOT.format(ROOT, channel.fileno(), parent_pipe)
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", boot],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(channel.fileno(), parent_pipe),
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
        with suppress(OSError):  # the child has ended already; its first call fails
            self.send(Hello(path=path, argv=sys.argv, mark=self.mark))

    def call(self, call: Call, context: Context, output: Output) -> Done | None:
        """Run a call to its end; None if the child ended before that."""
        if not self._begin(call):
            return None
        try:
            return self._receive_until(Done, context, output)
        finally:
            if self._server is not None:
                self._server.end()
                self._server = None

    def examine(self, file: Examine, output: Output, within: float) -> Examined | None:
        """Have a file examined; None if the child ended or did not answer in time.

        The time limit counts from when the child begins."""
        if not self._begin(file):
            return None
        if (examined := self.wait(output, START_SECONDS, begun=True)) is None and self.begun:
            examined = self.wait(output, within)
        return examined

    def wait(self, output: Output, within: float, *, begun: bool = False) -> Examined | None:
        """Wait for the answer to an Examine, or only until it has begun."""
        return self._receive_until(Examined, None, output, time.monotonic() + within, begun=begun)

    @property
    def ended(self) -> bool:
        """True once the channel is known to be closed."""
        return self._channel_closed

    def _begin(self, message: Call | Examine) -> bool:
        self.begun = False
        try:
            self.send(message)
        except OSError:
            self._channel_closed = True
            return False
        return True

    def _receive_until(
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
                # Output first: the handler printed it before it sent the message.
                self.drain(output)
                if descriptor == self._channel.fileno():
                    if isinstance(answer := self._receive(context), kind):
                        self.drain(output)
                        return answer
                    if self._channel_closed:
                        return None
            if until is not None and time.monotonic() > until:
                return None  # checked here too: a child that prints without pause is always ready
        return None

    def _receive(self, context: Context | None) -> Message | None:
        try:
            piece = self._channel.recv(PIECE)
            self._channel_closed = not piece
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
            self._channel_closed = True
        except msgspec.DecodeError:
            # No later message can be trusted.
            self._channel_closed = self._protocol_broken = True
        return None

    def _answer(self, ask: Ask, context: Context) -> None:
        try:
            line = encode(Answer(number=ask.number, value=self._value(ask, context)))
        except errors.RotaError as error:
            line = encode(Answer(number=ask.number, error=(type(error).__name__, str(error))))
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            line = encode(Answer(number=ask.number, error=("RotaError", message)))
        if ask.number:
            with suppress(OSError):  # the child has ended; the next poll reports it
                self._send_line(line)

    def _value(self, ask: Ask, context: Context) -> object:
        if ask.request != "db":
            return context.port(ask.request, ask.params)
        if self._server is None:
            from rota.executors.remote import ConnectionServer

            self._server = ConnectionServer(context)
        return self._server.do(ask.params)

    def send(self, message: Message) -> None:
        self._send_line(encode(message))

    def _send_line(self, line: bytes) -> None:
        with self._sending:
            self._channel.sendall(line)
        self._send_queued()

    def send_nowait(self, message: Message) -> None:
        """Send without waiting.

        If the channel is full, the next send delivers the message. A child that
        reads nothing is ended by a signal in any case."""
        self._unsent.append(encode(message))
        self._send_queued(socket.MSG_DONTWAIT)

    def _send_queued(self, flags: int = 0) -> None:
        # The holder of the lock checks the queue again after its release, so no line is left.
        while self._unsent and self._sending.acquire(blocking=False):
            try:
                line = self._unsent[0]
                sent = self._channel.send(line, flags)
                self._unsent.popleft()
                if sent < len(line):
                    self._channel.sendall(line[sent:])
            except (OSError, IndexError):  # the channel is full, or another thread sent it
                return
            finally:
                self._sending.release()

    def send_signal(self, number: int, call: int) -> None:
        """Signal the child and its handler's processes, if it still runs that call."""
        with self._guard:
            if self.working and self.calls == call and not self._reaped:
                self.signalled = True
                self._strays += signal_tree(self.pid, number)

    def end_call(self) -> None:
        """Mark the call as ended: a late signal for it is not sent any more."""
        with self._guard:
            self.working = False

    def finish(self, output: Output) -> str:
        """Reap a child that ended during a call, and describe how it ended."""
        exited = self._protocol_broken or has_exited(self.pid, within=EXIT_SECONDS)
        code = self.reap(output)
        if self._protocol_broken:
            return "the handler wrote to a descriptor of its child process that is not its own"
        if not exited or code == CHANNEL_LOST:
            return "the handler closed the descriptors of its child process"
        if not self.ready:
            return f"child process could not start, {ending(code)}: {output.tail}"
        return f"child process {ending(code)}"

    def reap(self, output: Output | None = None) -> int:
        """Kill the child and its group, and return its exit code."""
        with self._guard:
            if not self._reaped:
                self._reaped = True
                # Signal before the wait: until then the id, which is the group's, is not reused.
                self._strays += signal_tree(self.pid, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(REAP_SECONDS)
                signal_each(self._strays, signal.SIGKILL)
                if output is not None:
                    self.drain(output)
                self._ours.close()
        return self.process.returncode or 0

    def drain(self, output: Output) -> None:
        with suppress(BlockingIOError):
            for _ in range(0 if self._output_closed else PIECES):
                if not (piece := os.read(self._output, PIECE)):
                    self._output_closed = True  # by the child and all its descendants
                    self._poll.unregister(self._output)
                    break
                output.feed(piece)

    def forget(self) -> None:
        """In a fork of the worker: close our ends, or the worker's end would go unnoticed."""
        if not self._reaped:
            self._reaped = True
            self._ours.close()


_LIVING: weakref.WeakSet[ChildProcess] = weakref.WeakSet()


def _forget_all() -> None:
    for child in list(_LIVING):
        child.forget()


os.register_at_fork(after_in_child=_forget_all)


def _milliseconds(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic()) * 1000
