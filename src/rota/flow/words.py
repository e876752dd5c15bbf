"""English: how many there are of a thing, and how many are named."""

from __future__ import annotations

SOME = 5  # names in one sentence


def counted(number: int, noun: str) -> str:
    """`1 run`, `1,200 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
