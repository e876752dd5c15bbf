"""Enqueue: insert runs, once per idempotency key, in our transaction or the caller's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rota.model.run import BulkRuns, Enqueued, NewRun
from rota.storage import rows
from rota.storage.engine import Transaction
from rota.storage.scripts.admit import AdmitScript


class EnqueueScript(AdmitScript):
    def enqueue(self, new_runs: Sequence[NewRun], *, notify: bool = True) -> list[Enqueued]:
        """Insert runs in one transaction of our own, which may take free slots. `notify` wakes
        the workers of other processes."""
        if isinstance(new_runs, BulkRuns) and new_runs.template.wanted_key is None:
            return self._enqueue_alike(new_runs, notify)

        def work(tx: Transaction) -> list[Enqueued]:
            answers = self._insert(tx, new_runs)
            self._admit_keys(tx, {run.wanted_key for run in new_runs if run.wanted_key})
            return answers

        return self._enqueue(work, notify)

    def _enqueue_alike(self, new_runs: BulkRuns, notify: bool) -> list[Enqueued]:
        """Nothing to decide: the ids are the caller's, so that a repeat inserts nothing."""
        return self._enqueue(lambda tx: self._insert(tx, new_runs), notify)

    def _enqueue(
        self, work: Callable[[Transaction], list[Enqueued]], notify: bool
    ) -> list[Enqueued]:
        answers = self.engine.write("enqueue", work)
        if notify:
            self.engine.notify()
        return answers

    def enqueue_on(
        self, connection: Any, new_runs: Sequence[NewRun], *, notify: bool = True
    ) -> list[Enqueued]:
        """Insert runs in the caller's transaction. It may stay open for long, so keyed runs are
        left held: a slot taken here would stop everybody else until the caller commits."""

        def work(tx: Transaction) -> list[Enqueued]:
            tx.many(
                "insert_queues", [{"name": name} for name in sorted({r.queue for r in new_runs})]
            )
            return self._insert(tx, new_runs)

        return self.engine.on_connection(connection, work, notify=notify)

    def ensure_queues(self, names: Sequence[str]) -> None:
        """A queue exists from its first run on; claims look only at queues that exist."""
        self.engine.single("insert_queues", [{"name": name} for name in sorted(set(names))])

    def _insert(self, tx: Transaction, new_runs: Sequence[NewRun]) -> list[Enqueued]:
        if isinstance(new_runs, BulkRuns):
            shared = rows.new_run_row(new_runs.template)
            del shared["id"], shared["args"]
            pairs = list(zip(new_runs.ids, new_runs.args, strict=True))
            tx.tuples("insert_alike_runs", rows=pairs, **shared)
            return [Enqueued(id, True) for id in new_runs.ids]
        answers: list[Enqueued] = []
        insert: list[NewRun] = []
        for run in new_runs:
            existing = None if run.key is None else self._take_key(tx, run)
            if existing is None:
                insert.append(run)
            answers.append(Enqueued(id=existing or run.id, created=existing is None))
        tx.many("insert_runs", [rows.new_run_row(run) for run in insert])
        return answers

    def _take_key(self, tx: Transaction, run: NewRun) -> str | None:
        """None if the key is ours now, else the run that has it."""
        ttl = None if run.key_ttl is None else run.key_ttl.total_seconds()
        row = {"job": run.job, "key": run.key, "run_id": run.id, "ttl_seconds": ttl}
        if tx.many("take_keys", [row]):
            return None
        found = tx.one("find_keys", jobs=[run.job], keys=[run.key])
        assert found is not None, "a key that conflicts exists"
        # A repeat after a lost answer finds its own key: then the run is inserted (again).
        existing: str = found["run_id"]
        return None if existing == run.id else existing
