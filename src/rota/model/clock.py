"""A guard against clock jumps: a jump is accepted only when a second reading confirms it."""

from __future__ import annotations

from datetime import datetime, timedelta

TOLERANCE = timedelta(seconds=30)


class ClockGuard:
    """Compares readings of the database clock with the monotonic time between them."""

    def __init__(self) -> None:
        self._trusted: tuple[datetime, float] | None = None
        self._doubted: tuple[datetime, float] | None = None

    def accepts(self, now: datetime, monotonic: float) -> bool:
        """True if `now` agrees with the last accepted reading, or confirms a jump."""
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
