"""Handlers that do what no handler should, and apps that serve them beside good ones.

Each writes down that it began, to a file outside the database, before it does its worst.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import rota
from tests.fault.notes import Notebook

LINES = 1_000_000
ERROR_BYTES = 100 * 1024 * 1024
BOMB_BYTES = 2**62  # more than there can be anywhere
TIMEOUT = "2s"

Poison = Callable[[rota.Context], object]


def began(ctx: rota.Context, **facts: object) -> None:
    notebook = Notebook(os.environ["ROTA_TEST_NOTES"], ctx.job)
    notebook.write("start", run=ctx.run_id, attempt=ctx.attempt, pid=os.getpid(), **facts)
    notebook.close()


def good(ctx: rota.Context) -> str:
    return f"{ctx.attempt}"


# Ends that are not exceptions


def leave(ctx: rota.Context) -> None:
    began(ctx)
    sys.exit(3)


def exit_at_once(ctx: rota.Context) -> None:
    began(ctx)
    os._exit(3)


def segfault(ctx: rota.Context) -> None:
    began(ctx)
    ctypes.string_at(0)


def kill_parent(ctx: rota.Context) -> None:
    """In a child process the parent is the worker itself."""
    began(ctx)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


# No end at all


def loop(ctx: rota.Context) -> None:
    began(ctx)
    while True:
        pass


def hang(ctx: rota.Context) -> None:
    """In C, without the interpreter's lock: others go on, but no exception ever gets in."""
    began(ctx)
    while True:
        ctypes.CDLL(None).sleep(600)


def hold(ctx: rota.Context) -> None:
    """In C, with the interpreter's lock: no Python of this process goes on."""
    began(ctx)
    while True:
        ctypes.PyDLL(None).sleep(600)


# Too much


def eat_memory(ctx: rota.Context) -> None:
    """Without a limit on the process: the others in it would meet that as well."""
    began(ctx)
    bytearray(BOMB_BYTES)


def talk(ctx: rota.Context) -> None:
    began(ctx)
    for number in range(LINES):
        print(number)
    raise RuntimeError("said too much")


def log(ctx: rota.Context) -> None:
    began(ctx)
    for number in range(LINES // 50):
        ctx.logger.info("%d", number)
    raise RuntimeError("logged too much")


def complain(ctx: rota.Context) -> None:
    began(ctx)
    raise RuntimeError("x" * ERROR_BYTES)


def recurse(ctx: rota.Context) -> None:
    began(ctx)

    def deeper() -> None:
        deeper()

    deeper()


# What is not its own


def close_all(ctx: rota.Context) -> None:
    began(ctx)
    os.closerange(0, 4096)
    raise RuntimeError("closed everything")


def fork(ctx: rota.Context) -> None:
    """Forks that go on as if they were the original, and one that stays for ever."""
    sleeper = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    began(ctx, sleeper=sleeper.pid)
    for _ in range(3):
        if os.fork() == 0:
            return
    raise RuntimeError("forked")


def move(ctx: rota.Context) -> None:
    began(ctx)
    os.chdir("/")
    os.environ["HOME"] = "/nowhere"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    raise RuntimeError("moved")


# What each of them leaves as the reason of its death; in a process of its own, and in a thread.
# The deadly ones end or block the worker itself when they run in a thread of it.
IN_PROCESS: dict[str, str] = {
    "leave": "SystemExit: 3",
    "exit_at_once": "child process exited with code 3",
    "segfault": "child process was killed by SIGSEGV",
    "loop": "timed out after 2s",
    "hang": "timed out after 2s",
    "hold": "timed out after 2s",
    "eat_memory": "MemoryError",
    "talk": "RuntimeError: said too much",
    "log": "RuntimeError: logged too much",
    "complain": "RuntimeError: xxxx",
    "recurse": "RecursionError: maximum recursion depth exceeded",
    "close_all": "the handler closed the descriptors of its child process",
    "fork": "RuntimeError: forked",
    "move": "RuntimeError: moved",
}
IN_THREAD: dict[str, str] = {
    "leave": "SystemExit: 3",
    "hang": "timed out after 2s",
    "loop": "timed out after 2s",
    "eat_memory": "MemoryError",
    "talk": "RuntimeError: said too much",
    "log": "RuntimeError: logged too much",
    "complain": "RuntimeError: xxxx",
    "recurse": "RecursionError: maximum recursion depth exceeded",
    "fork": "RuntimeError: forked",
    "move": "signal only works in main thread",
}
DEADLY = ("exit_at_once", "segfault", "hold", "close_all")
ENDLESS = ("loop", "hang", "hold")


def serve(isolation: str, **settings: Any) -> None:
    """A worker in the foreground, as `app.run` makes it, with every poison as a job."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # the zygote blocked it
    make_app(isolation, **settings).run()


def make_app(isolation: str, **settings: Any) -> rota.Rota:
    app = rota.Rota(os.environ["ROTA_TEST_DATABASE"], **settings)
    app.job(isolation="thread")(good)
    for name in {*IN_PROCESS, *DEADLY, "kill_parent"}:
        limit = TIMEOUT if name in ENDLESS else None
        app.job(isolation=isolation, timeout=limit, max_attempts=1)(globals()[name])
    app.job("stay", isolation=isolation)(hang)
    return app
