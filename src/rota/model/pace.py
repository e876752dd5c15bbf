"""How many runs a worker claims ahead of its free slots."""

from __future__ import annotations

AHEAD_SECONDS = 0.1
SHORTEST_LOOK = 0.01
LONGEST_LOOK = 1.0
QUICK_SECONDS = 0.0002


class Pace:
    """What recent handlers would finish in AHEAD_SECONDS, and nothing while they are slow: a run
    in a worker's hands cannot be taken by one that is idle."""

    def __init__(self, most_ahead: int) -> None:
        self.most_ahead = most_ahead
        self.total = 0
        self._mean = QUICK_SECONDS
        self._ended, self._busy = 0, 0.0
        self._since: float | None = None
        self.latest = 0  # what `ahead` said last

    def ended(self, seconds: float) -> None:
        """A handler ended. Threads may lose each other's count: it is an estimate."""
        self.total += 1
        self._mean += (seconds - self._mean) / 16
        self._ended += 1
        self._busy += seconds

    @property
    def quick(self) -> bool:
        """Handlers end before anybody else could have begun one."""
        return self._mean < QUICK_SECONDS

    def ahead(self, now: float) -> int:
        if self._since is None:
            self._since = now
        elapsed = now - self._since
        if elapsed >= SHORTEST_LOOK and (self._ended or elapsed >= LONGEST_LOOK):
            slow = self._busy >= AHEAD_SECONDS * self._ended
            done = int(self._ended / elapsed * AHEAD_SECONDS)
            self.latest = 0 if slow else min(self.most_ahead, done)
            self._ended, self._busy, self._since = 0, 0.0, now
        return self.latest
