"""`rota bench`: how fast this store is on this machine, measured by doing it.

The runs are of a job of its own, in a queue of its own, and are gone afterwards. The worker that
does them does nothing else: no other run is claimed, promoted, rescued or pruned by it.
"""

from __future__ import annotations

import secrets
import statistics
import time
from dataclasses import replace
from datetime import timedelta
from threading import Condition
from typing import Annotated, Any

from rota.app import Rota
from rota.cli.options import HERE, Option, Where
from rota.cli.output import note, say_json, say_table
from rota.cli.progress import Progress
from rota.cli.store import actor, existing
from rota.errors import Conflict, Unavailable
from rota.flow.home import moved
from rota.flow.service import ServiceOptions
from rota.model.limits import PAGE, check_whole
from rota.model.redact import redact_text
from rota.storage import operations
from rota.storage.operations.pruning import BENCH
from rota.storage.store import Store
from rota.task import Task

MOST_RUNS = 50_000
SINGLES = 100
# A bench that was killed leaves its runs behind; the next one that much later removes them.
FORGOTTEN = timedelta(hours=1)
LONGEST_SECONDS = 600.0

MEANINGS = {
    "bulk_enqueue_per_second": ("bulk enqueue", "runs/s", "one enqueue_many of all runs"),
    "enqueue_p50_ms": ("enqueue, half within", "ms", "one run, committed, by one program"),
    "enqueue_p99_ms": ("enqueue, 99 % within", "ms", "the slow ones: a disk or network that waits"),
    "drain_per_second": ("drain", "runs/s", "claim, call an empty function, settle: one process"),
    "latency_p50_ms": ("to start, half within", "ms", "from enqueue to the function, worker idle"),
    "latency_p99_ms": ("to start, 99 % within", "ms", "the slow ones"),
}


def bench(
    *,
    runs: Annotated[int, Option("How many runs to drain, up to 50000.", "N")] = 2_000,
    where: Where = HERE,
) -> None:
    """Measure this store on this machine: enqueue, drain, time to start."""
    check_whole(runs, "runs", 10, MOST_RUNS)
    with existing(where) as (settings, store):
        if not isinstance(store, Store):
            raise Conflict(
                "a process runs on this DuckDB store and has it for itself; stop it first, or "
                "measure another file"
            )
        reason = moved(store, settings.cluster)
        if reason is not None:
            raise Conflict(reason)
        name = BENCH + secrets.token_hex(4)
        app = Measured(storage=store)
        app.settings = replace(settings, jobs_dir=None, queues=(name,))
        with Progress(silent=where.json) as progress:
            try:
                _forget_old(store)
                store.write(operations.record_action, actor(), "bench", name, after=f"{runs} runs")
                measured = _measure(app, name, runs, progress)
            finally:
                progress.show("cleans up")
                app.stop()
                _forget(where, name)
    told: dict[str, Any] = {"database": redact_text(settings.database), "runs": runs, **measured}
    if where.json:
        return say_json(told)
    say_table(
        ("what", "figure", "unit", "meaning"),
        ((what, _figure(told[key]), unit, why) for key, (what, unit, why) in MEANINGS.items()),
    )
    note(
        f"\n{told['database']}, {runs:,} runs, {settings.slots} slots, one process, Python threads."
        " Other work on this machine and this database slows it: compare figures of one machine."
    )


class Measured(Rota):
    """An app that works on its own queue and leaves everything else alone."""

    def _service_options(self, only: tuple[str, ...]) -> ServiceOptions:
        return replace(super()._service_options(only), housekeeping=False)


class Starts:
    """When each run began, and how many have."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self._changed = Condition()

    def begin(self) -> None:
        with self._changed:
            self.at.append(time.perf_counter())
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.at) >= count, LONGEST_SECONDS):
                raise Unavailable(f"{count} runs did not begin within {LONGEST_SECONDS:.0f} s")


def _measure(app: Rota, name: str, runs: int, progress: Progress) -> dict[str, float]:
    starts = Starts()
    task: Task[..., Any] = app.job(name, queue=name, max_attempts=1)(starts.begin)
    app.load()

    progress.show(f"enqueues {SINGLES} runs, one by one")
    singles = [_timed(task.enqueue) for _ in range(SINGLES)]
    progress.show(f"enqueues {runs:,} runs at once")
    bulk = _timed(lambda: task.enqueue_many([{}] * runs))

    progress.show(f"drains {runs + SINGLES:,} runs")
    app.start(["worker"])
    starts.wait(1)
    began = starts.at[0]
    _until_done(app, name, runs + SINGLES, progress)
    drained = time.perf_counter() - began

    progress.show(f"starts {SINGLES} runs, one by one")
    latencies = []
    for _ in range(SINGLES):
        known, asked = len(starts.at), time.perf_counter()
        task.enqueue()
        starts.wait(known + 1)
        latencies.append(starts.at[-1] - asked)
    return {
        "bulk_enqueue_per_second": runs / bulk,
        "enqueue_p50_ms": _share(singles, 50),
        "enqueue_p99_ms": _share(singles, 99),
        "drain_per_second": (runs + SINGLES) / drained,
        "latency_p50_ms": _share(latencies, 50),
        "latency_p99_ms": _share(latencies, 99),
    }


def _until_done(app: Rota, name: str, count: int, progress: Progress) -> None:
    """Until the store says so: a run whose end is not written is not done."""
    until = time.monotonic() + LONGEST_SECONDS
    while (done := app.control.count_runs("succeeded", job=name)) < count:
        progress.show("drains", done, count)
        if time.monotonic() > until:
            raise Unavailable(f"{count:,} runs did not end within {LONGEST_SECONDS:.0f} s")
        time.sleep(0.02)


def _timed(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _share(values: list[float], percent: int) -> float:
    """Within how many milliseconds this share of them was done."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1] * 1000


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _forget_old(store: Store) -> None:
    for job in store.read(operations.list_jobs, after=BENCH, limit=PAGE):
        if not job.name.startswith(BENCH):
            break
        if job.version_at is not None and store.now() - job.version_at > FORGOTTEN:
            while store.write(operations.forget_bench, job.name, limit=PAGE):
                pass


def _forget(where: Where, name: str) -> None:
    """On a store opened anew: the app has closed the one it had."""
    with existing(where) as (_, store):
        assert isinstance(store, Store)
        while store.write(operations.forget_bench, name, limit=PAGE):
            pass
