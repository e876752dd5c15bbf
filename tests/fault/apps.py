"""Apps that the fault tests run in processes of their own. Handlers tell what they do on stdout."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import timedelta

import rota
from rota.model.job import Job
from rota.model.retry import ONCE
from tests.fault import poison
from tests.support.family import FAMILY


def _app(**settings: object) -> rota.Rota:
    return rota.Rota(os.environ["ROTA_TEST_DATABASE"], **settings)


def tell(*words: object) -> None:
    # One write call: lines of several threads and processes do not mix.
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def ticks() -> rota.Rota:
    """Many schedules of one second; it tells of its first run."""
    app = _app(slots=20)
    told = threading.Event()

    @app.job()
    async def tick(ctx: rota.Context) -> None:
        if not told.is_set():
            told.set()
            tell("tick", os.getpid())

    for number in range(int(os.environ["ROTA_TEST_SCHEDULES"])):
        app.schedule(f"tick-{number}", job="tick", every="1s", overlap="allow", catch_up="all")
    return app


def sleeper() -> rota.Rota:
    """A job that takes until a file is there, under a short lease."""
    app = _app(lease="2s", slots=2)

    @app.job(max_attempts=1)
    def sleep(ctx: rota.Context, until: str) -> str:
        tell("start", ctx.run_id, ctx.attempt, os.getpid())
        while ctx.attempt == 1 and not os.path.exists(until):
            time.sleep(0.01)
        tell("end", ctx.run_id, ctx.attempt, os.getpid())
        return f"attempt {ctx.attempt}"

    @app.job(max_attempts=1)
    def poison(ctx: rota.Context) -> None:
        tell("start", ctx.run_id, ctx.attempt, os.getpid())
        time.sleep(600)

    @app.job()
    def ask_to_stop(ctx: rota.Context) -> None:
        """The kernel may hand a signal to any thread of a process; here it is this one."""
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    return app


def stubborn() -> rota.Rota:
    """A handler that nothing but SIGKILL ends, with a child of its own; one slot."""
    return _STUBBORN


def _stubborn() -> rota.Rota:
    app = _app(slots=1)
    app.job(timeout="4s", max_attempts=1)(hang)
    app.job(isolation="process")(after)
    return app


def hang(ctx: rota.Context) -> None:
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    ctx.logger.info("grandchild %d of %d", grandchild.pid, os.getpid())
    # Through PyDLL the interpreter's lock stays held: no Python code of this process runs on.
    ctypes.PyDLL(None).sleep(600)


def after(ctx: rota.Context) -> str:
    return "ran"


def stuck() -> rota.Rota:
    """Poison in two threads: one of them stuck is half."""
    return poison.make_app("thread", slots=2, grace="1s")


# A line of the file is written when all of the family are there.
TOLD_FAMILY = (
    FAMILY
    + """
told = [os.environ["ROTA_ATTEMPT"], str(os.getpid()), str(os.getppid()), *pids.decode().split()]
with open(sys.argv[1], "a") as file: file.write(" ".join(told) + "\\n")
while True: time.sleep(60)
"""
)


def commands() -> rota.Rota:
    """A command with a family, under a short lease; beside a thread that forks."""
    app = _app(lease="2s", slots=2, executors={"shell": True})
    told = os.environ["ROTA_TEST_FAMILY"]
    command = [sys.executable, "-I", "-S", "-c", TOLD_FAMILY, told]
    family = Job(name="family", executor="shell", spec={"command": command}, retry=ONCE)
    app.add_job(family)
    app.add_job(replace(family, name="brief", timeout=timedelta(seconds=5)))

    @app.job()
    def fork(ctx: rota.Context) -> int:
        """A copy of this worker, which must not keep the command from seeing its end."""
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
            os._exit(0)
        return pid

    return app


if "ROTA_TEST_DATABASE" in os.environ:
    _STUBBORN = _stubborn()
