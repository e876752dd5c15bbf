"""Promote due runs and admit held ones: the two ways into the queue."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from rota.storage.engine import Transaction
from rota.storage.scripts.base import Script

HELD_PER_KEY = 100


class AdmitScript(Script):
    def promote(self, limit: int) -> int:
        """Runs whose time has come enter the queue, or the line for the slot they want."""

        def work(tx: Transaction) -> int:
            promoted = tx.all("promote_runs", limit=limit)
            self._admit_keys(tx, {row["wanted_key"] for row in promoted if row["wanted_key"]})
            return len(promoted)

        return self.engine.write("promote", work)

    def next_due_at(self) -> tuple[datetime, datetime | None]:
        """(now, when the next waiting run is due)."""

        def read(tx: Transaction) -> tuple[datetime, datetime | None]:
            row = tx.one("next_due_at")
            return self._now(tx), row["next_due_at"] if row else None

        return self.engine.read(read)

    def held_keys(self, after: str, limit: int) -> list[str]:
        """Keys that runs wait for, in order, past `after`."""
        found = self.engine.read(lambda tx: tx.all("held_keys", after=after, limit=limit))
        return [row["key"] for row in found]

    def admit(self, keys: Collection[str]) -> int:
        """Give free slots of these keys to the runs that wait for them longest."""
        return self.engine.write("admit", lambda tx: self._admit_keys(tx, keys))

    def _admit_keys(self, tx: Transaction, keys: Collection[str]) -> int:
        """Runs that got their last slot. A run may get its first and go on to want its second."""
        admitted = 0
        pending = set(keys)
        while pending:
            wanted = [self._admit_key(tx, key) for key in sorted(pending)]
            admitted += sum(key is None for answers in wanted for key in answers)
            pending = {key for answers in wanted for key in answers if key is not None}
        return admitted

    def _admit_key(self, tx: Transaction, key: str) -> list[str | None]:
        """What each run that got a slot of this key wants next; None: nothing, it is queued."""
        answers: list[str | None] = []
        taken = {row["number"] for row in tx.all("taken_numbers", key=key)}
        for run in tx.all("held_runs", key=key, limit=HELD_PER_KEY):
            free = next((n for n in range(1, run["size"] + 1) if n not in taken), None)
            if free is None:
                break  # first in, first out: nobody passes the head of the line
            tx.all("take_slot", key=key, number=free, seq=run["seq"])
            row = tx.one("admit_run", seq=run["seq"], key=key)
            assert row is not None, "the run is held and its row is ours"
            taken.add(free)
            answers.append(row["wanted_key"])
        return answers
