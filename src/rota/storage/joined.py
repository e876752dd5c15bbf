"""Many calls in one transaction: an engine whose reads and writes are parts of one that is open.

A store on it does what it always does, and all of it happens, or nothing. Only what a statement
asks for is here: what belongs to the hot path, or to a caller's connection, is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rota.errors import Invalid
from rota.storage.engine import Engine, Row, T, Transaction

if TYPE_CHECKING:
    from rota.model.result import Result


class JoinedEngine:
    """`changes` and `seconds` limit what one transaction may do: others wait for it."""

    def __init__(self, engine: Engine, tx: Transaction, *, changes: int, seconds: float) -> None:
        self.engine, self.tx = engine, tx
        self.name, self.url, self.probe = engine.name, engine.url, engine.probe
        self.one_writer = engine.one_writer
        self.changes, self.seconds = changes, seconds
        self._changed = 0
        self._until = time.monotonic() + seconds

    def read(self, work: Callable[[Transaction], T]) -> T:
        return work(self.tx)

    def look(self, work: Callable[[Transaction], T], *, urgent: bool = False) -> T:
        return work(self.tx)

    def write(self, name: str, work: Callable[[Transaction], T]) -> T:
        self._count()
        with self.tx.savepoint():  # a part that raises leaves nothing, whoever catches it
            return work(self.tx)

    def single(self, name: str, rows: Sequence[Mapping[str, object]]) -> list[Row]:
        self._count()
        return self.tx.many(name, rows)

    def select(self, sql: str, *, limit: int, seconds: float) -> Result:
        """A query reads what was committed before; it would hold the transaction for too long."""
        raise Invalid("a query has no place inside a transaction")

    def notify(self) -> None:
        """Whoever commits tells the others: what is here cannot be seen before."""

    def _count(self) -> None:
        self._changed += 1
        if self._changed > self.changes:
            raise Invalid(
                f"this is more than {self.changes:,} changes at once; divide it, or use `rota sql`"
            )
        if time.monotonic() > self._until:
            raise Invalid(
                f"this takes longer than {self.seconds:g} s at once; divide it, or use `rota sql`"
            )
