"""The worker's side of a command: starts it, reads its output, ends it."""

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

# -I and -S: no modules of the user are imported, and the start is fast.
BOOT = "import sys; sys.path.append({!r}); from rota.executors.supervisor import main; main({})"
# A full pipe is at most so many pieces; one _drain() reads no more, so it always ends.
PIECES = 16
REAP_SECONDS = 5.0
# A Python that is linked to a shared library may need these to find it.
LIBRARIES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")

Feed = Callable[[bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a command ended.

    `code` is negative for a signal, and None if it is unknown. `fault` is why the command did not
    start, as a step (cwd, exec) and an errno. `stopped`: it was stopped before it ended. `left` is
    how many of its processes were still alive at its end, and were ended too."""

    code: int | None = None
    stopped: bool = False
    left: int = 0
    fault: tuple[str, int] | None = None


class Command:
    """A running command. Other threads may use only `stop` and `kill`."""

    def __init__(self, plan: Plan, *, kill_after: float) -> None:
        self._guard = threading.Lock()
        self._reaped = False
        self._leader = 0
        self._strays: list[Identity] = []
        self._received = b""
        # The supervisor's ends are closed here in any case, ours only if it does not start.
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
                file = theirs.enter_context(_unnamed_file())
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
                env=_library_variables(os.environ),
            )
            self._ours = ours.pop_all()
        _LIVING.add(self)
        request = marshal.dumps((plan.argv, dict(plan.environment), plan.folder, kill_after))
        with suppress(OSError):  # the supervisor has ended already; wait() reports it
            self._channel.sendall(len(request).to_bytes(HEAD, "big") + request)

    def wait(self, out: Feed, err: Feed) -> Ending:
        """Read the output until the command and all its processes have ended."""
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
                    ending = self._receive()
                elif not _drain(descriptor, streams[descriptor]):
                    poll.unregister(descriptor)  # closed by all writers
        for descriptor, feed in streams.items():
            _drain(descriptor, feed)
        self.reap()
        return ending

    def stop(self, after: float) -> None:
        """Send SIGTERM to the command's processes, and SIGKILL after so many seconds."""
        with self._guard:
            if not self._reaped:
                with suppress(OSError):
                    self._channel.send(f"stop {after}\n".encode(), socket.MSG_DONTWAIT)

    def kill(self) -> None:
        """Kill the supervisor and all processes below it: it has not carried out a stop."""
        with self._guard:
            if not self._reaped:
                self._strays += signal_tree(self.process.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Reap the supervisor; kill it if it does not end by itself."""
        with self._guard:
            ended = self._reaped or _ends_soon(self.process)
        if not ended:
            self.kill()
        with self._guard:
            if self._reaped:
                return
            self._reaped = True
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(REAP_SECONDS)
            signal_each(self._strays, signal.SIGKILL)
            self._ours.close()

    def _receive(self) -> Ending | None:
        """Read a report of the supervisor. If it ends without one, it was killed."""
        try:
            piece = self._channel.recv(PIECE)
        except OSError:
            piece = b""
        *lines, self._received = (self._received + piece).split(b"\n")
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
            # The kernel has killed the command with its supervisor, but not the rest of its group.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._leader, signal.SIGKILL)
        return Ending()

    def forget(self) -> None:
        """In a fork of the worker: close our ends, or the worker's end would go unnoticed."""
        if not self._reaped:
            self._reaped = True
            self._ours.close()


def _drain(descriptor: int, feed: Feed) -> bool:
    """Pass on available output; False at the end of the stream."""
    with suppress(BlockingIOError):
        for _ in range(PIECES):
            if not (piece := os.read(descriptor, PIECE)):
                return False
            feed(piece)
    return True


def _ends_soon(process: subprocess.Popen[bytes]) -> bool:
    """Wait briefly for a supervisor, which exits right after its report."""
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        return False
    return True


def _unnamed_file() -> IO[bytes]:
    """A file without a name, for stdin. A pipe would need a thread that writes to it."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("stdin", os.MFD_CLOEXEC), "wb")
    return tempfile.TemporaryFile()


def _library_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in LIBRARIES if name in environment}


_LIVING: weakref.WeakSet[Command] = weakref.WeakSet()


def _forget_all() -> None:
    for command in list(_LIVING):
        command.forget()


os.register_at_fork(after_in_child=_forget_all)
