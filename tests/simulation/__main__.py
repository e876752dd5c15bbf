"""Replay a seed, or try many: python -m tests.simulation 42, or --seeds 20000 --from 0."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from functools import partial

from tests.simulation.history import Failed, History
from tests.simulation.planted import PLANTED
from tests.simulation.scenario import simulate

TOLD_EVERY = 500


def main() -> int:
    """0 if no promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="replay this one and print its history")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many to try")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first to try")
    parser.add_argument("--planted", choices=PLANTED, help="put this bug in, to see it found")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # a jumping clock is loud, and here it jumps all the time
    bug = PLANTED.get(arguments.planted)
    try_seed = partial(simulate, plant=bug and bug.plant, focus=bug and bug.focus)
    if arguments.seed is not None:
        return replay(arguments.seed, try_seed)
    return try_many(range(arguments.first, arguments.first + arguments.seeds), try_seed)


def replay(seed: int, try_seed: Callable[[int], History]) -> int:
    try:
        print("\n".join(try_seed(seed).lines))
    except Failed as failed:
        print(failed)
        return 1
    return 0


def try_many(seeds: range, try_seed: Callable[[int], History]) -> int:
    failures, started = 0, time.monotonic()
    for tried, seed in enumerate(seeds, 1):
        try:
            try_seed(seed)
        except Failed as failed:
            failures += 1
            first_line = str(failed.violation).partition("\n")[0]
            print(f"seed {seed}: {first_line}", flush=True)
        if tried % TOLD_EVERY == 0 or tried == len(seeds):
            rate = tried / (time.monotonic() - started)
            print(f"{tried} seeds, {failures} failed, {rate:.1f} a second", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
