"""Delete runs, with everything that belongs to them. Any process may, any number of times."""

from __future__ import annotations

from rota.model.transitions import RUNNING
from rota.storage.engine import Transaction
from rota.storage.operation import only_if
from rota.storage.operations.runs import delete_runs, list_runs


def old_runs(
    tx: Transaction, state: str, *, age_seconds: float, keep_last: int, limit: int
) -> list[int]:
    """The seqs of runs that ended long ago, or before the latest `keep_last` of their job."""
    old = tx.all("old_runs", state=state, age_seconds=age_seconds, keep_last=keep_last, limit=limit)
    return [row["seq"] for row in old]


@only_if(old_runs, nothing=0)
def prune_runs(
    tx: Transaction, state: str, *, age_seconds: float, keep_last: int, limit: int
) -> int:
    """Delete a bounded number of old runs with everything that belongs to them; how many."""
    old = old_runs(tx, state, age_seconds=age_seconds, keep_last=keep_last, limit=limit)
    return delete_runs(tx, old)


BENCH = "rota-bench-"


def forget_bench(tx: Transaction, name: str, *, limit: int) -> int:
    """Delete a job that was made to measure with, a batch of its runs at a time; the job and
    its queue, which has its name, go with the last. How many runs; 0 when all is gone."""
    assert name.startswith(BENCH), f"{name} is somebody's own"
    found = [run.seq for run in list_runs(tx, job=name, limit=limit) if run.state != RUNNING]
    deleted = delete_runs(tx, found)
    if not found:
        tx.all("delete_bench_job", name=name)
        tx.all("delete_bench_queue", name=name)
    return deleted
