"""Programs as child processes: what they say, what they cost, and their certain end."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PAUSE_SECONDS = 0.005
ROOT = Path(__file__).resolve().parent.parent
# Without it every start compiles what an installed program has compiled.
NOT_OF_USERS = ("PYTHONDONTWRITEBYTECODE",)


class Failed(Exception):
    """A program that cannot be measured, and why."""


class Child:
    """A program that runs, and the words it has said so far."""

    def __init__(self, command: list[str]) -> None:
        self.said: dict[str, list[str]] = {}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  `end` closes it
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name not in NOT_OF_USERS},
            # A session of its own: what it starts itself ends with it.
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, value = line.strip().partition(" ")
            self.said.setdefault(word, []).append(value)

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def wait_for(self, word: str, seconds: float) -> None:
        """Until it has said this."""
        deadline = time.monotonic() + seconds
        while word not in self.said:
            self.check()
            if time.monotonic() > deadline:
                raise Failed(f"did not say {word!r} within {seconds:.0f} s: {self.last_error()}")
            time.sleep(PAUSE_SECONDS)

    def wait(self, seconds: float) -> None:
        """Until it ends well."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"still ran after {seconds:.0f} s: {self.last_error()}") from None
        self._reader.join(5)
        self.check()

    def check(self) -> None:
        if self._process.poll():
            raise Failed(f"ended with {self._process.returncode}: {self.last_error()}")

    def last_error(self) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        faults = [line for line in lines if "rror" in line]
        return (faults or lines or ["it said nothing"])[-1]

    def end(self) -> None:
        """At once, with everything it started: its database is thrown away next."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._errors.close()


@contextmanager
def children(commands: list[list[str]]) -> Iterator[list[Child]]:
    started: list[Child] = []
    try:
        for command in commands:
            started.append(Child(command))
        yield started
    finally:
        for child in started:
            child.end()


def ask(command: list[str], seconds: float) -> dict[str, list[str]]:
    """Run a program to its end; what it said."""
    with children([command]) as (child,):
        child.wait(seconds)
        return child.said


def cpu_seconds(pid: int) -> float:
    """Of the process and of all it has started."""
    ticks = 0
    for one in family(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Memory in use; pages that several processes share are counted in each of them."""
    pages = sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in family(pid))
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def family(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
