"""Many operations in one transaction that is open: what a control row asks for.

All of it happens, or nothing. What belongs to the hot path, or to a caller's connection, is not
here: it has a transaction of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from rota.errors import Invalid
from rota.model.limits import CONTROL_CHANGES, CONTROL_SECONDS
from rota.storage.engine import Transaction
from rota.storage.operations.installation import read_clock

if TYPE_CHECKING:
    from rota.model.result import Result
    from rota.storage.store import Store

P = ParamSpec("P")
R = TypeVar("R")


class StoreInside:
    """Reads and writes as `Store` does, each a part of `tx`. CONTROL_CHANGES and CONTROL_SECONDS
    limit what one transaction may do: others wait for it."""

    def __init__(self, store: Store, tx: Transaction) -> None:
        self._tx = tx
        self.dialect, self.one_writer = store.dialect, store.one_writer
        self._changes = 0
        self._until = time.monotonic() + CONTROL_SECONDS

    def write(
        self, operation: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        self._count()
        with self._tx.savepoint():  # one that raises leaves nothing, wherever that is caught
            return operation(self._tx, *args, **kwargs)

    def read(
        self, operation: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        return operation(self._tx, *args, **kwargs)

    peek = read

    def now(self) -> datetime:
        return read_clock(self._tx)

    def select(self, sql: str, *, limit: int, seconds: float) -> Result:
        """A query reads what was committed before; it would hold the transaction for too long."""
        raise Invalid("a query has no place inside a transaction")

    def notify(self) -> None:
        self._tx.notify()

    def _count(self) -> None:
        self._changes += 1
        if self._changes > CONTROL_CHANGES:
            raise Invalid(
                f"this is more than {CONTROL_CHANGES:,} changes at once; divide it, or use "
                "`rota sql`"
            )
        if time.monotonic() > self._until:
            raise Invalid(
                f"this takes longer than {CONTROL_SECONDS:g} s at once; divide it, or use "
                "`rota sql`"
            )
