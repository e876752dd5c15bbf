"""A process between a worker and a command, which ends all the command started.

The command leads its own session. On Linux every process that it starts stays a descendant of the
supervisor, even after a double fork or setsid, because the supervisor adopts orphans. On other
systems only the process group of the command is found.

    the command ends    its remaining processes have LINGER_SECONDS to end (as a `tee` at the end of
                        a pipe does), then get SIGTERM, and SIGKILL `kill_after` seconds later
    "stop SECONDS"      sent by the worker: SIGTERM for all, SIGKILL after so many seconds
    the channel closes  the worker has ended, in any way: SIGKILL for all at once

The supervisor reports the end when no process is left. It starts with every run, so it imports only
the standard library and one module of ours.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import NoReturn

from rota.executors.processes import adopt_orphans, descendants, die_with_parent

# (argv, environment, folder, kill_after), preceded by its length in eight bytes. Encoded by
# marshal: both sides run the same interpreter.
Request = tuple[tuple[bytes, ...], dict[bytes, bytes], str | None, float]

HEAD = 8
PIECE = 4096
LINUX = sys.platform == "linux"
LINGER_SECONDS = 0.5
POLL_SECONDS = 0.02  # between checks for processes that should have ended
# A process that waits inside the kernel survives SIGKILL. Its run ends after so many seconds.
GIVE_UP_SECONDS = 5.0
IGNORED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    def __init__(self, channel: int) -> None:
        self.channel, self.pid = channel, os.getpid()
        self.wake, wake = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        # Handlers, not SIG_IGN, which the command would inherit.
        for number in (*IGNORED_SIGNALS, signal.SIGCHLD):
            signal.signal(number, _ignore)
        self.leader = 0
        self.status: int | None = None  # of the command, once it has ended
        self.stopped_first = False  # a stop came before the command ended
        self.left = 0
        self.linger_until = self.kill_at = float("inf")
        self.ending = self.alone = False

    def run(self) -> None:
        argv, environment, folder, kill_after = self.receive()
        if (fault := self.start(argv, environment, folder)) is not None:
            self.send(f"failed {fault}")
            return
        release_streams()
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while self.step(kill_after):
            for descriptor, _ in poll.poll(self.pause()):
                if descriptor == self.wake:
                    with suppress(BlockingIOError):
                        os.read(self.wake, PIECE)
                elif not self.receive_stop():
                    poll.unregister(self.channel)
        self.send(f"ended {self.status} {int(self.stopped_first)} {self.left}")

    def receive(self) -> Request:
        size = int.from_bytes(self.read(HEAD), "big")
        request: Request = marshal.loads(self.read(size))
        return request

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = os.read(self.channel, min(size - len(data), 1024 * 1024))
            if not piece:
                sys.exit(1)  # the worker has ended; nothing was started
            data += piece
        return data

    def start(
        self, argv: tuple[bytes, ...], environment: dict[bytes, bytes], folder: str | None
    ) -> str | None:
        """Start the command; returns a failure as "cwd ERRNO" or "exec ERRNO".

        The worker gets the process group before the command runs, so that it can end the group
        if this process is killed."""
        failed, fail = os.pipe()
        may_go, go = os.pipe()
        # A signal between fork and exec would run our handler and be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED_SIGNALS)
        self.leader = os.fork()
        if self.leader == 0:
            os.close(go)
            exec_command(argv, environment, folder, self.pid, may_go, fail)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.close(fail)
        os.close(may_go)
        self.send(f"started {self.leader}")
        os.close(go)
        fault = os.read(failed, PIECE).decode()  # empty once exec has closed it
        os.close(failed)
        if fault:
            os.waitpid(self.leader, 0)
        return fault or None

    def step(self, kill_after: float) -> bool:
        """Reap processes and send the signals that are due; False when no process is left."""
        now = time.monotonic()
        living = self.reap()
        if self.status is not None:
            if not living or now > self.kill_at + GIVE_UP_SECONDS:
                return False
            self.linger_until = min(self.linger_until, now + LINGER_SECONDS)
            if not self.ending and now >= self.linger_until:
                self.left = len(descendants(self.pid)) or 1
                self.end(kill_after)
        if now >= self.kill_at:
            self.signal_groups(signal.SIGKILL)
        return True

    def reap(self) -> bool:
        """Reap children; True if the command or a descendant is still alive."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.leader:
                    self.status = os.waitstatus_to_exitcode(ended[1])
            return True
        return not LINUX and self.group_lives()

    def group_lives(self) -> bool:
        try:
            os.killpg(self.leader, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True

    def end(self, kill_after: float) -> None:
        self.kill_at = min(self.kill_at, time.monotonic() + kill_after)
        if not self.ending:
            self.ending = True
            self.signal_groups(signal.SIGTERM if kill_after > 0 else signal.SIGKILL)

    def signal_groups(self, number: int) -> None:
        """Signal the group of the command and the groups of its descendants.

        Groups, not processes: a process that forks and exits all the time changes its id, but not
        its group. The command or a descendant began the sessions of all these groups."""
        groups = {group for _, group, _ in descendants(self.pid)}
        # After the command is reaped, its id may be reused once its group is empty.
        if not LINUX or self.status is None:
            groups.add(self.leader)
        for group in groups - {self.pid}:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)

    def receive_stop(self) -> bool:
        """Handle a stop of the worker, or its end; False once the worker has ended."""
        piece = b""
        with suppress(ConnectionError):
            piece = os.read(self.channel, PIECE)
        if piece:
            seconds = float(piece.split()[-1])
        else:
            self.alone, seconds = True, 0.0
        self.stopped_first = self.stopped_first or self.status is None
        self.ending = self.ending and seconds > 0
        self.end(seconds)
        return bool(piece)

    def pause(self) -> float | None:
        """Milliseconds until the next step is due; None to wait for an event."""
        if self.status is not None or time.monotonic() >= self.kill_at:
            return POLL_SECONDS * 1000
        return max(0.0, self.kill_at - time.monotonic()) * 1000 if self.ending else None

    def send(self, line: str) -> None:
        if not self.alone:
            with suppress(OSError):
                os.write(self.channel, f"{line}\n".encode())


def exec_command(
    argv: tuple[bytes, ...],
    environment: dict[bytes, bytes],
    folder: str | None,
    parent: int,
    may_go: int,
    fail: int,
) -> NoReturn:
    """Execute the command, in the fork."""
    step = "exec"
    try:
        os.setsid()
        # Python ignores SIGPIPE; a command that writes to a closed pipe must end.
        for number in (*IGNORED_SIGNALS, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        die_with_parent()
        os.read(may_go, 1)  # returns when the other end is closed
        if os.getppid() != parent:
            os._exit(1)  # the supervisor was killed before die_with_parent()
        if folder is not None:
            step = "cwd"
            os.chdir(folder)
        step = "exec"
        os.execvpe(argv[0], argv, environment)
    except OSError as fault:
        os.write(fail, f"{step} {fault.errno or errno.EIO}".encode())
    finally:
        os._exit(127)


def release_streams() -> None:
    """Close our copies of the command's stdin and stdout.

    Otherwise their end would wait for us. Standard error stays open for errors of this process."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def _ignore(number: int, frame: object) -> None:
    pass


def main(channel: int) -> None:
    os.set_inheritable(channel, False)
    adopt_orphans()
    Supervisor(channel).run()
