"""Where to begin a claim while a long transaction keeps dead entries in the index.

PostgreSQL cannot remove what an open snapshot may still see. A claim that begins at the head of its
line then steps over every run that ended since that snapshot was taken: 0.4 ms become 50. So after
slow looks from the head the next claims begin where the last ones ended, and look from the head
once a second: a run that lies before the mark (let go, or admitted late) waits that long at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from rota.model.run import Claimed

SLOW_SECONDS = 0.004
SLOW_SECONDS_PER_RUN = 0.0001
# In a row. One or two are slow for other reasons: a connection and a plan that are new, a machine
# on which many processes start at once; and to begin at marks takes a plan of its own.
SLOW_LOOKS = 3
LOOK_SECONDS = 1.0
# Clocks of other processes, and transactions that commit a little later than they began.
MARGIN = timedelta(milliseconds=200)
# Past this many lines to look at, a claim from the head is the cheaper way.
MOST_MARKS = 100
LOWEST, HIGHEST = -(2**31), 2**31 - 1


class Marks:
    """Per queue and priority: the due instant of the last run claimed there."""

    def __init__(self) -> None:
        self._marks: dict[str, dict[int, datetime]] = {}
        self._slow_looks = 0
        self._looked_at = float("-inf")

    def usable(self, now: float) -> bool:
        """False when this claim has to begin at the head."""
        few = sum(map(len, self._marks.values())) <= MOST_MARKS
        return self.slow and few and now - self._looked_at < LOOK_SECONDS

    @property
    def slow(self) -> bool:
        """Whether looks from the head are: nobody else should take one on the way."""
        return self._slow_looks >= SLOW_LOOKS

    def looked(self, claimed: Sequence[Claimed], seconds: float, now: float) -> None:
        """A claim from the head took this long."""
        was_slow = self.slow
        too_long = seconds > SLOW_SECONDS + SLOW_SECONDS_PER_RUN * len(claimed)
        self._slow_looks = self._slow_looks + 1 if too_long else 0
        self._looked_at = now
        if not was_slow:
            self._marks.clear()  # what was learned in an earlier such time
        if self.slow:
            self.claimed(claimed)

    def claimed(self, claimed: Sequence[Claimed]) -> None:
        for run in claimed:
            marks = self._marks.setdefault(run.queue, {})
            marks[run.priority] = max(run.due_at, marks.get(run.priority, run.due_at))

    def ranges(self) -> Mapping[str, Sequence[object]]:
        """Columns of claim_marked_runs: each known priority, and what lies between them."""
        rows: list[tuple[object, ...]] = []
        for queue, marks in self._marks.items():
            high = HIGHEST
            for priority, due_at in sorted(marks.items(), reverse=True):
                rows.append((queue, None, None, priority + 1, high))
                rows.append((queue, priority, due_at - MARGIN, None, None))
                high = priority - 1
            rows.append((queue, None, None, LOWEST, high))
        names = ("queue", "priority", "since", "low", "high")
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}
