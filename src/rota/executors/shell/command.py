"""A worker's end of one command: start it under its supervisor, read what it writes, end it."""

from __future__ import annotations

import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO

from rota.executors.child_process import ROOT
from rota.executors.messages import PIECE
from rota.executors.processes import Identity, signal_each, signal_tree
from rota.executors.shell.plan import Plan
from rota.executors.supervisor import HEAD

# -I and -S: nothing of the user's own is imported into it, and it starts in a moment.
BOOT = "import sys; sys.path.append({!r}); from rota.executors.supervisor import main; main({})"
# A pipe holds at most so many pieces; what is written while they are read can wait.
PIECES = 16
BURY_SECONDS = 5.0
# A Python with a library of its own finds it by these.
LIBRARIES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")

Feed = Callable[[bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a command ended. `code` is negative for a signal, None if nobody knows; `fault` is what
    kept it from starting, as a step (cwd, exec) and an errno. `stopped`: it was told to end before
    it did. `left` processes were still alive when it had ended, and were ended too."""

    code: int | None = None
    stopped: bool = False
    left: int = 0
    fault: tuple[str, int] | None = None


class Command:
    """Only `stop` and `kill` may come from other threads."""

    def __init__(self, plan: Plan, *, kill_after: float) -> None:
        self._guard = threading.Lock()
        self._buried = False
        self._leader = 0
        self._strays: list[Identity] = []
        self._heard = b""
        # Ours stay open only if it starts; theirs never do: it has them by then.
        with ExitStack() as theirs, ExitStack() as ours:
            self._channel, channel = socket.socketpair()
            ours.enter_context(self._channel)
            theirs.enter_context(channel)
            self._out, out = os.pipe()
            ours.callback(os.close, self._out)
            theirs.callback(os.close, out)
            self._err, err = os.pipe()
            ours.callback(os.close, self._err)
            theirs.callback(os.close, err)
            stdin = subprocess.DEVNULL
            if plan.stdin is not None:
                file = theirs.enter_context(_file())
                file.write(plan.stdin)
                file.seek(0)
                stdin = file.fileno()
            boot = BOOT.format(ROOT, channel.fileno())
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", boot],
                stdin=stdin,
                stdout=out,
                stderr=err,
                pass_fds=(channel.fileno(),),
                start_new_session=True,
                env=_of_python(os.environ),
            )
            self._ours = ours.pop_all()
        _LIVING.add(self)
        request = marshal.dumps((plan.argv, dict(plan.environment), plan.folder, kill_after))
        with suppress(OSError):  # it has ended already, which the first look shows
            self._channel.sendall(len(request).to_bytes(HEAD, "big") + request)

    def wait(self, out: Feed, err: Feed) -> Ending:
        """Read until it has ended, with all that it started."""
        streams = {self._out: out, self._err: err}
        for descriptor in streams:
            os.set_blocking(descriptor, False)
        poll = select.poll()
        for descriptor in (self._channel.fileno(), *streams):
            poll.register(descriptor, select.POLLIN)
        ending = None
        while ending is None:
            for descriptor, _ in poll.poll():
                if descriptor == self._channel.fileno():
                    ending = self._hear()
                elif not _drain(descriptor, streams[descriptor]):
                    poll.unregister(descriptor)  # closed by all that had it
        for descriptor, feed in streams.items():
            _drain(descriptor, feed)
        self.bury()
        return ending

    def stop(self, after: float) -> None:
        """SIGTERM, and SIGKILL after so many seconds, for the command and all it started."""
        with self._guard:
            if not self._buried:
                with suppress(OSError):
                    self._channel.send(f"stop {after}\n".encode(), socket.MSG_DONTWAIT)

    def kill(self) -> None:
        """End the supervisor and what it should have ended: it does not do what it is told."""
        with self._guard:
            if not self._buried:
                self._strays += signal_tree(self.process.pid, signal.SIGKILL)

    def bury(self) -> None:
        """End what is left, and collect it."""
        with self._guard:
            ends_by_itself = self._buried or _ends_by_itself(self.process)
        if not ends_by_itself:
            self.kill()
        with self._guard:
            if self._buried:
                return
            self._buried = True
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(BURY_SECONDS)
            signal_each(self._strays, signal.SIGKILL)
            self._ours.close()

    def _hear(self) -> Ending | None:
        """What the supervisor says; without a word at its end, it was killed itself."""
        try:
            piece = self._channel.recv(PIECE)
        except OSError:
            piece = b""
        *lines, self._heard = (self._heard + piece).split(b"\n")
        for line in lines:
            match line.decode().split():
                case ["started", pid]:
                    self._leader = int(pid)
                case ["failed", step, number]:
                    return Ending(fault=(step, int(number)))
                case ["ended", code, stopped, left]:
                    return Ending(code=int(code), stopped=stopped == "1", left=int(left))
        if piece:
            return None
        if self._leader:
            # The kernel has killed the command with it; what else is in its group is ours to end.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._leader, signal.SIGKILL)
        return Ending()

    def forget(self) -> None:
        """In a fork of the worker: the command is not ours, and must still see its worker end."""
        if not self._buried:
            self._buried = True
            self._ours.close()


def _drain(descriptor: int, feed: Feed) -> bool:
    """Pass on what is there; False at the end of the stream."""
    with suppress(BlockingIOError):
        for _ in range(PIECES):
            if not (piece := os.read(descriptor, PIECE)):
                return False
            feed(piece)
    return True


def _ends_by_itself(process: subprocess.Popen[bytes]) -> bool:
    """It has told the end of its command: a moment later it is gone."""
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        return False
    return True


def _file() -> IO[bytes]:
    """For a text to read from, in no folder: a pipe would need somebody to fill it."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("stdin", os.MFD_CLOEXEC), "wb")
    return tempfile.TemporaryFile()


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in LIBRARIES if name in environment}


_LIVING: weakref.WeakSet[Command] = weakref.WeakSet()


def _forget_all() -> None:
    for command in list(_LIVING):
        command.forget()


os.register_at_fork(after_in_child=_forget_all)
