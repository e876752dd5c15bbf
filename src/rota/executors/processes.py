"""Ending a process and everything it started.

A child leads its own session, so it cannot leave its process group, which holds the processes that
its handler started. On Linux, processes that left the group are found as descendants: a child
adopts orphans, so that they stay its descendants when their parent ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# (process id, start time): an id alone may be reused by another process.
Identity = tuple[int, str]


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent ends."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that forked it ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def die_with(pipe: int) -> None:
    """Have the kernel kill this process group when the last writer of `pipe` ends.

    It needs no thread and no GIL, and it reaches the children of the handler. PR_SET_PDEATHSIG
    would kill only the leader, and also when the thread that forked it ends.
    """
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)


def signal_tree(leader: int, number: int) -> list[Identity]:
    """Signal a leader, its group, and its other descendants; returns the latter.

    The leader must not be reaped yet: until then its id, which is the group's, is not reused.
    """
    # Find them before the signal: the descendants of a dead leader cannot be found.
    strays = [(pid, started) for pid, group, started in descendants(leader) if group != leader]
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
    signal_each(strays, number)
    return strays


def signal_each(processes: list[Identity], number: int) -> None:
    for pid, started in processes:
        with suppress(OSError, IndexError):
            if _stat(pid)[19] == started:
                os.kill(pid, number)


def descendants(root: int) -> list[tuple[int, int, str]]:
    """(process id, group, start time) of all descendants; none without /proc."""
    children: dict[int, list[tuple[int, int, str]]] = {}
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for pid in pids:
        with suppress(OSError, IndexError):  # it has ended meanwhile
            stat = _stat(pid)
            children.setdefault(int(stat[1]), []).append((pid, int(stat[2]), stat[19]))
    result, pending = [], [root]
    while pending:
        for child in children.pop(pending.pop(), ()):
            result.append(child)
            pending.append(child[0])
    return result


def has_exited(pid: int, *, within: float) -> bool:
    """Wait for a child process to end, without reaping it; False if it has not."""
    if not hasattr(os, "waitid"):
        return True
    until, pause = time.monotonic() + within, 0.0005
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        while os.waitid(os.P_PID, pid, flags) is None:
            if time.monotonic() >= until:
                return False
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
    except ChildProcessError:
        pass
    return True


def reap_orphans() -> bool:
    """Reap children that have ended; True if others are still alive."""
    if not hasattr(os, "waitid"):
        return False
    try:
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            os.waitpid(ended.si_pid, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def ending(code: int) -> str:
    """Describes a return code; negative for a signal."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = "; was the machine out of memory?" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"


def _stat(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat after the name: state, ppid, pgrp, and so on.

    The name itself may hold spaces."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()
