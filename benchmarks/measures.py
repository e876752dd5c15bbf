"""How each thing is measured: the same for Rota, for its peers and for the limits.

A drain begins when the first handler does and ends when the database shows no unfinished job. The
database is asked only near the end, when the handlers have told that nearly all of them began.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from children import Child, Failed, ask, children, cpu_seconds, resident_mb
from peers.common import STEP
from programs import HERE, Program
from servers import Servers

READY_SECONDS = 60.0
# Longest time for one measurement; a program that needs more is named as failed.
LONGEST_SECONDS = 180.0
SETTLED_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of everything; `make bench-quick` does less."""

    jobs: int = 50_000
    singles: int = 5_000
    stamps: int = 200
    gap_seconds: float = 0.05
    idle_seconds: float = 20.0
    due_seconds: float = 60.0


# A result is a number, or several that belong together.
Values = dict[str, float]
Measure = Callable[[Program, Servers, Size], Values]


def measure_bulk(program: Program, servers: Servers, size: Size, verb: str = "bulk") -> Values:
    count = min(size.jobs, program.count or size.jobs)
    with prepared(program, servers) as url:
        said = ask(program.call(verb, url, count), LONGEST_SECONDS)
    return {"rate": count / float(said["seconds"][0])}


def measure_unnest(program: Program, servers: Servers, size: Size) -> Values:
    return measure_bulk(program, servers, size, "unnest")


def measure_single(program: Program, servers: Servers, size: Size, producers: int = 1) -> Values:
    count = min(size.singles, program.count or size.singles) * (2 if producers > 1 else 1)
    more = [producers] if producers > 1 else []
    with prepared(program, servers) as url:
        said = ask(program.call("single", url, count, *more), LONGEST_SECONDS)
    return {"rate": count / float(said["seconds"][0])}


def measure_single10(program: Program, servers: Servers, size: Size) -> Values:
    return measure_single(program, servers, size, 10)


def drain(verb: str, processes: int) -> Measure:
    def measure(program: Program, servers: Servers, size: Size) -> Values:
        count = min(size.jobs, program.count or size.jobs)
        with prepared(program, servers) as url:
            ask(program.call("bulk", url, count), LONGEST_SECONDS)
            servers.settle(url)
            with children([program.call(verb, url)] * processes) as workers:
                return {"rate": count / _drained(program, url, workers, count, servers)}

    return measure


def _drained(
    program: Program, url: str, workers: Sequence[Child], count: int, servers: Servers
) -> float:
    """Seconds from the first handler until nothing is unfinished."""
    for worker in workers:
        worker.wait_for("ready", READY_SECONDS)
    deadline = time.monotonic() + LONGEST_SECONDS
    with servers.probe(url, program.unfinished) as unfinished:
        for worker in workers:
            worker.go()
        nearly = count - STEP * len(workers)
        while (begun := sum(_seen(worker) for worker in workers)) < nearly:
            _pause(workers, deadline, 0.002, f"{begun} of {count} handlers began")
        # What the database shows is as of the moment it is asked; the answer may take longer.
        end = time.time()
        while unfinished():
            _pause(workers, deadline, 0.005, "all handlers began, some jobs are unfinished")
            end = time.time()
    return end - min(float(first) for worker in workers for first in worker.said.get("first", []))


def _seen(worker: Child) -> int:
    return int(worker.said.get("seen", ["0"])[-1])


def _pause(workers: Sequence[Child], deadline: float, seconds: float, so_far: str) -> None:
    for worker in workers:
        worker.check()
    if time.monotonic() > deadline:
        raise Failed(f"not done in time: {so_far}")
    time.sleep(seconds)


def measure_latency(program: Program, servers: Servers, size: Size) -> Values:
    with prepared(program, servers) as url, children([program.call("work", url)]) as (worker,):
        worker.wait_for("ready", READY_SECONDS)
        worker.go()
        time.sleep(SETTLED_SECONDS)
        # The first one pays for connections and imports that later ones find done.
        ask(program.call("pace", url, size.stamps + 1, size.gap_seconds), LONGEST_SECONDS)
        deadline = time.monotonic() + READY_SECONDS
        while (begun := len(worker.said.get("late", []))) <= size.stamps:
            _pause([worker], deadline, 0.01, f"{begun} of {size.stamps + 1} stamps began")
        return spread_of(worker.said["late"][1:])


def measure_own(program: Program, servers: Servers, size: Size) -> Values:
    with prepared(program, servers) as url:
        said = ask(program.call("own", url, size.stamps + 1, size.gap_seconds), LONGEST_SECONDS)
    return spread_of(said["late"][1:])


def measure_due(program: Program, servers: Servers, size: Size) -> Values:
    with prepared(program, servers) as url, children([program.call("due", url)]) as (worker,):
        worker.wait_for("late", READY_SECONDS)
        time.sleep(size.due_seconds)
        worker.check()
        return spread_of(worker.said["late"][1:])


def spread_of(texts: Sequence[str]) -> Values:
    """Milliseconds: the median, the 99th of a hundred, and every tenth for the curves."""
    late = sorted(map(float, texts))
    marks = {f"p{mark}": _at(late, mark / 100) for mark in (10, 25, 75, 90, 95)}
    return {"p50": statistics.median(late), "p99": _at(late, 0.99), **marks, "worst": late[-1]}


def _at(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def measure_idle(program: Program, servers: Servers, size: Size) -> Values:
    with prepared(program, servers) as url, children([program.call("work", url)]) as (worker,):
        worker.wait_for("ready", READY_SECONDS)
        worker.go()
        time.sleep(SETTLED_SECONDS)
        before, began = cpu_seconds(worker.pid), time.monotonic()
        time.sleep(size.idle_seconds)
        used = cpu_seconds(worker.pid) - before
        worker.check()
        return {
            "percent": 100 * used / (time.monotonic() - began),
            "mb": resident_mb(worker.pid),
        }


def herd(schedules: int) -> Measure:
    def measure(program: Program, servers: Servers, size: Size) -> Values:
        with prepared(program, servers) as url:
            said = ask(program.call("herd", url, schedules), LONGEST_SECONDS)
        return {"seconds": float(said["seconds"][0])}

    return measure


def measure_start(program: Program, servers: Servers, size: Size) -> Values:
    with servers.database(program.engine) as url:
        said = ask([sys.executable, str(HERE / "startup.py"), url], LONGEST_SECONDS)
    return {name: float(said[name][0]) for name in ("import", "help", "cli", "up")}


MEASURES: dict[str, Measure] = {
    "bulk": measure_bulk,
    "unnest": measure_unnest,
    "single": measure_single,
    "single10": measure_single10,
    "drain": drain("work", 1),
    "drain2": drain("work", 2),
    "drain4": drain("work", 4),
    "loop": drain("loop", 1),
    "loop2": drain("loop", 2),
    "latency": measure_latency,
    "own": measure_own,
    "due": measure_due,
    "idle": measure_idle,
    "start": measure_start,
    "herd": herd(10_000),
    "herd100k": herd(100_000),
}

# In a round, at moments far apart: each is over in seconds, and a disk or a core that others use
# is fast in one minute and slow in the next.
TIMES = {"single": 3, "single10": 3, "drain": 3, "drain2": 3}
# Of all programs at once: each is charged for its own processes alone.
TOGETHER = frozenset({"idle"})


@contextmanager
def prepared(program: Program, servers: Servers) -> Iterator[str]:
    """A database of its own with the program's tables in it."""
    with servers.database(program.engine) as url:
        ask(program.call("setup", url), READY_SECONDS)
        yield url
