"""Where to begin a claim while the head of its line is long and holds nothing for us.

It does while a long transaction keeps dead entries in the index: PostgreSQL cannot remove what an
open snapshot may still see, and a claim steps over every run that ended since. And it does where
many runs wait for a worker that knows their jobs: 0.4 ms become 50, or 500. So after slow looks
from the head the next claims begin where those ended, and look from the head once a second: a run
that lies before a mark (let go, or admitted late) waits that long at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from rota.model.run import ClaimedRun

SLOW_SECONDS = 0.004
SLOW_SECONDS_PER_RUN = 0.0001
# In a row. One or two are slow for other reasons: a connection and a plan that are new, a machine
# on which many processes start at once; and to begin at marks takes a plan of its own.
SLOW_LOOKS = 3
LOOK_SECONDS = 1.0
# A look that takes longer than this is worth a question for the lines that it went through.
LONG_SECONDS = 0.05
# Clocks of other processes, and transactions that commit a little later than they began.
MARGIN = timedelta(milliseconds=200)
# Past this many lines to look at, a claim from the head is the cheaper way.
MOST_MARKS = 100
LOWEST, HIGHEST = -(2**31), 2**31 - 1


class Marks:
    """Per queue and priority, which are a line: the due instant of the last run claimed there, or
    the instant at which a look found none for us in it."""

    def __init__(self) -> None:
        self._marks: dict[str, dict[int, datetime]] = {}
        self._slow_looks = 0
        self._looked_at = float("-inf")
        self._jobs: Sequence[str] = ()
        self.passed_at: float | None = None  # a long look, whose lines nobody has asked for
        self._last: ClaimedRun | None = None  # of it, if it took as many as it could

    def usable(self, now: float, jobs: Sequence[str]) -> bool:
        """False when this claim has to begin at the head."""
        few = sum(map(len, self._marks.values())) <= MOST_MARKS
        recent = now - self._looked_at < LOOK_SECONDS
        return self.slow and few and recent and jobs == self._jobs

    @property
    def slow(self) -> bool:
        """Whether looks from the head are: nobody else should take one on the way."""
        return self._slow_looks >= SLOW_LOOKS

    def looked(
        self,
        claimed: Sequence[ClaimedRun],
        seconds: float,
        now: float,
        *,
        jobs: Sequence[str],
        limit: int,
    ) -> None:
        """A claim of up to `limit` runs from the head began at `now` and took this long."""
        was_slow = self.slow
        too_long = seconds > SLOW_SECONDS + SLOW_SECONDS_PER_RUN * len(claimed)
        self._slow_looks = self._slow_looks + 1 if too_long else 0
        self._looked_at, self._jobs = now, jobs
        self._last = last = claimed[-1] if len(claimed) == limit else None
        self.passed_at = now if self.slow and seconds > LONG_SECONDS else None
        if not was_slow:
            self._marks.clear()  # what was learned in an earlier such time
        if not self.slow:
            return
        if last is not None:
            self._forget_behind(last)
        self.claimed(claimed)

    def passed(self, lines: Sequence[tuple[str, int, datetime]], ago: float) -> None:
        """All lines there are, as told `ago` seconds after the look began. It went through them to
        their end, except for those behind the last run that it took."""
        if len(lines) > MOST_MARKS:
            return
        last = self._last
        for queue, priority, told_at in lines:
            if last is None or priority > last.priority:
                self._mark(queue, priority, told_at - timedelta(seconds=ago))
            elif priority == last.priority:
                self._mark(queue, priority, last.due_at)

    def _forget_behind(self, last: ClaimedRun) -> None:
        """A look ended here, and what lies behind may have come since the marks were made."""
        for queue, marks in self._marks.items():
            self._marks[queue] = {
                priority: min(mark, last.due_at) if priority == last.priority else mark
                for priority, mark in marks.items()
                if priority >= last.priority
            }

    def claimed(self, claimed: Sequence[ClaimedRun]) -> None:
        for run in claimed:
            self._mark(run.queue, run.priority, run.due_at)

    def _mark(self, queue: str, priority: int, instant: datetime) -> None:
        marks = self._marks.setdefault(queue, {})
        marks[priority] = max(instant, marks.get(priority, instant))

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
