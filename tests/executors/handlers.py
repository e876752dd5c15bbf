"""What the child processes of these tests run: the good, the careless and the hostile."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import hashlib
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rota.executors.context import Context
from rota.model.verdicts import Cancel, Retry, Snooze

LOGGER = logging.getLogger(__name__)
SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(1000)"]
# Says that it is deaf before it is, so that no signal comes too early.
DEAF = [
    sys.executable, "-S", "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('deaf', flush=True); time.sleep(1000)",
]  # fmt: skip


@dataclass
class Order:
    id: uuid.UUID
    at: datetime


# The good


def pid() -> int:
    return os.getpid()


def ping(ctx: Context) -> None:
    ctx.progress(1)


def describe(ctx: Context) -> list[Any]:
    return [ctx.job, ctx.queue, ctx.run_id, ctx.attempt, ctx.scheduled_at.isoformat(), ctx.args]


def rich(order: Order, when: datetime) -> list[str]:
    return [type(order).__name__, type(order.id).__name__, when.isoformat()]


def snooze() -> Snooze:
    return Snooze("30s")


def cancel() -> Cancel:
    return Cancel("nothing to do")


def retry() -> None:
    raise Retry(after="5m", reason="not yet")


async def later() -> str:
    await asyncio.sleep(0)
    return "later"


async def sleep_async(ctx: Context) -> None:
    ctx.progress(1)
    await asyncio.sleep(1000)


def fail() -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise ValueError("outer") from error


def talk(ctx: Context) -> None:
    print("one")
    ctx.logger.warning("two %s", "words")
    print("three", file=sys.stderr)
    subprocess.run(["echo", "four"], check=True)
    print("five, ", end="")
    ctx.logger.info("six")
    os.write(1, b"seven\xff\n")
    print("eight", end="")


def report(ctx: Context, steps: int) -> None:
    for step in range(1, steps + 1):
        ctx.progress(step, steps)


def hold_lock(ctx: Context) -> int:
    with ctx.lock("shop", "10s") as lock:
        lock.extend("20s")
        ctx.extend_lease()
        return lock.token


def echo(value: Any) -> Any:
    return value


def use_processes(numbers: list[int]) -> list[Any]:
    fork = multiprocessing.get_context("fork")
    with fork.Pool(2) as pool:
        mapped = pool.map(abs, numbers)
    sleeper = fork.Process(target=time.sleep, args=(1000,))
    sleeper.start()
    sleeper.terminate()
    sleeper.join()
    return [os.getpid(), mapped, sleeper.exitcode]


class Task:
    """What a decorator makes of a function: callable, and not a function."""

    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, **args: Any) -> Any:
        return self.function(**args)


@Task
async def decorated(at: datetime) -> str:
    return at.isoformat()


# The patient: they wait until they are ended


def read_and_wait(ctx: Context) -> None:
    ctx.progress(os.getpid())
    print("read", len(ctx.storage.read("long")))
    print("heard", ctx.wait(1000))


def wait_politely(ctx: Context) -> None:
    ctx.progress(1)
    assert ctx.wait(1000)


def finish_deaf_to_stop(ctx: Context) -> str:
    ctx.progress(1)
    while ctx.stop_reason is None:
        time.sleep(0.001)
    return "finished all the same"


def sleep_with_cleanup(ctx: Context, path: str) -> None:
    try:
        ctx.progress(1)
        time.sleep(1000)
    finally:
        with open(path, "w") as file:
            file.write("cleaned up")


def swallow_everything(ctx: Context) -> None:
    ctx.progress(1)
    while True:
        with suppress(BaseException):
            time.sleep(1000)


def ignore_sigterm(ctx: Context) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctx.progress(1)
    time.sleep(1000)


def compute_in_c(ctx: Context) -> None:
    ctx.progress(1)
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 2**31 - 1)


def hold_the_gil(ctx: Context) -> None:
    ctx.progress(1)
    while True:
        ctypes.PyDLL(None).sleep(1000)


def hold_the_gil_with_a_child(ctx: Context) -> None:
    started = subprocess.Popen(SLEEPER)
    print("pids", os.getpid(), started.pid)
    ctx.progress(1)
    ctypes.PyDLL(None).sleep(1000)


def print_for_ever(ctx: Context) -> None:
    ctx.progress(1)
    while True:
        print("x" * 100)


def have_a_family(ctx: Context) -> None:
    """A child that ignores SIGTERM, one in another session, and a daemon that forked twice."""
    deaf = subprocess.Popen(DEAF, stdout=subprocess.PIPE)
    assert deaf.stdout is not None
    deaf.stdout.readline()
    stray = subprocess.Popen(SLEEPER, start_new_session=True)
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writer, str(os.getpid()).encode())
            time.sleep(1000)
        os._exit(0)
    os.wait()
    daemon = int(os.read(reader, 20))
    print("pids", deaf.pid, stray.pid, daemon)
    ctx.progress(1)
    time.sleep(1000)


# The careless: they leave things behind


def leave_thread() -> int:
    threading.Thread(target=time.sleep, args=(1000,), name="left").start()
    return os.getpid()


def leave_process() -> list[int]:
    return [os.getpid(), subprocess.Popen(SLEEPER).pid]


def leave_zombie() -> int:
    started = subprocess.Popen(["true"])
    os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
    return os.getpid()


def make_a_mess(folder: str) -> int:
    os.chdir(folder)
    os.environ["MESS"] = "yes"
    os.umask(0o777)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.alarm(1000)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    return os.getpid()


def look_around() -> list[Any]:
    mask = os.umask(0)
    os.umask(mask)
    print("heard")
    usr1 = signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    term = callable(signal.getsignal(signal.SIGTERM))
    return [os.getpid(), os.getcwd(), os.environ.get("MESS"), mask, usr1, term, signal.alarm(0)]


def close_output() -> int:
    os.close(1)
    return os.getpid()


def use_old_context(ctx: Context) -> str:
    """Keeps its context, and uses that of an earlier call."""
    kept = globals().setdefault("KEPT", [])
    kept.append(ctx)
    if len(kept) == 1:
        return "kept"
    try:
        kept[0].progress(99)
    except Exception as error:
        return str(error)
    return "it still works"


# The hostile


def exit_hard() -> None:
    os._exit(3)


def exit_softly() -> None:
    sys.exit(4)


def interrupt() -> None:
    raise KeyboardInterrupt


def crash() -> None:
    ctypes.string_at(0)


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def terminate_self() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1000)


def recurse() -> None:
    recurse()


def close_everything() -> None:
    os.closerange(0, 4096)


def replace_everything(path: str) -> None:
    """Every number that was ours is now the user's file."""
    os.closerange(0, 4096)
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    for number in range(64):
        if number != file:
            os.dup2(file, number)


def babble_on_the_channel() -> None:
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.write(int(name), b"not a message\n")
        except OSError:
            pass
    time.sleep(1000)


def fork_and_return() -> int:
    """Both copies return; only one of them may answer."""
    original = os.getpid()
    if os.fork():
        os.wait()
    return original


def fork_and_fail() -> str:
    if os.fork() == 0:
        raise ValueError("in the fork")
    os.wait()
    return "original"


def print_one_endless_line() -> None:
    for _ in range(1_000):
        os.write(1, b"y" * 1_000)
    print()


def print_many_lines() -> None:
    for number in range(12_000):
        print(number)
