"""A process that has imported everything once and forks children on request.

To start Python and import Rota takes half a second, a fork takes milliseconds: that is what makes
thousands of kills affordable. The zygote itself has one thread and opens no database, so nothing
is carried into a child that must not be. When its owner goes away it kills its children and ends.

Requests and notices are lines of JSON on a socket. Signals go through the zygote: it knows which
of its children live, so none ever reaches a stranger that was given a dead child's number.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

PATIENCE = 60.0
ROOT = Path(__file__).resolve().parents[2]
# Imported before the first fork. What a child imports itself it pays for at every start.
WARM = ("psycopg", "asyncio", "getpass", "tests.fault.serve", "rota.app", "rota.life",
        "rota.storage.postgres.engine", "rota.storage.sqlite.engine", "rota.storage.sqlite.wake",
        "rota.storage.duckdb.engine", "rota.flow.control", "rota.flow.service",
        "rota.executors.event_loop", "rota.executors.python", "rota.executors.registry",
        "rota.executors.scripts", "rota.model.cron", "rota.model.environment")  # fmt: skip
_PR_SET_PDEATHSIG = 1


class Child:
    """A forked process, as its owner sees it."""

    def __init__(self, zygote: Zygote, number: int, name: str) -> None:
        self.zygote, self.number, self.name = zygote, number, name
        self.pid = 0
        self.code: int | None = None  # what it exited with; minus the signal that ended it
        self.born, self.ended = threading.Event(), threading.Event()

    def signal(self, number: int) -> None:
        """Nothing happens if it has ended."""
        self.zygote.send({"do": "signal", "child": self.number, "signal": int(number)})

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """SIGTERM; what it exited with."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self, seconds: float = PATIENCE) -> int:
        if not self.ended.wait(seconds):
            self.signal(signal.SIGUSR1)  # what its threads do goes to the log
            self.ended.wait(1.0)
            raise AssertionError(
                f"{self.name} (process {self.pid}) runs on after {seconds} s; "
                f"its stacks are in {self.zygote.log}"
            )
        assert self.code is not None
        return self.code

    @property
    def alive(self) -> bool:
        return not self.ended.is_set()


class Zygote:
    """The owner's end. `log` gets what the children print."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._children: list[Child] = []
        self._guard = threading.Lock()
        self._socket, theirs = socket.socketpair()
        path = os.pathsep.join([str(ROOT), *sys.path])  # the Rota that we have is the one tested
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fault.zygote", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path},
            )
        theirs.close()
        self._lines = self._socket.makefile("r")
        self._reader = threading.Thread(target=self._hear, name="zygote", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.close()

    def fork(
        self,
        name: str,
        target: str,
        /,
        *,
        environment: Mapping[str, str] | None = None,
        **told: Any,
    ) -> Child:
        """A child that calls `target` ("module:function") with what is told, and then exits."""
        with self._guard:
            child = Child(self, len(self._children), name)
            self._children.append(child)
        self.send(
            {
                "do": "fork",
                "child": child.number,
                "target": target,
                "environment": dict(environment or {}),
                "told": told,
            }
        )
        if not child.born.wait(PATIENCE):
            raise AssertionError(f"{name} was not born; the zygote: {self._process.poll()}")
        return child

    def send(self, request: Mapping[str, Any]) -> None:
        with self._guard:
            self._socket.sendall(json.dumps(request).encode() + b"\n")

    def close(self) -> None:
        """Kill what still runs."""
        self._socket.shutdown(socket.SHUT_WR)
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self._lines.close()
        self._socket.close()

    def _hear(self) -> None:
        for line in self._lines:
            notice = json.loads(line)
            child = self._children[notice["child"]]
            if notice["what"] == "born":
                child.pid = notice["pid"]
                child.born.set()
            else:
                child.code = notice["code"]
                child.ended.set()


# The zygote's own end


class Parent:
    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.numbers: dict[int, int] = {}  # of living children, by process id
        self.wake_read, self.wake_write = os.pipe()
        for descriptor in (self.wake_read, self.wake_write):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner, who then closes
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        # For the children: a request to stop waits until they are ready to hear it.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def serve(self) -> None:
        rest = b""
        ears = select.poll()  # not select(): a descriptor may have a large number
        ears.register(self.channel, select.POLLIN)
        ears.register(self.wake_read, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in ears.poll()}
            if self.wake_read in ready:
                os.read(self.wake_read, 65_536)
                self.bury()
            if self.channel.fileno() in ready:
                piece = self.channel.recv(65_536)
                if not piece:
                    self.kill_all()
                    return
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    self.obey(json.loads(line))

    def obey(self, request: dict[str, Any]) -> None:
        if request["do"] == "fork":
            self.fork(request)
        else:
            for pid, number in self.numbers.items():
                if number == request["child"]:
                    os.kill(pid, request["signal"])

    def fork(self, request: dict[str, Any]) -> None:
        pid = os.fork()
        if pid == 0:
            self.begin_child(request)
        self.numbers[pid] = request["child"]
        self.tell(what="born", child=request["child"], pid=pid)

    def begin_child(self, request: dict[str, Any]) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self.channel.close()
            os.close(self.wake_read)
            os.close(self.wake_write)
            die_with_parent()
            faulthandler.register(signal.SIGUSR1)
            os.environ.update(request["environment"])
            module, _, function = request["target"].partition(":")
            code = getattr(importlib.import_module(module), function)(**request["told"]) or 0
        except SystemExit as asked:
            code = asked.code if isinstance(asked.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def bury(self) -> None:
        while self.numbers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            self.tell(what="ended", child=self.numbers.pop(pid), code=code)

    def kill_all(self) -> None:
        for pid in self.numbers:
            os.kill(pid, signal.SIGKILL)
        for pid in self.numbers:
            os.waitpid(pid, 0)

    def tell(self, **notice: Any) -> None:
        self.channel.sendall(json.dumps(notice).encode() + b"\n")


def die_with_parent() -> None:
    """Also a zygote that is killed leaves nobody behind, where the system can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    for module in WARM:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what is there already is never looked at again, and its pages stay shared
    Parent(socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
