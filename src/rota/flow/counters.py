"""What a process counts of its own work, for metrics: batch by batch, where it is written.

Nothing here is stored: counters begin at zero with the process, as Prometheus expects them to. What
is true of the store, whoever did it, is asked of the store (`web/metrics.py`).
"""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rota.model.limits import METRIC_JOBS
from rota.model.outcome import Settlement
from rota.model.transitions import CANCELLED, SUCCEEDED, TERMINAL

OTHER = "other"

RUN_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
               1800.0, 3600.0, 14400.0)  # fmt: skip
LAG_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 3600.0)


class Spread(msgspec.Struct):
    """How many values fell between two bounds, the last one without an upper; and their sum."""

    counts: list[int]
    total: float = 0.0

    def __add__(self, other: Spread) -> Spread:
        counts = [one + more for one, more in zip(self.counts, other.counts, strict=True)]
        return Spread(counts, self.total + other.total)


class Counts(msgspec.Struct, kw_only=True):
    """All that is counted, at one instant; also what one process tells another."""

    runs: list[tuple[str, str, int]] = []
    started: int = 0
    seconds: Spread = msgspec.field(default_factory=lambda: _none(RUN_SECONDS))
    fires: dict[str, int] = {}
    lag: Spread = msgspec.field(default_factory=lambda: _none(LAG_SECONDS))


def _none(bounds: Sequence[float]) -> Spread:
    return Spread([0] * (len(bounds) + 1))


class Counters:
    """`settled` and `fired` are called once for each batch that was written, by whatever thread
    wrote it. `begun` is called for each run, and is one step of the interpreter: it needs no lock.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._runs: Counter[tuple[str, str]] = Counter()
        self._fires: Counter[str] = Counter()
        self._seconds, self._ran = [0] * (len(RUN_SECONDS) + 1), 0.0
        self._lag, self._late = [0] * (len(LAG_SECONDS) + 1), 0.0
        self._labels: dict[str, str] = {}
        self._starts, self._looks = itertools.count(), 0
        self.begun = self._starts.__next__
        self._others = Counts()  # of the processes beside this one

    def label(self, job: str) -> str:
        """The name of a job in metrics: the first METRIC_JOBS keep theirs."""
        label = self._labels.get(job)
        if label is None:
            label = job if len(self._labels) < METRIC_JOBS else OTHER
            if label is not OTHER:
                self._labels[job] = label
        return label

    def settled(self, settlements: Iterable[Settlement], states: Mapping[int, str]) -> None:
        """`states` has what became of those that were written here, by their seq."""
        with self._guard:
            runs, seconds, label = self._runs, self._seconds, self.label
            for one in settlements:
                state = states.get(one.run.seq)
                if state is None:
                    continue
                if state in TERMINAL:
                    runs[label(one.run.job), state] += 1
                if one.ran_seconds is not None:
                    seconds[bisect_left(RUN_SECONDS, one.ran_seconds)] += 1
                    self._ran += one.ran_seconds

    def succeeded(self, settlements: Sequence[Settlement]) -> None:
        """The same for a batch of which each was written here, and succeeded: the hot path."""
        jobs = Counter([one.run.job for one in settlements])
        ran = [one.ran_seconds for one in settlements if one.ran_seconds is not None]
        places = Counter([bisect_left(RUN_SECONDS, seconds) for seconds in ran])
        with self._guard:
            for job, count in jobs.items():
                self._runs[self.label(job), SUCCEEDED] += count
            for place, count in places.items():
                self._seconds[place] += count
            self._ran += sum(ran)

    def cancelled(self, job: str) -> None:
        """A run that ended without an attempt."""
        with self._guard:
            self._runs[self.label(job), CANCELLED] += 1

    def fired(self, outcomes: Mapping[str, int], lags: Sequence[float]) -> None:
        """Occurrences that were decided here, and how late those were that became runs."""
        with self._guard:
            self._fires.update(outcomes)
            for lag in lags:
                self._lag[bisect_left(LAG_SECONDS, lag)] += 1
                self._late += lag

    def add(self, counts: Counts) -> None:
        """What a process beside this one has done since it told the last time."""
        with self._guard:
            told = [(self.label(job), outcome, count) for job, outcome, count in counts.runs]
            self._others = together(self._others, msgspec.structs.replace(counts, runs=told))

    def counts(self) -> Counts:
        """Everything so far."""
        with self._guard:
            own = Counts(
                runs=[(job, state, count) for (job, state), count in self._runs.items()],
                started=next(self._starts) - self._looks,  # to look is one more step
                seconds=Spread(list(self._seconds), self._ran),
                fires=dict(self._fires),
                lag=Spread(list(self._lag), self._late),
            )
            self._looks += 1
            return together(own, self._others)


def together(one: Counts, other: Counts) -> Counts:
    runs: Counter[tuple[str, str]] = Counter()
    for job, state, count in (*one.runs, *other.runs):
        runs[job, state] += count
    return Counts(
        runs=[(job, state, count) for (job, state), count in runs.items()],
        started=one.started + other.started,
        seconds=one.seconds + other.seconds,
        fires=dict(Counter(one.fires) + Counter(other.fires)),
        lag=one.lag + other.lag,
    )


def since(now: Counts, before: Counts) -> Counts:
    """What was counted between two looks."""
    known = {(job, state): count for job, state, count in before.runs}
    return Counts(
        runs=[
            (job, state, count - known.get((job, state), 0))
            for job, state, count in now.runs
            if count != known.get((job, state), 0)
        ],
        started=now.started - before.started,
        seconds=_less(now.seconds, before.seconds),
        fires=dict(Counter(now.fires) - Counter(before.fires)),
        lag=_less(now.lag, before.lag),
    )


def _less(now: Spread, before: Spread) -> Spread:
    counts = [one - less for one, less in zip(now.counts, before.counts, strict=True)]
    return Spread(counts, now.total - before.total)
