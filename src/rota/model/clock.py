"""A guard against clocks that jump: one odd reading fires nothing, two that agree are believed."""

from __future__ import annotations

from datetime import datetime, timedelta

TOLERANCE = timedelta(seconds=30)


class ClockGuard:
    """Compares readings of the deciding clock with the time that really passed between them."""

    def __init__(self) -> None:
        self._trusted: tuple[datetime, float] | None = None
        self._doubted: tuple[datetime, float] | None = None

    def accepts(self, now: datetime, monotonic: float) -> bool:
        """True if `now` is where the last reading leads to, or a jump was seen twice."""
        reading = (now, monotonic)
        if self._trusted is None or _agree(self._trusted, reading):
            self._trusted, self._doubted = reading, None
            return True
        if self._doubted is None or not _agree(self._doubted, reading):
            self._doubted = reading
            return False
        if monotonic - self._doubted[1] < 1.0:
            return False
        self._trusted, self._doubted = reading, None
        return True


def _agree(before: tuple[datetime, float], after: tuple[datetime, float]) -> bool:
    expected = before[0] + timedelta(seconds=after[1] - before[1])
    return abs(after[0] - expected) <= TOLERANCE
