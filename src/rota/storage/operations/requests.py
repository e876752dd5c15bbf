"""Answer control rows: what a row asks for and its answer are one transaction.

A process that dies anywhere leaves the row as it was, with nothing done, or answered. The row's
lock says who does it; who does not get it leaves the row alone.
"""

from __future__ import annotations

from collections.abc import Callable

from rota.errors import RotaError, Unavailable
from rota.model.control_row import ControlReply, ControlRequest
from rota.storage.engine import Row, Transaction
from rota.storage.operation import only_if


def asked(tx: Transaction, *, limit: int) -> list[ControlRequest]:
    """Rows that wait for an answer, the oldest first."""
    found = tx.all("asked_rows", limit=limit)
    return [ControlRequest(**row) for row in found]


def answer(
    tx: Transaction,
    asked_id: int,
    do: Callable[[Transaction], ControlReply],
    refuse: Callable[[RotaError], ControlReply],
) -> ControlReply | None:
    """Do it in this transaction, and say so; None if it is answered, or somebody else's.
    What it raises undoes what it did and is the answer, unless the database is away or
    somebody holds a lock: then the row waits. `do` may be called again after a rollback."""
    if tx.one("lock_asked_row", id=asked_id) is None:
        return None
    tx.answers_request = True
    tx.wait_briefly()
    try:
        with tx.savepoint():
            reply = do(tx)
    except Unavailable:
        raise
    except RotaError as fault:
        reply = refuse(fault)
    tx.one(
        "answer_row", id=asked_id, status=reply.status, kept=reply.redacted_text,
        rows=reply.rows, more=reply.more, error=reply.error,
    )  # fmt: skip
    return reply


def old_answers(tx: Transaction, *, age_seconds: float, keep: int, limit: int) -> list[Row]:
    """Old answers, and those past the latest `keep` rows."""
    return tx.all("old_answered_rows", age_seconds=age_seconds, keep=keep, limit=limit)


@only_if(old_answers, nothing=0)
def prune_answered(tx: Transaction, *, age_seconds: float, keep: int, limit: int) -> int:
    """Delete those; how many."""
    old = old_answers(tx, age_seconds=age_seconds, keep=keep, limit=limit)
    tx.many("delete_answered_rows", old)
    return len(old)
