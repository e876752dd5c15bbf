"""How fast the next occurrence is found, beside cronsim in the same process.

Each round walks from one occurrence to the next, with both libraries in turn and in alternating
order. Nothing is memoised on either side. Shown is the median over the rounds.

    python benchmarks/cron.py [rounds]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from statistics import median
from time import perf_counter
from zoneinfo import ZoneInfo

from cronsim import CronSim

from rota.model.cron import Cron

ZONE = ZoneInfo("Europe/Berlin")
START = datetime(2000, 1, 1, tzinfo=ZONE)
WANTED_RATIO = 1.5
ROUNDS = 9
# Occurrences in one walk, and walks in one round. Leap days end in 2096.
WALKS = {
    "*/5 * * * *": (2_000, 1),
    "0 3 * * *": (1_000, 1),
    "0 0 29 2 *": (24, 10),
    "*/15 30 2 * * *": (1_500, 1),
}


def walk_rota(expression: str, count: int) -> datetime:
    cron, moment = Cron.parse(expression), START
    for _ in range(count):
        following = cron.next_after(moment, ZONE)
        assert following is not None, expression
        moment = following
    return moment


def walk_cronsim(expression: str, count: int) -> datetime:
    occurrences, moment = CronSim(expression, START), START
    for _ in range(count):
        moment = next(occurrences)
    return moment


def microseconds(walk: Callable[[str, int], datetime], expression: str) -> float:
    """Time of one occurrence, the parsing spread over the walk."""
    count, walks = WALKS[expression]
    begun = perf_counter()
    for _ in range(walks):
        walk(expression, count)
    return (perf_counter() - begun) / (count * walks) * 1e6


def main(rounds: int) -> int:
    print(f"{'expression':<18}{'rota':>10}{'cronsim':>10}{'ratio':>8}   (µs, {rounds} rounds)")
    slow = False
    for expression in WALKS:
        times: dict[Callable[[str, int], datetime], list[float]] = {}
        for number in range(rounds):
            both = (walk_rota, walk_cronsim) if number % 2 else (walk_cronsim, walk_rota)
            for walk in both:
                times.setdefault(walk, []).append(microseconds(walk, expression))
        ours, theirs = median(times[walk_rota]), median(times[walk_cronsim])
        ratio = median(b / a for a, b in zip(times[walk_rota], times[walk_cronsim], strict=True))
        slow = slow or ratio < WANTED_RATIO
        print(f"{expression:<18}{ours:>10.2f}{theirs:>10.2f}{ratio:>8.2f}")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
