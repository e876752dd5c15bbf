"""Real Rota processes, and signals sent to them."""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PATIENCE = 60.0


class Process:
    """A process that runs one of `tests.fault.apps` until it is stopped or killed."""

    def __init__(self, app: str, database: str, **environment: str) -> None:
        self.app, self.database, self.environment = app, database, environment
        self.lines: queue.Queue[str] = queue.Queue()
        self.seen: list[str] = []
        self.start()

    def start(self) -> None:
        code = f"import tests.fault.apps as apps; apps.{self.app}().run()"
        self.popen = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "ROTA_TEST_DATABASE": self.database, **self.environment},
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self.reader = threading.Thread(target=self._read, args=(self.popen.stdout,), daemon=True)
        self.reader.start()

    def _read(self, pipe: Iterator[str]) -> None:
        for line in pipe:
            self.lines.put(line.strip())

    def wait_line(self, *words: object) -> str:
        """The next line that begins with these words."""
        wanted = " ".join(map(str, words))
        while True:
            line = self.lines.get(timeout=PATIENCE)
            self.seen.append(line)
            if line.startswith(wanted):
                return line

    def signal(self, number: int) -> None:
        os.kill(self.popen.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.popen.wait(PATIENCE)

    def stop(self) -> int:
        """End it gracefully."""
        self.signal(signal.SIGTERM)
        return self.popen.wait(PATIENCE)

    def clean_up(self) -> None:
        with suppress(ProcessLookupError):
            self.signal(signal.SIGCONT)
        self.popen.kill()
        self.popen.wait(PATIENCE)
        # A process that has a copy of its output keeps the reader there, and a close would wait
        # for that.
        self.reader.join(5)
        if self.popen.stdout is not None and not self.reader.is_alive():
            self.popen.stdout.close()


@contextmanager
def processes(app: str, database: str, count: int, **environment: str) -> Iterator[list[Process]]:
    running = [Process(app, database, **environment) for _ in range(count)]
    try:
        yield running
    finally:
        for process in running:
            process.clean_up()
