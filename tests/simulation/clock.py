"""Virtual time: what really passes, and what the deciding clock says about it."""

from __future__ import annotations

from datetime import datetime, timedelta

from rota.model.duration import EPOCH

SECOND = 1_000_000
BEGINNING = 1_750_000_000 * SECOND  # an even instant, so that cron and intervals often coincide


class VirtualClock:
    """`elapsed` only grows; `offset` is what a person or a time server may step about.

    Both are whole microseconds, so that an instant can be met exactly.
    """

    def __init__(self) -> None:
        self.elapsed = 0
        self.offset = BEGINNING
        self.steps = 0

    @property
    def micros(self) -> int:
        """The deciding clock, as rows store it."""
        return self.elapsed + self.offset

    def now(self) -> datetime:
        return EPOCH + timedelta(microseconds=self.micros)

    def monotonic(self) -> float:
        return self.elapsed / SECOND

    def advance_to(self, elapsed: int) -> None:
        self.elapsed = max(self.elapsed, elapsed)

    def step(self, micros: int) -> None:
        """The deciding clock jumps; nothing really passes."""
        self.offset += micros
        self.steps += 1
