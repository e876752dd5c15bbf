"""Replay a seed, or try many: python -m tests.simulation 42, or --seeds 20000 --from 0."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.simulation.history import Failed
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
    plant = PLANTED[arguments.planted] if arguments.planted else None
    if arguments.seed is not None:
        try:
            print("\n".join(simulate(arguments.seed, plant).lines))
        except Failed as failed:
            print(failed)
            return 1
        return 0
    failures, started = 0, time.monotonic()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        try:
            simulate(seed, plant)
        except Failed as failed:
            failures += 1
            print(f"seed {seed}: {str(failed.violation).partition(chr(10))[0]}", flush=True)
        tried = seed - arguments.first + 1
        if tried % TOLD_EVERY == 0 or tried == arguments.seeds:
            rate = tried / (time.monotonic() - started)
            print(f"{tried} seeds, {failures} failed, {rate:.1f} a second", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
