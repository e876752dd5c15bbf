"""How many runs a worker claims ahead of its free slots."""

from __future__ import annotations

AHEAD_SECONDS = 0.1
SHORTEST_INTERVAL = 0.01
LONGEST_INTERVAL = 1.0
QUICK_SECONDS = 0.0002


class Pace:
    """The number of runs that recent handlers would finish in AHEAD_SECONDS.

    0 while handlers are slow: an idle worker cannot claim a run that this one has claimed."""

    def __init__(self, most_ahead: int) -> None:
        self.most_ahead = most_ahead
        self.total = 0
        self._mean = QUICK_SECONDS
        self._ended, self._busy = 0, 0.0
        self._since: float | None = None
        self.latest = 0  # the last result of `ahead`

    def ended(self, seconds: float) -> None:
        """Count a handler that ended. Threads may lose counts of each other: it is an estimate."""
        self.total += 1
        self._mean += (seconds - self._mean) / 16
        self._ended += 1
        self._busy += seconds

    @property
    def quick(self) -> bool:
        """True if handlers end sooner than another worker could claim their run."""
        return self._mean < QUICK_SECONDS

    def ahead(self, now: float) -> int:
        if self._since is None:
            self._since = now
        elapsed = now - self._since
        if elapsed >= SHORTEST_INTERVAL and (self._ended or elapsed >= LONGEST_INTERVAL):
            slow = self._busy >= AHEAD_SECONDS * self._ended
            done = int(self._ended / elapsed * AHEAD_SECONDS)
            self.latest = 0 if slow else min(self.most_ahead, done)
            self._ended, self._busy, self._since = 0, 0.0, now
        return self.latest
