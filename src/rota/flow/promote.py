"""Promote runs whose time has come, and admit held runs whose slot is free.

Both are idempotent and need no leader: every process does them.
"""

from __future__ import annotations

from collections.abc import Callable

from rota.storage import operations
from rota.storage.store import Store

BATCH = 500
KEYS = 500


class Promote:
    def __init__(
        self, store: Store, *, promoted: Callable[[], None], interval: float = 1.0
    ) -> None:
        self.store, self.promoted, self.interval = store, promoted, interval
        self.after = ""

    def step(self) -> float:
        now, due_at = self.store.read(operations.next_due_at)
        moved = 0
        if due_at is not None and due_at <= now:
            moved = self.store.write(operations.promote, BATCH)
        admitted = self._admit()
        if moved or admitted:
            self.promoted()
        if moved == BATCH:
            return 0.0
        if due_at is None or due_at <= now:
            return self.interval
        return min(self.interval, (due_at - now).total_seconds())

    def _admit(self) -> int:
        """A page of keys at a time, going round, so that no key waits for ever."""
        keys = self.store.read(operations.held_keys, self.after, KEYS)
        self.after = keys[-1] if len(keys) == KEYS else ""
        return self.store.write(operations.admit, keys) if keys else 0
