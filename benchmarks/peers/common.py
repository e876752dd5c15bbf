"""What every program of the benchmark has in common: its verbs, its gate, and its counting handler.

A program is started as `python program.py VERB URL [COUNT] [MORE]` and speaks on stdout:

    version            the version of what is measured
    setup URL          makes the tables
    bulk URL COUNT     enqueues no-ops in bulk              -> seconds S
    single URL COUNT   enqueues no-ops, a transaction each  -> seconds S
    pace URL COUNT GAP enqueues stamps, GAP seconds apart
    work URL           a worker, until it is killed         -> ready; then, after a line on stdin:
                                                               first T, seen N, late MS
    own URL COUNT GAP  pace and work in one process         -> late MS
    loop URL           claims and settles, without a worker -> as work
    due URL            a schedule of each second            -> late MS
    herd URL COUNT     fires COUNT schedules at once        -> seconds S

`first` is when the first handler began, `seen` how many have begun, `late` how long a stamp took
from just before its enqueue to its handler.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable

# Handlers tell of every STEP-th call: often enough to know when the end is near.
STEP = 500


def say(word: str, value: object = "") -> None:
    # One write: handlers speak in threads, and a line must stay whole.
    sys.stdout.write(f"{word} {value}\n")
    sys.stdout.flush()


def gate() -> None:
    """Everything that is not work comes before; the runner opens all gates at once."""
    say("ready")
    sys.stdin.readline()


class Seen:
    """The body of a no-op: counts its calls (safe in threads) and tells of some."""

    def __init__(self) -> None:
        self._next = itertools.count(1).__next__

    def begin(self) -> None:
        """A loop begins with its first claim, not with what comes after it."""
        say("first", time.time())

    def __call__(self) -> None:
        number = self._next()
        if number == 1:
            say("first", time.time())
        elif number % STEP == 0:
            say("seen", number)


def stamp(sent: float) -> None:
    """The body of a stamp: tells how long ago it was enqueued."""
    say("late", (time.time() - sent) * 1000)


class Timed:
    """Tells how long its block took."""

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(self, *fault: object) -> None:
        if fault[0] is None:
            say("seconds", time.perf_counter() - self.began)


def pace(enqueue: Callable[[float], object], count: int, gap: float) -> None:
    for _ in range(count):
        enqueue(time.time())
        time.sleep(gap)


def main(verbs: dict[str, Callable[..., object]], arguments: list[str] | None = None) -> None:
    """Call the verb that was asked for, its numbers as numbers."""
    verb, *told = sys.argv[1:] if arguments is None else arguments
    verbs[verb](*[_value(one) for one in told])


def _value(text: str) -> str | int | float:
    if text.isdigit():
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text
