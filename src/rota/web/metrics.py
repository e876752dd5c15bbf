"""Metrics as Prometheus reads them: what this process did, and what the store holds.

| counted where | metrics |
|---|---|
| in this process (and those that its `rota up --processes` started) | `rota_runs_total`, `rota_runs_started_total`, `rota_run_seconds`, `rota_fires_total`, `rota_fire_lag_seconds` |
| in the store, alike from every process | `rota_queue_depth`, `rota_oldest_due_seconds`, `rota_schedules`, `rota_last_success_timestamp`, `rota_workers` |

The store is asked once in a few seconds, however many scrape. While it does not answer its metrics
are left out, and the others are told all the same.
"""  # noqa: E501

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rota.flow.counters import LAG_SECONDS, OTHER, RUN_SECONDS, Spread
from rota.flow.workers import LIVE
from rota.model.limits import METRIC_DEPTH, METRIC_JOBS, METRIC_QUEUES
from rota.storage import operations
from rota.storage.operations.dashboard import Figures

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from rota.app import Rota

log = logging.getLogger("rota.metrics")

FRESH_SECONDS = 5.0
WAIT_SECONDS = 3.0  # for an answer; less than a scrape may take
STALE_SECONDS = 60.0
# A store that is slow to answer is asked less: a tenth of the time at most.
SHARE = 10
RECENT_RUNS = 100
STATES = ("waiting", "held", "queued", "running", "paused")
STATUSES = ("ACTIVE", "PAUSED", "DISABLED", "FINISHED", "BROKEN")
OUTCOMES = ("fired", "skipped", "dropped", "coalesced", "missed")

NAMES = (
    "rota_runs_total", "rota_runs_started_total", "rota_run_seconds", "rota_queue_depth",
    "rota_oldest_due_seconds", "rota_schedules", "rota_fires_total", "rota_fire_lag_seconds",
    "rota_last_success_timestamp", "rota_workers",
)  # fmt: skip


class Metrics:
    """One for an app. `page` is what `/metrics` answers, with its content type."""

    def __init__(self, app: Rota, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        # Not above: the core has neither the package nor its import time.
        from prometheus_client import CollectorRegistry, exposition

        self.app = app
        self._store = StoreFigures(app, monotonic)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._write, self.content_type = exposition.generate_latest, exposition.CONTENT_TYPE_LATEST

    def page(self) -> tuple[bytes, str]:
        return self._write(self._registry), self.content_type

    def collect(self) -> Iterator[Metric]:
        yield from self._of_process()
        figures = self._store.look()
        if figures is not None:
            yield from self._of_store(figures)

    def _of_process(self) -> Iterator[Metric]:
        counts = self.app.counters.counts()
        runs = _counter("rota_runs", "Runs that ended here.", "job", "outcome")
        for job, outcome, count in sorted(counts.runs):
            runs.add_metric([job, outcome], count)
        yield runs
        started = _counter("rota_runs_started", "Attempts that began here.")
        started.add_metric([], counts.started)
        yield started
        yield _spread(
            "rota_run_seconds", "How long handlers took, attempt by attempt.",
            RUN_SECONDS, counts.seconds,
        )  # fmt: skip
        fires = _counter("rota_fires", "Occurrences that were decided here.", "outcome")
        for outcome in OUTCOMES:
            fires.add_metric([outcome], counts.fires.get(outcome, 0))
        yield fires
        yield _spread(
            "rota_fire_lag_seconds", "How late occurrences became runs.", LAG_SECONDS, counts.lag
        )

    def _of_store(self, told: Figures) -> Iterator[Metric]:
        queues = list(dict.fromkeys([*told.queues, *(queue for queue, _ in told.depths)]))
        label = {queue: queue for queue in queues[:METRIC_QUEUES]}
        depths: Counter[tuple[str, str]] = Counter()
        for (queue, state), count in told.depths.items():
            depths[label.get(queue, OTHER), state] += count
        names = [*label, *([OTHER] if len(queues) > METRIC_QUEUES else [])]

        depth = _gauge("rota_queue_depth", "Runs that have not ended.", "queue", "state")
        for queue in names:
            for state in STATES:
                depth.add_metric([queue, state], depths[queue, state])
        yield depth

        oldest = _gauge("rota_oldest_due_seconds", "How long the oldest waits.", "queue")
        ages = dict.fromkeys(names, 0.0)
        for queue, due_at in told.oldest_at.items():
            name = label.get(queue, OTHER)
            age = (told.now - due_at).total_seconds()
            ages[name] = max(ages.get(name, 0.0), age)
        for queue, age in ages.items():
            oldest.add_metric([queue], age)
        yield oldest

        schedules = _gauge("rota_schedules", "Schedules by status.", "status")
        for status in STATUSES:
            schedules.add_metric([status], told.schedules.get(status, 0))
        yield schedules

        successes = _gauge("rota_last_success_timestamp", "When a run last succeeded.", "job")
        for job, at in sorted(told.successes.items()):
            if at is not None:
                successes.add_metric([job], at.timestamp())
        yield successes

        workers = _gauge("rota_workers", "Workers that are alive.")
        workers.add_metric([], told.workers)
        yield workers


class StoreFigures:
    """The figures of the store, as fresh as they need to be; None while it does not answer."""

    def __init__(self, app: Rota, monotonic: Callable[[], float]) -> None:
        self._app, self._monotonic = app, monotonic
        self._guard = threading.Lock()
        self._answered: threading.Event | None = None  # while somebody asks
        self._told: Figures | None = None
        self._told_at = self._until = float("-inf")
        self._successes: Mapping[str, datetime | None] = {}

    def look(self) -> Figures | None:
        with self._guard:
            if self._answered is None and self._monotonic() >= self._until:
                self._answered = threading.Event()
                # In a thread: nobody can tell how long a database takes to fail.
                asking = threading.Thread(
                    target=self._refresh, args=(self._answered,), name="rota-figures", daemon=True
                )
                asking.start()
            answered = self._answered
        if answered is not None:
            answered.wait(WAIT_SECONDS)
        fresh = self._monotonic() - self._told_at < STALE_SECONDS
        return self._told if fresh else None

    def _refresh(self, answered: threading.Event) -> None:
        began = self._monotonic()
        try:
            told = self._ask()
            now = self._monotonic()
            if told is not None:
                self._told, self._told_at = told, now
            self._until = now + max(FRESH_SECONDS, (now - began) * SHARE)
        finally:
            with self._guard:
                self._answered = None
            answered.set()

    def _ask(self) -> Figures | None:
        try:
            told = self._app.storage.read(
                operations.figures,
                depth=METRIC_DEPTH,
                queues=METRIC_QUEUES + 1,
                jobs=METRIC_JOBS,
                recent=RECENT_RUNS,
                live_seconds=LIVE.total_seconds(),
            )
        except Exception as fault:  # whatever it is, the page is answered
            log.debug("the store could not be asked: %s", fault)
            return None
        # A success that retention has deleted meanwhile was one all the same.
        self._successes = {
            job: max((one for one in (at, self._successes.get(job)) if one), default=None)
            for job, at in told.successes.items()
        }
        return replace(told, successes=self._successes)


def _counter(name: str, text: str, *labels: str) -> Any:
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(name, text, labels=labels)


def _gauge(name: str, text: str, *labels: str) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, labels=labels)


def _spread(name: str, text: str, bounds: tuple[float, ...], told: Spread) -> Any:
    from prometheus_client.core import HistogramMetricFamily

    total, buckets = 0, []
    for bound, count in zip((*map(str, bounds), "+Inf"), told.counts, strict=True):
        total += count
        buckets.append((bound, total))
    made = HistogramMetricFamily(name, text)
    made.add_metric([], buckets, told.total)
    return made
