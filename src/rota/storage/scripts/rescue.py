"""Rescue and repair what dead processes left behind. Any process may, any number of times."""

from __future__ import annotations

from collections.abc import Collection

from rota.model.run import ClaimedRun
from rota.model.schedule import WAITING_FOR_RUN
from rota.storage import rows
from rota.storage.engine import Transaction
from rota.storage.scripts.admit import AdmitScript
from rota.storage.scripts.delays import restart_delay


class RescueScript(AdmitScript):
    def expired_runs(self, limit: int, without: Collection[int] = ()) -> list[ClaimedRun]:
        """Runs whose lease has run out. Settling them as lost checks the lease again."""
        found = self.engine.read(
            lambda tx: tx.tuples("expired_runs", limit=limit, without=list(without))
        )
        return [rows.claimed(row) for row in found]

    _swept = 0  # the last owner that was looked at: each sweep goes on from there, and round

    def sweep(self, limit: int) -> int:
        """Free slots that nobody owns, let delay schedules go on whose run is gone; how many."""

        def work(tx: Transaction) -> int:
            page = tx.tuples("slot_owners_after", after=self._swept, limit=limit)
            owners = [owner for (owner,) in page]
            self._swept = owners[-1] if len(owners) == limit else 0
            freed = (
                {row["key"] for row in tx.all("sweep_slots", owners=owners)} if owners else set()
            )
            self._admit_keys(tx, freed)
            stranded = tx.all("stranded_delay_schedules", waiting_at=WAITING_FOR_RUN, limit=limit)
            for row in stranded:
                restart_delay(tx, row["id"], row["expr"])
            return len(freed) + len(stranded)

        return self.engine.write("sweep", work)

    def prune_runs(self, state: str, *, age_seconds: float, keep_last: int, limit: int) -> int:
        """Delete a bounded number of old runs with everything that belongs to them."""

        def find(tx: Transaction) -> list[int]:
            old = tx.all(
                "old_runs", state=state, age_seconds=age_seconds, keep_last=keep_last, limit=limit
            )
            return [row["seq"] for row in old]

        # Mostly there is nothing: then nobody has to wait for the one lock that all writes share.
        if self.engine.one_writer and not self.engine.read(find):
            return 0
        return self.engine.write("prune", lambda tx: self._delete_runs(tx, find(tx)))

    def _delete_runs(self, tx: Transaction, seqs: list[int]) -> int:
        deleted = tx.many("delete_runs", [{"seq": seq} for seq in sorted(seqs)])
        gone = [{"seq": row["seq"]} for row in deleted]
        tx.many("delete_attempts", gone)
        tx.many("delete_logs", gone)
        for statement in ("delete_steps", "delete_marks", "delete_run_files"):
            tx.many(statement, gone)
        tx.many("delete_keys", [{"id": row["id"]} for row in deleted])
        freed = {row["key"] for row in tx.many("release_slots", gone)}
        self._admit_keys(tx, freed)
        return len(deleted)
