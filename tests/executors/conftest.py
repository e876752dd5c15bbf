"""Contexts with a port that remembers, and handlers that run in real child processes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.executors.context import Context
from rota.executors.python import PythonExecutor
from rota.model.job import Job
from rota.model.outcome import Outcome

HANDLERS = "tests.executors.handlers"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Port:
    """Stands in for the worker: keeps what it is told and answers what it is asked."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}
        self.shown = threading.Event()

    def __call__(self, request: str, params: dict[str, Any]) -> Any:
        self.told.append((request, params))
        if request == "progress":
            self.shown.set()
        answer = self.answers.get(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def lines(self) -> list[str]:
        return [params["text"] for request, params in self.told if request == "log"]

    @property
    def progress(self) -> list[float]:
        return [params["done"] for request, params in self.told if request == "progress"]


class Attempt:
    """One run of a handler, begun in a thread as a worker would."""

    def __init__(self, context: Context, port: Port, outcome: Future[Outcome]) -> None:
        self.context, self.port, self._outcome = context, port, outcome

    def working(self) -> Attempt:
        """Wait until the handler has shown progress."""
        assert self.port.shown.wait(20), "the handler did not start"
        return self

    def stop(self, reason: str) -> Attempt:
        self.context.stop(reason)
        return self

    @property
    def outcome(self) -> Outcome:
        return self._outcome.result(60)


def make_context(
    function: str = "",
    args: dict[str, Any] | None = None,
    *,
    isolation: str = "process",
    job: str | None = None,
    spec: dict[str, Any] | None = None,
    port: Port | None = None,
    timeout: timedelta | None = None,
    description: str = "",
) -> Context:
    definition = Job(
        name=job or function or "job",
        spec=spec or {"function": f"{HANDLERS}:{function}"},
        isolation=isolation,
        description=description,
    )
    return Context(
        definition=definition,
        run_id="run-1",
        attempt=1,
        args=args or {},
        scheduled_at=NOON,
        queue="default",
        port=port or Port(),
        timeout=timeout,
    )


Begin = Callable[..., Attempt]


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture(scope="module")
def executor(threads: ThreadPoolExecutor) -> Iterator[PythonExecutor]:
    """Closed before the threads: then none of them waits for a handler for ever."""
    made = PythonExecutor(kill_after=0.3)
    yield made
    made.close()


@pytest.fixture
def begin(executor: PythonExecutor, threads: ThreadPoolExecutor) -> Begin:
    def run(function: str = "", args: dict[str, Any] | None = None, **options: Any) -> Attempt:
        port = options.setdefault("port", Port())
        context = make_context(function, args, **options)
        return Attempt(context, port, threads.submit(executor.run, context))

    return run


@pytest.fixture
def alone(executor: PythonExecutor) -> None:
    """No child is left of earlier tests: the next call starts one, and later ones share it."""
    executor.retire()


def is_gone(pid: int) -> bool:
    """Ended, or a zombie that its new parent has not collected yet."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(happens: Callable[[], bool], seconds: float = 20.0) -> bool:
    """For ends of other processes, which nothing announces."""
    until = time.monotonic() + seconds
    while not happens():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def children_of(pid: int) -> set[int]:
    found = set()
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            found |= {int(word) for word in file.read().split()}
    return found
