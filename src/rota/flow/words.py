"""English: how many there are of a thing."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 run`, `1,200 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
