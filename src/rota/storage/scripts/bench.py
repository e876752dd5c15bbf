"""Remove what `rota bench` made."""

from __future__ import annotations

from rota.model.transitions import RUNNING
from rota.storage.engine import Transaction
from rota.storage.scripts.control import ControlScript

BENCH = "rota-bench-"


class BenchScript(ControlScript):
    def forget_bench(self, name: str, *, limit: int) -> int:
        """Delete a job that was made to measure with, a batch of its runs at a time; the job and
        its queue, which has its name, go with the last. How many runs; 0 when all is gone."""
        assert name.startswith(BENCH), f"{name} is somebody's own"
        found = [run.seq for run in self.list_runs(job=name, limit=limit) if run.state != RUNNING]

        def work(tx: Transaction) -> int:
            deleted = self._delete_runs(tx, found)
            if not found:
                tx.all("delete_bench_job", name=name)
                tx.all("delete_bench_queue", name=name)
            return deleted

        return self.engine.write("forget_bench", work)
