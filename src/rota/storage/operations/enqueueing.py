"""Enqueue: insert runs, once per idempotency key, in our transaction or the caller's."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.run import BulkRuns, Enqueued, NewRun
from rota.storage import rows
from rota.storage.engine import Transaction
from rota.storage.operation import single_statement
from rota.storage.operations.slots import admit


def enqueue(tx: Transaction, new_runs: Sequence[NewRun], *, notify: bool = True) -> list[Enqueued]:
    """Insert runs, which may take free slots. `notify` wakes the workers of other processes."""
    answers = insert_runs(tx, new_runs)
    if not isinstance(new_runs, BulkRuns):
        admit(tx, {run.wanted_key for run in new_runs if run.wanted_key})
    elif new_runs.template.wanted_key is not None:
        admit(tx, [new_runs.template.wanted_key])
    if notify:
        tx.notify()
    return answers


@single_statement
def ensure_queues(tx: Transaction, names: Sequence[str]) -> None:
    """A queue exists from its first run on; claims look only at queues that exist."""
    tx.many("insert_queues", [{"name": name} for name in sorted(set(names))])


def insert_runs(tx: Transaction, new_runs: Sequence[NewRun]) -> list[Enqueued]:
    """In any transaction, also a caller's: it may stay open for long, so runs that want a slot are
    left held. A slot taken there would stop everybody else until the caller commits."""
    if isinstance(new_runs, BulkRuns):  # nothing to decide: a repeat inserts nothing
        shared = rows.new_run_row(new_runs.template)
        del shared["id"], shared["args"]
        tx.columns("insert_alike_runs", shared, id=new_runs.ids, args=new_runs.args)
        return [Enqueued(id, True) for id in new_runs.ids]
    owners = take_keys(tx, new_runs)
    answers = []
    for run in new_runs:
        owner = run.id if run.key is None else owners[run.job, run.key]
        answers.append(Enqueued(id=owner, created=owner == run.id))
    made = {answer.id for answer in answers if answer.created}
    tx.many("insert_runs", [rows.new_run_row(run) for run in new_runs if run.id in made])
    return answers


def take_keys(tx: Transaction, new_runs: Sequence[NewRun]) -> dict[tuple[str, str], str]:
    """Which run each (job, key) belongs to now. Within a batch the first one counts; a repeat after
    a lost answer finds its own, and its run is inserted (again)."""
    first: dict[tuple[str, str], NewRun] = {}
    for run in new_runs:
        if run.key is not None:
            first.setdefault((run.job, run.key), run)
    # Sorted, so that two processes never wait for each other's keys.
    asked = [
        {
            "job": job,
            "key": key,
            "run_id": run.id,
            "ttl_seconds": None if run.key_ttl is None else run.key_ttl.total_seconds(),
        }
        for (job, key), run in sorted(first.items(), key=lambda item: item[0])
    ]
    owners = {(row["job"], row["key"]): row["run_id"] for row in tx.many("take_keys", asked)}
    known = [pair for pair in first if pair not in owners]
    if known:
        jobs, keys = zip(*known, strict=True)
        for job, key, run_id in tx.tuples("find_keys", jobs=jobs, keys=keys):
            owners[job, key] = run_id
    return owners
