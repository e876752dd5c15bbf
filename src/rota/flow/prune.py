"""Prune: delete old runs, fold old ledger rows. Bounded batches, never past a cursor."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from rota.errors import Invalid
from rota.model.limits import MISSED_COUNT
from rota.model.plan import count_range
from rota.model.retention import Retention
from rota.storage import operations, rows
from rota.storage.store import Store

BATCH = 500
LEDGER_AGE = timedelta(days=90)
LEDGER_ROWS = 10_000
LEDGERS = 50
FILES = 100
TEXT_AGE = timedelta(days=1)
WORKER_AGE = timedelta(hours=1)
ANSWER_AGE = timedelta(days=7)
ANSWERS = 10_000


class Prune:
    def __init__(
        self, store: Store, *, retention: Retention | None = None, interval: float = 60.0
    ) -> None:
        self.store, self.interval = store, interval
        self.retention = retention or Retention()
        self.folded_id = 0
        self.behind: list[int] = []  # ledgers of the last page that may have more to fold

    def step(self) -> float:
        """0.0 while there may be more: the next batch comes at once, in its own transaction."""
        store = self.store
        more = [self._prune(state) == BATCH for state in self.retention.ages]
        more += [
            count_uncounted(store),  # one a step: to count a stretch may take a second
            self.fold_some(),
            store.write(operations.prune_texts, age_seconds=TEXT_AGE.total_seconds(), limit=BATCH)
            == BATCH,
            store.write(operations.prune_files, limit=FILES) == FILES,
            store.write(operations.prune_shared_jobs, limit=BATCH) == BATCH,
            store.write(
                operations.prune_answered,
                age_seconds=ANSWER_AGE.total_seconds(),
                keep=ANSWERS,
                limit=BATCH,
            )
            == BATCH,
        ]
        store.write(operations.forget_old_workers, WORKER_AGE.total_seconds())
        return 0.0 if any(more) else self.interval

    def prune_all(self) -> int:
        """Everything that retention no longer keeps; how many runs."""
        total = 0
        for state in self.retention.ages:
            while deleted := self._prune(state):
                total += deleted
        return total

    def _prune(self, state: str) -> int:
        """One bounded batch."""
        return self.store.write(
            operations.prune_runs,
            state,
            age_seconds=self.retention.ages[state].total_seconds(),
            keep_last=self.retention.keep_last,
            limit=BATCH,
        )

    def fold_some(self) -> bool:
        """A page of ledgers at a time, going round: 50 schedules a minute are 72,000 a day. One
        batch of each; True while one of them may have more."""
        ids = self.behind
        if not ids:
            ids = self.store.read(operations.ledger_ids, after=self.folded_id, limit=LEDGERS)
            self.folded_id = ids[-1] if len(ids) == LEDGERS else 0
        self.behind = [schedule_id for schedule_id in ids if self._fold(schedule_id)]
        return bool(self.behind)

    def _fold(self, schedule_id: int) -> int:
        return self.store.write(
            operations.fold_ledger,
            schedule_id,
            age_seconds=LEDGER_AGE.total_seconds(),
            keep_rows=LEDGER_ROWS,
            limit=BATCH,
        )


def count_uncounted(store: Store) -> bool:
    """Count one stretch that was too long to count when it was written; False if none is. Outside
    the transactions: it may take a second."""
    found = store.read(operations.uncounted_range)
    if found is None:
        return False
    uncounted, schedule = found
    count = MISSED_COUNT  # the calendar is gone or another one: at least so many
    if schedule is not None:
        with suppress(Invalid):
            count = count_range(
                rows.checked_schedule(schedule),
                uncounted["occurrence"],
                uncounted["last_occurrence"],
            )
    store.write(operations.put_count, uncounted, count)
    return True
