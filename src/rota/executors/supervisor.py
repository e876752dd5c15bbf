"""A process of our own between a worker and a command: it outlives both, and leaves nothing alive.

The command leads a session of its own. Whatever it starts, also in another session and by a double
fork, stays a descendant of this process, which adopts orphans (Linux; elsewhere the command's
process group is all that can be found). So:

    the command ends    what it left behind may end by itself for a moment (a `tee` at the end of a
                        pipe does), then gets SIGTERM, and SIGKILL `kill_after` seconds later
    the worker says     "stop SECONDS": SIGTERM for all of them, SIGKILL after so many seconds
    the worker is gone  the channel closes, however it died: SIGKILL for all of them at once

The end is told when nothing is left. Only the standard library and one module of ours are
imported: this starts with every run.
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

# What arrives here: (argv, environment, folder, kill_after), by marshal, which only needs to be
# understood by the same interpreter; its length in eight bytes before it.
Request = tuple[tuple[bytes, ...], dict[bytes, bytes], str | None, float]

HEAD = 8
PIECE = 4096
LINUX = sys.platform == "linux"
LINGER_SECONDS = 0.5
LOOK_SECONDS = 0.02  # between two looks at processes that should be gone
# A process that waits inside the kernel cannot even be killed: its run must end nevertheless.
GIVE_UP_SECONDS = 5.0
DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    def __init__(self, channel: int) -> None:
        self.channel, self.pid = channel, os.getpid()
        self.wake, wake = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        # Handlers, not SIG_IGN: that would be inherited by the command.
        for number in (*DEAF_TO, signal.SIGCHLD):
            signal.signal(number, _nothing)
        self.leader = 0
        self.status: int | None = None  # of the command, once it has ended
        self.told_to_stop = False  # before the command ended
        self.left = 0
        self.linger_until = self.kill_at = float("inf")
        self.ending = self.alone = False

    def run(self) -> None:
        argv, environment, folder, kill_after = self.receive()
        if (fault := self.start(argv, environment, folder)) is not None:
            self.tell(f"failed {fault}")
            return
        release_streams()
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while self.look(kill_after):
            for descriptor, _ in poll.poll(self.pause()):
                if descriptor == self.wake:
                    with suppress(BlockingIOError):
                        os.read(self.wake, PIECE)
                elif not self.hear():
                    poll.unregister(self.channel)
        self.tell(f"ended {self.status} {int(self.told_to_stop)} {self.left}")

    def receive(self) -> Request:
        size = int.from_bytes(self.read(HEAD), "big")
        request: Request = marshal.loads(self.read(size))
        return request

    def read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = os.read(self.channel, min(size - len(found), 1024 * 1024))
            if not piece:
                sys.exit(1)  # the worker is gone, and nothing has begun
            found += piece
        return found

    def start(
        self, argv: tuple[bytes, ...], environment: dict[bytes, bytes], folder: str | None
    ) -> str | None:
        """Start the command; what failed, as "cwd ERRNO" or "exec ERRNO". The worker knows its
        group before it does anything: whenever we are killed, somebody can end what it started."""
        failed, fail = os.pipe()
        may_go, go = os.pipe()
        # A signal that comes between fork and exec would run a handler of ours, and be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, DEAF_TO)
        self.leader = os.fork()
        if self.leader == 0:
            os.close(go)
            become(argv, environment, folder, self.pid, may_go, fail)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.close(fail)
        os.close(may_go)
        self.tell(f"started {self.leader}")
        os.close(go)
        fault = os.read(failed, PIECE).decode()  # empty once exec has closed it
        os.close(failed)
        if fault:
            os.waitpid(self.leader, 0)
        return fault or None

    def look(self, kill_after: float) -> bool:
        """Collect what has ended, and do what is due; False when nothing is left."""
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
            self.blow(signal.SIGKILL)
        return True

    def reap(self) -> bool:
        """True if anything that descends from the command is still alive."""
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
            self.blow(signal.SIGTERM if kill_after > 0 else signal.SIGKILL)

    def blow(self, number: int) -> None:
        """Signal the command's group, and those of whoever left it: by groups, because a process
        that forks and ends all the time is never where it was last seen, but stays in its group.
        All of these groups are in sessions that the command, or a descendant, began."""
        groups = {group for _, group, _ in descendants(self.pid)}
        # Once the command is collected, its id is that of its group only while that has members.
        if not LINUX or self.status is None:
            groups.add(self.leader)
        for group in groups - {self.pid}:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)

    def hear(self) -> bool:
        """What the worker says; False if there is none any more."""
        piece = b""
        with suppress(ConnectionError):
            piece = os.read(self.channel, PIECE)
        if piece:
            seconds = float(piece.split()[-1])
        else:
            self.alone, seconds = True, 0.0
        self.told_to_stop = self.told_to_stop or self.status is None
        self.ending = self.ending and seconds > 0
        self.end(seconds)
        return bool(piece)

    def pause(self) -> float | None:
        """Milliseconds until there is something to do without being told."""
        if self.status is not None or time.monotonic() >= self.kill_at:
            return LOOK_SECONDS * 1000
        return max(0.0, self.kill_at - time.monotonic()) * 1000 if self.ending else None

    def tell(self, line: str) -> None:
        if not self.alone:
            with suppress(OSError):
                os.write(self.channel, f"{line}\n".encode())


def become(
    argv: tuple[bytes, ...],
    environment: dict[bytes, bytes],
    folder: str | None,
    parent: int,
    may_go: int,
    fail: int,
) -> NoReturn:
    """In the fork: be the command."""
    step = "exec"
    try:
        os.setsid()
        # Python ignores SIGPIPE; a program that writes to a closed pipe is to end.
        for number in (*DEAF_TO, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        die_with_parent()
        os.read(may_go, 1)  # nothing, once the other end is closed
        if os.getppid() != parent:
            os._exit(1)  # it was killed before we asked to die with it
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
    """The command has its own copies; its end of input must not wait for ours. Standard error
    stays: an error of this process is worth to be read."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)


def _nothing(number: int, frame: object) -> None:
    pass


def main(channel: int) -> None:
    os.set_inheritable(channel, False)
    adopt_orphans()
    Supervisor(channel).run()
