"""What there is: jobs, queues, workers, locks, and the installation itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rota.model.job import Job
from rota.model.limits import METRIC_DEPTH
from rota.storage import rows
from rota.storage.engine import Row, Transaction
from rota.storage.scripts.base import Script


class CatalogScript(Script):
    def put_jobs(self, jobs: Sequence[Job]) -> None:
        """Make definitions known to every process. The same version changes nothing."""

        def work(tx: Transaction) -> None:
            ordered = sorted(jobs, key=lambda job: job.name)
            tx.many("put_jobs", [rows.job_row(job) for job in ordered])
            queues = sorted({job.queue for job in jobs})
            tx.many("insert_queues", [{"name": queue} for queue in queues])

        self.engine.write("put_jobs", work)

    def jobs_named(self, names: Collection[str]) -> dict[str, Job]:
        return rows.jobs(self.engine.read(lambda tx: tx.all("jobs_named", names=sorted(names))))

    def list_jobs(self, *, after: str = "", limit: int) -> list[Job]:
        found = self.engine.read(lambda tx: tx.all("list_jobs", after=after, limit=limit))
        return [rows.job(row) for row in found]

    def put_worker(self, worker: Row) -> None:
        """Say that a worker is alive, and what it knows."""
        self.engine.single("put_worker", [worker])

    def forget_worker(self, worker_id: str) -> None:
        self.engine.single("forget_worker", [{"id": worker_id}])

    def forget_old_workers(self, age_seconds: float) -> None:
        self.engine.single("forget_old_workers", [{"age_seconds": age_seconds}])

    def list_workers(self, *, after: str = "", limit: int) -> list[Row]:
        found = self.engine.read(lambda tx: tx.all("list_workers", after=after, limit=limit))
        for row in found:
            row["jobs"], row["queues"] = rows.from_json(row["jobs"]), rows.from_json(row["queues"])
        return found

    def acquire_lock(self, name: str, owner: str, ttl_seconds: float) -> int | None:
        """A fencing token, or None while somebody else holds it."""
        row = {"name": name, "owner": owner, "ttl_seconds": ttl_seconds}
        got = self.engine.single("acquire_lock", [row])
        return got[0]["token"] if got else None

    def extend_lock(self, name: str, token: int, ttl_seconds: float) -> bool:
        row = {"name": name, "token": token, "ttl_seconds": ttl_seconds}
        return bool(self.engine.single("extend_lock", [row]))

    def release_lock(self, name: str, token: int) -> bool:
        return bool(self.engine.single("release_lock", [{"name": name, "token": token}]))

    def list_locks(self, *, after: str = "", limit: int) -> list[Row]:
        return self.engine.read(lambda tx: tx.all("list_locks", after=after, limit=limit))

    def list_queues(self, *, after: str = "", limit: int) -> list[Row]:
        """Every queue with how many runs are queued in it, counted up to METRIC_DEPTH."""

        def read(tx: Transaction) -> list[Row]:
            oldest = {row["queue"]: row["due_at"] for row in tx.all("oldest_queued")}
            found = tx.all("list_queues", after=after, limit=limit, depth=METRIC_DEPTH)
            for row in found:
                row["paused"] = bool(row["paused"])
                row["oldest_at"] = oldest.get(row["name"])
            return found

        return self.engine.read(read)
